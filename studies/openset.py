"""Unknown devices: every rejection score, and what a rejection does for the calibration.

    make study-openset

On a small simulated set seven of ten radios are enrolled. Which score to use is chosen on the source alone: each
source environment in turn plays the target of a model trained in the others, and each of three pairs of enrolled radios
that it was not trained on plays the unknown ones. Then a model of all seven meets the other three in the target. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import yaml
from benchmarks.report import machine, made

from pisa_capc import UCAPC, Frames, simulate
from pisa_capc.cli.output import print_table
from pisa_capc.core.errors import DataError
from pisa_capc.core.progress import console
from pisa_capc.data.protocol import Evaluator, split
from pisa_capc.data.scores import OpenSetScores
from pisa_capc.decide.calibration import Calibration, OpenSet, unknown_scores
from pisa_capc.decide.calibration.openset import score_frames
from pisa_capc.decide.calibration.peers.base import Direct
from pisa_capc.model.inference import Embedding, TrainedModel, embed
from pisa_capc.model.training import Run, TrainingConfig, fit
from studies import scores as _registers  # noqa: F401

SCENE = Path(__file__).parents[1] / "examples" / "demo_scene.yaml"  # its hardware, but ten radios
SOURCE, TARGET = ("E2", "E3"), "E1"
ENROLLED = 7
PAIRS = ([0, 1], [2, 3], [4, 5])  # enrolled radios that play the unknown ones on the source
SHARES = (0.0, 0.1, 0.3)  # of unknown frames among all
ALPHA = 0.05


def enrol(frames: Frames, devices: Sequence[int]) -> Frames:
    """The frames of some devices, as a dataset that has no others."""
    chosen = frames.select(np.isin(frames.device, devices))
    names = tuple(frames.devices[i] for i in devices)
    return replace(chosen, device=np.searchsorted(devices, chosen.device), devices=names)


class Trial:
    """A model of the enrolled devices, and frames of enrolled and of unknown devices in an environment new to it."""

    def __init__(
        self, frames: Frames, devices: Sequence[int], strangers: Sequence[int], source: Sequence[str], target: str,
        training: TrainingConfig, encoder: str, seed: int,
    ) -> None:  # fmt: skip
        part = split(enrol(frames, devices), source, target, seed)
        [model] = fit([Run(part, seed)], encoder=encoder, training=training, device="cpu")
        self.model: TrainedModel = model
        self.evaluator: Evaluator = part.evaluator
        self.known = embed(model, part.target)
        self.unknown = embed(model, enrol(frames.where(environment=target), strangers).unlabelled())
        self.source = self.known.statistics

    def unknown_score(self, name: str, frames: Embedding) -> np.ndarray:
        z, logits = torch.from_numpy(frames.embedding), torch.from_numpy(frames.logits)
        function = unknown_scores()[name]().fit(self.source, logits.shape[1], z.double())
        return score_frames(function, z, logits).numpy()

    def scores(self) -> dict[str, OpenSetScores]:
        return {
            name: self.evaluator.openset(
                self.known.logits, self.unknown_score(name, self.known), self.unknown_score(name, self.unknown)
            )
            for name in unknown_scores()
        }

    def mixed(self, share: float, calibration: UCAPC | OpenSet) -> dict[str, float | None]:
        """Calibrate all enrolled frames together with so many of the others that they are `share` of all."""
        n = len(self.known.logits)
        count = round(share * n / (1 - share))
        if count > len(self.unknown.logits):
            raise SystemExit(f"{len(self.unknown.logits)} unknown frames are too few for a share of {share}")
        some = np.linspace(0, len(self.unknown.logits), count, endpoint=False).astype(int)
        joined = (
            np.concatenate([getattr(self.known, name), getattr(self.unknown, name)[some]])
            for name in ("embedding", "logits", "capture")
        )
        result = calibration.calibrate(*joined, source=self.source)
        accepted = np.asarray(result.prediction) >= 0
        right = self._right(result, accepted[:n])
        rejected = int((~accepted[n:]).sum())
        return {
            "known right": right / n,
            "known rejected": float((~accepted[:n]).mean()),
            "accepted known right": right / max(1, int(accepted[:n].sum())),
            "unknown rejected": rejected / count if count else None,
            "all right": (right + rejected) / (n + count),
        }

    def _right(self, result: Calibration, accepted: np.ndarray) -> int:
        """How many known frames are accepted and rightly named."""
        if not accepted.any():
            return 0
        probability = np.asarray(result.probability)[: len(accepted)][accepted]
        return round(self.evaluator.select(accepted).score(probability).accuracy * int(accepted.sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.125, help="part of the frames of each capture (0.125)")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of each of the seven trainings (10)")
    parser.add_argument("--encoder", default="cnn", help="temporal encoder (cnn)")
    parser.add_argument("--seed", type=int, default=2026, help="seed of everything (2026)")
    parser.add_argument("--plot", type=Path, help="draw the curves on the target into this file")
    options = parser.parse_args()
    started = time.perf_counter()
    torch.set_num_threads(1)
    training = TrainingConfig(epochs=options.epochs, batch=32)
    with TemporaryDirectory() as folder:
        scene = Path(folder) / "scene.yaml"
        scene.write_text(yaml.safe_dump({**yaml.safe_load(SCENE.read_text()), "devices": 10}))
        frames = simulate(
            "wifi-own-place", f"{folder}/wifi", seed=options.seed, scale=options.scale, scene=scene, workers=1
        )
        enrolled = list(range(ENROLLED))

        def trial(devices: list[int], strangers: list[int], source: Sequence[str], target: str) -> Trial:
            where = f"train in {', '.join(source)}, meet {len(strangers)} unknown radios in {target}"
            console.print(f"{time.perf_counter() - started:.0f} s: {where}")
            return Trial(frames, devices, strangers, source, target, training, options.encoder, options.seed)

        folds: list[dict[str, Any]] = []
        for environment, pair in product(SOURCE, PAIRS):
            rest, others = [d for d in enrolled if d not in pair], [e for e in SOURCE if e != environment]
            scores = trial(rest, pair, others, environment).scores()
            folds.append({"environment": environment, "unknown": [frames.devices[d] for d in pair], "scores": scores})
        final = trial(enrolled, list(range(ENROLLED, len(frames.devices))), SOURCE, TARGET)
        on_target = final.scores()
        if options.plot:
            plot_openset(options.plot, on_target)

    for fold in folds:
        fold["scores"] = {name: found.to_json() for name, found in fold["scores"].items()}
    selection = {
        name: {
            **{m: float(np.mean([fold["scores"][name][m] for fold in folds])) for m in ("auroc", "fpr95", "oscr")},
            "worst auroc": min(fold["scores"][name]["auroc"] for fold in folds),
        }
        for name in unknown_scores()
    }
    chosen = max(selection, key=lambda name: selection[name]["auroc"])
    target = {name: {**found.to_json(), **_at_alpha(final, name)} for name, found in on_target.items()}
    calibrations = {"U-CAPC": UCAPC(), f"U-CAPC, {chosen} rejects": OpenSet(UCAPC(), chosen, ALPHA)}
    mixed = [
        {"unknown share": share, "calibration": name, **final.mixed(share, calibration)}
        for share in SHARES
        for name, calibration in calibrations.items()
    ]
    title = f"Choice on the source, mean of {len(folds)} folds"
    _table(title, [{"score": name, **row} for name, row in selection.items()])
    title = f"Target {TARGET}: three unknown radios; thresholds at alpha = {ALPHA}"
    _table(title, [{"score": name, **row} for name, row in target.items()])
    _table(f"U-CAPC in {TARGET} with unknown frames among the others", mixed)
    record = {
        "benchmark": "openset",
        "machine": machine(),
        "made": made(),
        "settings": {k: v for k, v in vars(options).items() if k != "plot"},
        "seconds": round(time.perf_counter() - started, 1),
        "validation_f1": final.model.run.metrics.validation_f1,
        "selection": selection,
        "folds": folds,
        "chosen": chosen,
        "target": target,
        "mixed": mixed,
    }
    print(json.dumps(record))


def _at_alpha(trial: Trial, name: str) -> dict[str, float]:
    """Errors in the target of the threshold that the source's validation frames give."""
    shares = {}
    for kind, frames in (("known", trial.known), ("unknown", trial.unknown)):
        result = OpenSet(Direct(), name, ALPHA).calibrate(
            frames.embedding, frames.logits, frames.capture, source=trial.source
        )
        shares[f"{kind} rejected"] = 1 - float(np.mean(result.known))
    return shares


