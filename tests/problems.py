"""A small identification problem that can be learnt in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.frames import Frames
from pisa_capc.data.geometry import linear
from pisa_capc.data.protocol import Split, split
from pisa_capc.data.store import CaptureSpec, Dataset, write_dataset
from pisa_capc.model.training import Run

ANTENNAS, SAMPLES = 2, 32


def tones(
    device: int, environment: int, frames: int, samples: int = SAMPLES, antennas: int = ANTENNAS
) -> NDArray[np.complex64]:
    """A tone with the device's IQ imbalance and DC offset, through a random phase per antenna, in noise.

    The environment changes the noise and turns the phase; the device is in the image and the offset.
    """
    rng = np.random.default_rng([device, environment])
    phase = rng.uniform(0, 2 * np.pi, (frames, antennas, 1))
    tone = np.exp(1j * (2 * np.pi * 3 / 32 * np.arange(samples) + phase))
    image = 0.15 * device
    noise = rng.normal(size=(frames, antennas, samples, 2)) @ [1, 1j] * (0.05 + 0.02 * environment)
    return (tone + image * tone.conj() + 0.2 * device + noise).astype(np.complex64)


def small_frames(
    devices: int = 3, environments: int = 3, frames: int = 20, samples: int = SAMPLES, antennas: int = ANTENNAS
) -> Frames:
    groups = [(e, d) for e in range(environments) for d in range(devices)]
    rng = np.random.default_rng(0)
    return Frames.from_arrays(
        np.concatenate([tones(d, e, frames, samples, antennas) for e, d in groups]),
        device=np.repeat([f"D{d + 1}" for _, d in groups], frames),
        environment=np.repeat([f"E{e + 1}" for e, _ in groups], frames),
        cfo_hz=rng.normal(0, 1e3, (len(groups) * frames, antennas)),
        geometry=linear(antennas),
    )


def runs(frames: Frames, *seeds: tuple[int, int]) -> list[Run]:
    """Runs E2,E3 → E1 (E2 → E1 where there is no E3) with these split and training seeds."""

    def parts(seed: int) -> Split:
        return split(frames, [e for e in ("E2", "E3") if e in frames.environments], "E1", seed)

    return [Run(parts(split_seed), seed) for split_seed, seed in seeds or [(1, 1)]]


def write_small(
    folder: Path,
    environments: Sequence[str] = ("E1", "E2", "E3"),
    devices: int = 3,
    frames: int = 12,
    samples: int = SAMPLES,
    antennas: int = ANTENNAS,
) -> Path:
    """The problem as a dataset on disk, with captures L1 and L2."""
    names = [(e, d, c) for e in environments for d in range(devices) for c in ("L1", "L2")]
    specs = [CaptureSpec(e, f"D{d + 1}", c, frames) for e, d, c in names]
    dataset = Dataset(linear(antennas), 20e6, 5.825e9, samples, tuple(specs), {"command": "test"})

    def captures():  # type: ignore[no-untyped-def]
        for spec, (e, d, c) in zip(specs, names, strict=True):
            place = 10 * environments.index(e) + int(c[1])
            cfo_hz = np.random.default_rng([d, place]).normal(0, 1e3, (frames, antennas))
            yield spec, tones(d, place, frames, samples, antennas), cfo_hz

    write_dataset(folder, dataset, captures())
    return folder
