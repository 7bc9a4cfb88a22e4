"""A frozen model on frames: embeddings and logits, the input of the calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pisa_capc.core.brief import brief
from pisa_capc.core.process import keep_freed_memory
from pisa_capc.core.threads import OwnThreads, cpu_threads, in_threads
from pisa_capc.data.descriptors import cfo_descriptors
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.store.files import atomic
from pisa_capc.model.inference.devices import choose_device, choose_precision, frames_at_a_time
from pisa_capc.model.inference.inputs import (
    available_descriptors,
    available_input,
    available_mean,
    check_missing,
    read_ahead,
)
from pisa_capc.model.inference.model import TrainedModel
from pisa_capc.model.inference.recorded import recorded
from pisa_capc.model.inference.statistics import PREFIX, SourceStatistics
from pisa_capc.model.stacked.frozen import derived

BLOCK = 32  # frames that a thread computes at a time on a CPU: few calls, and yet they stay in its cache
READ = 4 * BLOCK  # frames that are read at a time for it: they are normalised while they are in the cache
RECORDED_FROM = 2048  # frames, for which recording a network takes less time than it saves


@dataclass(frozen=True)
class Embedding:
    """z and ℓ⁰ of each frame, and what is known about it without its label.

    embedding (N, D) as the classifier saw it, logits (N, C), capture (N,) grouping key, environment (N,) name,
    frame (N,) index in its recording, statistics: of the source, which some calibration methods use, cfo_hz (N,) mean
    over the antennas that are there, or none where it was not recorded, devices (C,) names of the classes, error
    (N, D, D) covariance of each embedding's own error, of models that measure it, fit (N,) chance that a frame which
    begins with the model's waveform leaves as much unexplained, where that was asked of such a model.
    """

    embedding: NDArray[np.float32]
    logits: NDArray[np.float32]
    capture: NDArray[np.str_]
    environment: NDArray[np.str_]
    frame: NDArray[np.int64]
    statistics: SourceStatistics
    cfo_hz: NDArray[np.float64] | None = None
    devices: NDArray[np.str_] | None = None
    error: NDArray[np.float32] | None = None
    fit: NDArray[np.float64] | None = None

    __repr__ = brief

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
    fit: bool = False,
) -> Embedding:
    """Embeddings and logits of frames under a frozen model, read batch by batch.

    An antenna whose samples are all exactly zero in a frame is absent from it: the model leaves it out, as it leaves
    out the antennas that its training drops (`model.inference.inputs`).

    Args:
        batch: frames read and computed at a time, at most; threads of a CPU take smaller blocks. By default what
            suits the device.
        after_batch: called with the number of frames that have been computed since it was last called.
        missing: numbers, from 0, of antennas that are to be left out of every frame whatever they hold.
        descriptor: (N, 4) of the frames, from the antennas that each has; computed unless given.
        precision: 'bfloat16' takes the products in it, where the device has it: quicker, and a frame that is between
            two devices may then be decided for the other one.
        fit: whether to test of each frame that it fits the waveform of the model, which takes longer than to measure
            it; for models that measure.

    >>> from pisa_capc import Frames
    >>> from pisa_capc.data.protocol import split
    >>> from pisa_capc.model.inference import embed
    >>> from pisa_capc.model.training import Run, fit
    >>> frames = Frames.from_arrays(
    ...     np.random.default_rng(0).normal(size=(24, 4, 64)), device=["D1", "D2"] * 12,
    ...     environment=np.repeat(["E1", "E2"], 12))
    >>> run = Run(split(frames, "E2", "E1", seed=2026), seed=2026)
    >>> [trained] = fit(run, encoder="cnn", epochs=1, batch=16, device="cpu", show=False)  # or load_model("run")
    >>> scores = embed(trained, run.split.target)
    >>> scores.embedding.shape, scores.logits.shape
    ((10, 64), (10, 2))
    """
    return embed_many([trained], frames, device, batch, after_batch, missing, descriptor, precision, fit)[0]


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
    fit: bool = False,
) -> list[Embedding]:
    """As `embed` for several models of one segment length, reading the frames once."""
    for trained in models:
        trained.check_frames(frames)
    check_missing(missing, frames.antennas)
    [(samples, _)] = {(trained.run.samples, trained.run.subcarriers) for trained in models}
    frames = models[0].seen(frames)
    device = choose_device(device) if isinstance(device, str) else device
    if device.type == "cpu":
        keep_freed_memory()
    batch = batch or frames_at_a_time(device, samples)
    lower = choose_precision(precision, device) == "bfloat16"
    given = descriptor
    descriptor = cfo_descriptors(frames) if given is None else given
    networks = [_ready(trained.model, device) for trained in models]
    weights: list[torch.Tensor] = [network.classifier.weight for network in networks]  # type: ignore[union-attr,misc]
    embedding = [np.empty((len(frames), w.shape[2]), dtype=np.float32) for w in weights]
    logits = [np.empty((len(frames), w.shape[1]), dtype=np.float32) for w in weights]
    errors: list[dict[int, NDArray[np.float32]]] = [{} for _ in networks]  # by the first frame of a block
    tests = [fit_test_of(network) if fit else None for network in networks]
    chance = [np.full(len(frames), np.nan) for _ in networks]
    present = np.empty((len(frames), frames.antennas), dtype=bool)
    in_blocks = device.type == "cpu" and not any(isinstance(network, OwnThreads) for network in networks)
    if in_blocks and len(frames) >= RECORDED_FROM:
        how = frames.antennas, samples, descriptor is not None, lower
        with cpu_threads(1):  # a record is of few frames, for which threads would only wait
            networks = [_recorded(network, *how) for network in networks]

    def compute(block: _Block) -> int:
        here = block.where
        present[here] = block.there
        iq = torch.from_numpy(block.seen).to(device)
        mask = None if block.there.all() else torch.from_numpy(block.there).to(device)
        d = None
        if descriptor is not None:
            own = descriptor[here]
            if given is None and mask is not None:
                own = available_descriptors(block.part.select(block.rows), own, block.there)
            d = torch.from_numpy(own).to(device)
        for i, network in enumerate(networks):
            with torch.autocast(device.type, torch.bfloat16, enabled=lower):
                output = network(iq, d, mask)
            embedding[i][here] = output.embedding.float().cpu().numpy()
            logits[i][here] = output.logits.float().cpu().numpy()
            if (own_error := getattr(output, "error", None)) is not None:
                errors[i][here.start] = own_error.float().cpu().numpy()
            if (test := tests[i]) is not None:
                chance[i][here] = test(block.seen.view(np.complex64)[..., 0], block.there)
        return len(iq)

    read = frames.batches(min(batch, READ) if in_blocks else batch)
    with closing(read_ahead(lambda part: (part, *available_input(part, missing)), read)) as parts:
        blocks = _blocks(parts, BLOCK if in_blocks else batch)
        one_thread = cpu_threads(1) if in_blocks and len(frames) <= BLOCK else nullcontext()
        with one_thread:  # threads that share a block would change its sums
            for done in in_threads(compute, blocks) if in_blocks else map(compute, blocks):
                after_batch(done)
    environment = np.array(frames.environments)[frames.environment]
    cfo_hz = None if frames.cfo_hz is None else available_mean(frames.cfo_hz, present)
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
            np.concatenate([own for _, own in sorted(errors[i].items())]) if errors[i] else None,
            None if tests[i] is None else chance[i],
        )
        for i, trained in enumerate(models)
    ]


def fit_test_of(network: nn.Module) -> Any:
    """What tells of frames (N, A, T), antennas there (N, A), whether they fit (N,); None of a network that cannot."""
    return getattr(getattr(network, "network", network), "fits", None)  # behind another engine


class _Block(NamedTuple):
    """Rows of a part of the frames, their place among all, the model's input, and the antennas present."""

    part: UnlabelledFrames
    rows: NDArray[np.int64]
    where: slice
    seen: NDArray[np.float32]
    there: NDArray[np.bool_]


def _blocks(
    parts: Iterable[tuple[UnlabelledFrames, NDArray[np.float32], NDArray[np.bool_]]], size: int
) -> Iterator[_Block]:
    """Blocks of at most `size` frames of each part, in order."""
    before = 0
    for part, seen, there in parts:
        for start in range(0, len(part), size):
            rows = slice(start, min(start + size, len(part)))
            where = slice(before + rows.start, before + rows.stop)
            yield _Block(part, np.arange(rows.start, rows.stop), where, seen[rows], there[rows])
        before += len(part)


def _recorded(network: nn.Module, *how: Any) -> nn.Module:
    """The network as a record, which is kept until its weights change."""
    return derived(network, list(network.state_dict().values()), how, lambda: recorded(network, *how))


def _ready(network: nn.Module, device: torch.device) -> nn.Module:
    """The network on the device, for inference; moved only if it is elsewhere."""
    if network.training or next(network.parameters()).device != device:
        network.to(device).eval()
    return network