def _table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    cells = [["–" if v is None else v if isinstance(v, str) else f"{v:.3f}" for v in row.values()] for row in rows]
    print_table(title, list(rows[0]), cells, left=[name for name, value in rows[0].items() if isinstance(value, str)])


def plot_openset(path: str | Path, scores: Mapping[str, OpenSetScores]) -> None:
    """Draw the ROC and OSCR curves of several unknown scores, by name. The path's suffix chooses the format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    styles = ("-", "--", "-.", ":")
    for i, (name, found) in enumerate(scores.items()):
        style = {"linestyle": styles[i % len(styles)], "color": f"C{i % 10}", "linewidth": 1.6}
        left.plot(found.false_accept, found.accept, label=f"{name}: {found.auroc:.3f}", **style)
        right.plot(found.false_accept, found.correct, label=f"{name}: {found.oscr:.3f}", **style)
    left.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    left.set(title="ROC", ylabel="known frames accepted")
    right.set(title="open-set classification rate", ylabel="known frames accepted and rightly named")
    for axes in (left, right):
        axes.set(xlabel="unknown frames accepted", xlim=(0, 1), ylim=(0, 1))
        axes.legend(title="area", loc="lower right", fontsize=8)
        axes.grid(alpha=0.2)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the picture cannot be written ({error}).") from error


if __name__ == "__main__":
    main()
