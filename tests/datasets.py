"""Small random datasets for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.geometry import default_geometry
from pisa_capc.data.store import CaptureSpec, Dataset, write_dataset


def random_capture(
    spec: CaptureSpec, antennas: int = 4, samples: int = 16
) -> tuple[NDArray[np.complex64], NDArray[np.float64]]:
    """I/Q and CFO that depend on the capture's name alone."""
    rng = np.random.default_rng(list(spec.name.encode()))
    iq = rng.normal(size=(spec.frames, antennas, samples, 2)).astype(np.float32).view(np.complex64)[..., 0]
    return iq, rng.normal(20e3, 1e3, (spec.frames, antennas))


def random_dataset(
    environments: Sequence[str] = ("E1", "E2"),
    devices: int = 2,
    captures: Sequence[str] = ("L1", "M"),
    frames: int = 6,
    antennas: int = 4,
    samples: int = 16,
) -> Dataset:
    specs = tuple(
        CaptureSpec(e, f"D{d:02d}", c, frames) for e in environments for d in range(1, devices + 1) for c in captures
    )
    return Dataset(default_geometry(antennas), 20e6, 5.825e9, samples, specs, {"command": "test"})


def write_random(folder: Path, cfo: bool = True, **layout: int | Sequence[str]) -> Path:
    """Write a random dataset; see `random_dataset` for the layout."""
    dataset = random_dataset(**layout)  # type: ignore[arg-type]

    def captures():  # type: ignore[no-untyped-def]
        for spec in dataset.captures:
            iq, cfo_hz = random_capture(spec, dataset.geometry.antennas, dataset.samples)
            yield spec, iq, cfo_hz if cfo else None

    write_dataset(folder, dataset, captures())
    return folder
