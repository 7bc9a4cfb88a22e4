"""A frozen model on frames: embeddings and logits, the input of the calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pisa_capc.descriptors import cfo_descriptors
from pisa_capc.frames import UnlabelledFrames
from pisa_capc.inference.absent import available_descriptors, available_input, available_mean, check_missing
from pisa_capc.inference.ahead import read_ahead
from pisa_capc.inference.devices import choose_device, choose_precision
from pisa_capc.inference.memory import keep_freed_memory
from pisa_capc.inference.model import TrainedModel
from pisa_capc.inference.statistics import PREFIX, SourceStatistics
from pisa_capc.store.files import atomic

BATCH = 512  # frames at a time
GPU_SAMPLES = 4096 * 320  # of an antenna at a time: with fewer a GPU waits for launches


@dataclass(frozen=True)
class Embedding:
    """z and ℓ⁰ of each frame, and what may be known of it without its label.

    embedding (N, D) as the classifier saw it, logits (N, C), capture (N,) grouping key, environment (N,) name,
    frame (N,) index in its recording, statistics: of the source, which some calibration methods use, cfo_hz (N,) mean
    over the antennas that are there, or none where it was not recorded, devices (C,) names of the classes.
    """

    embedding: NDArray[np.float32]
    logits: NDArray[np.float32]
    capture: NDArray[np.str_]
    environment: NDArray[np.str_]
    frame: NDArray[np.int64]
    statistics: SourceStatistics
    cfo_hz: NDArray[np.float64] | None = None
    devices: NDArray[np.str_] | None = None

    def save(self, path: str | Path) -> None:
        """Write an .npz that `pisa calibrate` reads; the file is whole or not there."""
        with atomic(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, **self.arrays())  # type: ignore[arg-type]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything by the name it has in a file."""
        own = {k: v for k, v in vars(self).items() if k != "statistics" and v is not None}
        return own | {PREFIX + k: v for k, v in self.statistics.known().items()}


def embed(
    trained: TrainedModel,
    frames: UnlabelledFrames,
    device: str | torch.device = "auto",
    batch: int | None = None,
    after_batch: Callable[[int], None] = lambda frames: None,
    missing: Sequence[int] = (),
    descriptor: NDArray[np.float32] | None = None,
    precision: str = "float32",
) -> Embedding:
    """Embeddings and logits of frames under a frozen model, read batch by batch.

    An antenna whose samples are all exactly zero in a frame is absent from it: the model leaves it out, as it leaves
    out the antennas that its training drops (`inference.absent`).

    Args:
        batch: frames computed at a time; what suits the device unless told.
        after_batch: called with the number of frames of each batch.
        missing: numbers, from 0, of antennas that are to be left out of every frame whatever they hold.
        descriptor: (N, 4) of the frames, from the antennas that each has; computed unless given.
        precision: 'bfloat16' takes the products in it, where the device has it: quicker, and a frame that is between
            two devices may then be decided for the other one.

    >>> from pisa_capc import Frames
    >>> from pisa_capc.protocol import split
    >>> from pisa_capc.inference import embed
    >>> from pisa_capc.training import Run, fit
    >>> frames = Frames.from_arrays(
    ...     np.random.default_rng(0).normal(size=(24, 4, 64)), device=["D1", "D2"] * 12,
    ...     environment=np.repeat(["E1", "E2"], 12))
    >>> run = Run(split(frames, "E2", "E1", seed=2026), seed=2026)
    >>> [trained] = fit(run, encoder="cnn", epochs=1, batch=16, device="cpu", show=False)  # or load_model("run")
    >>> scores = embed(trained, run.split.target)
    >>> scores.embedding.shape, scores.logits.shape
    ((10, 64), (10, 2))
    """
    return embed_many([trained], frames, device, batch, after_batch, missing, descriptor, precision)[0]


@torch.no_grad()
def embed_many(
    models: Sequence[TrainedModel],
    frames: UnlabelledFrames,
    device: str | torch.device = "auto",
    batch: int | None = None,
    after_batch: Callable[[int], None] = lambda frames: None,
    missing: Sequence[int] = (),
    descriptor: NDArray[np.float32] | None = None,
    precision: str = "float32",
) -> list[Embedding]:
    """As `embed` for several models of one segment length, reading the frames once."""
    for trained in models:
        trained.check_frames(frames)
    check_missing(missing, frames.antennas)
    [samples] = {trained.about["samples"] for trained in models}
    frames = frames.segment(samples)
    device = choose_device(device) if isinstance(device, str) else device
    if device.type == "cpu":
        keep_freed_memory()
    batch = batch or (max(BATCH, GPU_SAMPLES // samples) if device.type == "cuda" else BATCH)
    lower = choose_precision(precision, device) == "bfloat16"
    networks = [_ready(trained.model, device) for trained in models]
    weights: list[torch.Tensor] = [network.classifier.weight for network in networks]  # type: ignore[union-attr,misc]
    embedding = [np.empty((len(frames), w.shape[2]), dtype=np.float32) for w in weights]
    logits = [np.empty((len(frames), w.shape[1]), dtype=np.float32) for w in weights]
    present = np.empty((len(frames), frames.antennas), dtype=bool)
    given = descriptor
    descriptor = cfo_descriptors(frames) if given is None else given
    start = 0
    with closing(read_ahead(lambda part: (part, *available_input(part, missing)), frames.batches(batch))) as parts:
        for part, seen, there in parts:
            here = slice(start, start + len(part))
            present[here] = there
            iq = torch.from_numpy(seen).to(device)
            mask = None if there.all() else torch.from_numpy(there).to(device)
            d = None
            if descriptor is not None:
                seen_by = (
                    descriptor[here] if given is not None else available_descriptors(part, descriptor[here], there)
                )
                d = torch.from_numpy(seen_by).to(device)
            for i, network in enumerate(networks):
                with torch.autocast(device.type, torch.bfloat16, enabled=lower):
                    output = network(iq, d, mask)
                embedding[i][here] = output.embedding.float().cpu().numpy()
                logits[i][here] = output.logits.float().cpu().numpy()
            start += len(part)
            after_batch(len(part))
    environment = np.array(frames.environments)[frames.environment]
    recorded = frames.cfo_hz
    cfo_hz = None if recorded is None else available_mean(recorded, present)
    return [
        Embedding(
            embedding[i],
            logits[i],
            frames.capture_key,
            environment,
            frames.frame,
            trained.statistics,
            cfo_hz,
            np.array(trained.devices),
        )
        for i, trained in enumerate(models)
    ]


def _ready(network: nn.Module, device: torch.device) -> nn.Module:
    """The network on the device, for inference; looking is quicker than moving what is there."""
    if network.training or next(network.parameters()).device != device:
        network.to(device).eval()
    return network
