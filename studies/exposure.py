"""Proxies in the loss: is it better to learn that they are nobody, or to tell them apart as classes of their own?

    python -m studies.exposure --waveform wifi
    python -m studies.exposure --waveform lora --scale 0.5 --epochs 30 --seeds 2026,2027,2028 --device cuda

Writes results/studies/strangers-exposure-{waveform}.json.

Of a simulated set of 20 devices the first ten are enrolled, the next five are proxies and the last five strangers. All
is on the source: E2 and E3 in turn are left out of the statistics and play the new place, as in `studies.proxies`; E1
is not looked at. Single behind an equaliser, which a CPU can train. Proxies are

    not trained on
    classes             each one of its own
    one class           of them all
    uniform             no class: their frames shall have the same probability for every enrolled device
    classes, uniform    both

the last two by outlier exposure (Hendrycks et al., ICLR 2019), with its weight of 0.5.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pisa_capc import Frames, load
from pisa_capc.cli.output import listed_numbers
from pisa_capc.core.progress import console
from pisa_capc.data.protocol import Split, split
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.model.inference import TrainedModel, embed_many
from pisa_capc.model.methods.equalised import EqualisedMethod
from pisa_capc.model.methods.registry import Batch, register_method
from pisa_capc.model.objective import frame_cross_entropy
from pisa_capc.model.training import Run, fit
from studies.cohorts import Beside
from studies.embeddings import dataset
from studies.leave_one_out import evenly
from studies.proxies import on_source
from studies.strangers import Model, measured

DEVICES, ENROLLED, PROXIES = 20, 10, 5
SOURCE, TARGET = ("E2", "E3"), "E1"
FRAMES = 48  # of a device in a capture that scores are of
WEIGHT = 0.5


@register_method("equalised-uniform")
class Uniform(EqualisedMethod):
    """Single behind an equaliser, whose proxies, the classes after those enrolled, are no classes.

    L_ce of the enrolled among themselves + 0.5 · mean over proxies' frames of −1/K Σ_k log softmax(h(z))_k, K enrolled.
    """

    title = "Equalised Single, proxies uniform"

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output: Any = model(batch.iq)
        own, known = output.logits[..., :ENROLLED], batch.label < ENROLLED
        named = frame_cross_entropy(own, batch.label.clamp(max=ENROLLED - 1))
        return {"cls": over(named, known) + WEIGHT * over(unsure(own), ~known)}


@register_method("equalised-classes-uniform")
class ClassesUniform(EqualisedMethod):
    """The same with proxies as classes besides: L_ce of all is in the place of that of the enrolled."""

    title = "Equalised Single, proxies classes and uniform"

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output: Any = model(batch.iq)
        proxies = batch.label >= ENROLLED
        named = frame_cross_entropy(output.logits, batch.label).mean(dim=1)
        return {"cls": named + WEIGHT * over(unsure(output.logits[..., :ENROLLED]), proxies)}


def unsure(logits: Tensor) -> Tensor:
    """(R, B) cross-entropy of the probabilities of frames against equal ones."""
    return -torch.log_softmax(logits.float(), dim=-1).mean(dim=-1)


def over(values: Tensor, frames: Tensor) -> Tensor:
    """(R,) mean of (R, B) over some of the frames."""
    return (values * frames).sum(dim=1) / frames.sum(dim=1).clamp_min(1)


class Arm:
    """One way to train: with so many classes, by a method."""

    def __init__(self, classes: int, method: str = "equalised", proxies: bool = True) -> None:
        self.classes, self.method, self.proxies = classes, method, proxies

    def of(self, part: Split) -> Split:
        return replace(part, train=self.labelled(part.train), validation=self.labelled(part.validation))

    def labelled(self, frames: Frames) -> Frames:
        own = frames.select(frames.device < (ENROLLED + PROXIES if self.proxies else ENROLLED))
        return replace(own, device=own.device.clip(max=self.classes - 1), devices=frames.devices[: self.classes])


ARMS: Mapping[str, Arm] = {
    "not trained on": Arm(ENROLLED, proxies=False),
    "classes": Arm(ENROLLED + PROXIES),
    "one class": Arm(ENROLLED + 1),
    "uniform": Arm(ENROLLED + PROXIES, "equalised-uniform"),
    "classes, uniform": Arm(ENROLLED + PROXIES, "equalised-classes-uniform"),
}


def heard(frames: Frames, part: Split) -> Frames:
    """The frames that scores are of: of the source, and none that was trained on."""
    source = np.isin(frames.environment, [frames.environments.index(name) for name in SOURCE])
    kept = np.isin(frames.rows, part.validation.rows) | (source & (frames.device >= ENROLLED + PROXIES))
    found = frames.select(kept)
    return found.select(evenly(found, FRAMES))


def seen_by(model: TrainedModel, frames: Frames, embedding: np.ndarray, logits: np.ndarray) -> Model:
    """What the studies of strangers know of a model."""
    where = np.stack([frames.environment, frames.capture], axis=1).astype(np.int64)
    z, own = (torch.from_numpy(a.astype(np.float64)) for a in (embedding, logits[:, :ENROLLED]))
    return Model(
        *(z, own, torch.zeros(len(z), dtype=torch.float64), frames.device.astype(np.int64), where, frames.frame),
        *(frames.environments, int(where[:, 1].max()) + 1, model.statistics, ENROLLED, f"-{'+'.join(SOURCE)}-"),
    )


def trained(arm: Arm, part: Split, seeds: list[int], epochs: int, device: str) -> list[TrainedModel]:
    runs = [Run(arm.of(part), seed) for seed in seeds]
    return fit(runs, method=arm.method, encoder="transformer", epochs=epochs, device=device, show=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waveform", choices=("wifi", "lora"), default="wifi")
    parser.add_argument("--scale", type=float, default=0.2, help="part of the frames of each capture (0.2)")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--seeds", default="2026")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, default=Path("work/embeddings-data"))
    parser.add_argument("--out", type=Path, default=Path("results/studies"), help="folder of the record")
    options = parser.parse_args()
    options.devices = DEVICES
    frames = load(dataset(options))
    first = replace(frames.select(frames.device < ENROLLED + PROXIES), devices=frames.devices[: ENROLLED + PROXIES])
    seeds = listed_numbers("--seeds", options.seeds)
    part = split(first, SOURCE, TARGET, seeds[0])
    kept = heard(frames, part)
    proxies, found = range(ENROLLED, ENROLLED + PROXIES), {}
    for name, arm in ARMS.items():
        models = trained(arm, part, seeds, options.epochs, options.device)
        scores = embed_many(models, kept.unlabelled(), options.device)
        known = [seen_by(m, kept, own.embedding, own.logits) for m, own in zip(models, scores, strict=True)]
        found[name] = {
            words: measured(
                [one for model in known for one in on_source(model, proxies, use)], Beside(enrolled=ENROLLED)
            )
            for words, use in (("taken out", False), ("kept", True))
        }
        console.print(name, [round(of["frame"]["auroc"], 3) for of in found[name].values()])
    about = {name: getattr(options, name) for name in ("waveform", "scale", "epochs", "device")}
    record = {"study": "strangers-exposure", **about, "seeds": seeds, "weight": WEIGHT, "proxies": found}
    write_text_atomic(options.out / f"strangers-exposure-{options.waveform}.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
