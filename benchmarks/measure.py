"""Frames a second from samples in memory to logits of ten devices: in closed form, by plain NumPy, and by a network.

`make bench-measure` simulates the ten devices of Wi-Fi and of LoRa, repeats their frames (four antennas, 320 samples),
and lets each way have all of them in one run:

- closed form: flaws and error bars of each frame (`FlawEstimator`), log-likelihoods of ten Gaussians (`fit_backend`);
- plain NumPy: the same least squares frame by frame, with all that depends on the waveform alone computed before, and
  no log-likelihoods; on some of the frames, since it takes long;
- embed: PISA with the CNN encoder, trained for one epoch, which changes its weights and not its speed.

The best of the rounds counts. That closed form and plain NumPy measure the same is checked, and told in error bars.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import begin, show
from pisa_capc import Frames, load
from pisa_capc.core.errors import DataError
from pisa_capc.core.process import keep_freed_memory
from pisa_capc.data.protocol import split
from pisa_capc.data.sources import MemorySource
from pisa_capc.model.gaussian import GaussianBackend, fit_backend
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.measurement import FLAWS, FlawEstimator
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.waveforms import WAVEFORMS
from pisa_capc.signal.waveforms.delays import delayed_copies, orthonormal

SAMPLES = 320
SAME = 1.0  # error bars by which the two least squares may differ in the middle frame: one uses fewer directions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=40_000)
    parser.add_argument("--plain", type=int, default=2_000, help="frames of plain NumPy")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    keep_freed_memory()
    rows: list[dict[str, Any]] = []
    apart: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("wifi", "lora"):
            data = Path(folder) / name
            generate(name, data, scale=0.02, show_progress=False)
            own, apart[name] = compared(name, load(data), given)
            rows += own
    facts = {"frames": given.frames, "antennas": 4, "samples": SAMPLES, "threads": torch.get_num_threads()}
    show("Measuring", rows, facts | {"apart_in_bars": apart})


def compared(waveform: str, frames: Frames, given: argparse.Namespace) -> tuple[list[dict[str, Any]], float]:
    """Each way's speed, and how far apart the two least squares are, in error bars."""
    estimator, plain = FlawEstimator(WAVEFORMS[waveform], SAMPLES), Plain(waveform)
    network, backend = trained(frames), fitted(estimator, frames)
    many = repeated(frames, given.frames)
    some, all_iq = many.iq[: given.plain], many.iq
    found = estimator.measure(some)
    slow = np.stack([plain.measure(frame) for frame in some])
    off = np.abs(found.value - slow) / np.sqrt(found.covariance.diagonal(0, 1, 2).real)
    if (apart := float(np.median(off))) > SAME:
        raise DataError(f"{waveform}: the two least squares are {apart:.2g} error bars apart; expected {SAME} or less.")
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "closed form": (len(many), lambda: logits(estimator, backend, all_iq)),
        "plain NumPy, frame by frame": (len(some), lambda: [plain.measure(frame) for frame in some]),
        "embed, PISA with the CNN": (len(many), lambda: embed(network, many, device="cpu")),
    }
    speeds = {name: count / best(work, given.rounds) for name, (count, work) in ways.items()}
    return [{"waveform": waveform, "way": name, "frames/s": speed} for name, speed in speeds.items()], apart


def best(work: Callable[[], object], rounds: int) -> float:
    """The least seconds of some rounds, after one that nothing is counted of."""
    seconds = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])


def repeated(frames: Frames, count: int) -> Frames:
    """`count` frames in memory: those that there are, again and again."""
    rows = np.arange(count) % len(frames)
    chosen = frames.select(rows)
    iq, cfo_hz = frames.iq, frames.cfo_hz
    source = MemorySource(
        iq[rows], None if cfo_hz is None else cfo_hz[rows], np.zeros(count, np.int64), np.arange(count)
    )
    return replace(chosen, source=source, rows=np.arange(count))


def trained(frames: Frames) -> TrainedModel:
    part = split(frames, source=["E2", "E3"], target="E1", seed=2026)
    [model] = fit([Run(part, seed=2026)], method="pisa", encoder="cnn", epochs=1, batch=64, show=False)
    return model


def fitted(estimator: FlawEstimator, frames: Frames) -> GaussianBackend:
    _, place = np.unique(frames.capture_key, return_inverse=True)
    return fit_backend(*estimator.measure(frames.iq).features(), frames.device, place, frames.devices)


def logits(estimator: FlawEstimator, backend: GaussianBackend, iq: np.ndarray) -> np.ndarray:
    return backend.log_likelihood(backend.evidence(*estimator.measure(iq).features()))


class Plain:
    """θ̂ of a frame as the equations have it, in the whole space; what depends on the waveform alone is kept."""

    def __init__(self, waveform: str) -> None:
        known = WAVEFORMS[waveform]
        before, after = known.taps
        x = known.preamble()
        self.samples = min(SAMPLES, len(x) - before)
        x = x[: self.samples + before]
        copies = delayed_copies(x, self.samples, before, after).T
        self.basis = orthonormal(copies, 1e-7)
        ridge = known.ridge * self.samples * np.diag(10.0 ** np.abs(np.arange(-before, after + 1)))
        self.channel = np.linalg.solve(copies.conj().T @ copies + ridge, copies.conj().T)
        beyond = np.eye(self.samples) - self.basis @ self.basis.conj().T
        names = FlawEstimator(known, SAMPLES).flaws
        self.shapes = [beyond @ delayed_copies(FLAWS[name].of(x), self.samples, before, after).T for name in names]

    def measure(self, frame: np.ndarray) -> np.ndarray:
        """(J,) of a frame (A, T)."""
        size = len(self.shapes)
        information, c = np.zeros((size, size), dtype=complex), np.zeros(size, dtype=complex)
        for y in frame[:, : self.samples]:
            h = self.channel @ y
            added = np.stack([shape @ h for shape in self.shapes], axis=1)
            left = y - self.basis @ (self.basis.conj().T @ y)
            own = np.linalg.lstsq(added, left, rcond=None)[0]
            noise = np.sum(np.abs(left - added @ own) ** 2) / (self.samples - self.basis.shape[1] - size)
            information += added.conj().T @ added / noise
            c += added.conj().T @ left / noise
        return np.linalg.solve(information, c)


if __name__ == "__main__":
    begin(main)
