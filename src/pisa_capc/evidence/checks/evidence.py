"""What the checks look at; what several of them need is computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.frames import Frames, group_name, groups_of
from pisa_capc.evidence.checks.measure import SetMeasured
from pisa_capc.evidence.checks.naming import Directions, Numbers, PlaceNamed, name_devices


@dataclass(frozen=True)
class Layout:
    """frames: (environments, devices, captures), how many of each."""

    environments: list[str]
    devices: list[str]
    captures: list[str]
    frames: NDArray[np.int64]


@dataclass(eq=False)
class Evidence:
    """frames: the whole set, without reading its samples. found: the measurements on some of them."""

    frames: Frames
    found: SetMeasured

    @cached_property
    def recordings(self) -> list[str]:
        """Names of the recordings, 'E1/D01/L1', in the order of their numbers."""
        return ["/".join(group_name(self.frames, int(members[0]))) for members in groups_of(self.frames)]

    @cached_property
    def layout(self) -> Layout:
        """Who was recorded where; names that a selection has no frames of do not count."""
        environments, e = _occurring(self.frames.environments, self.frames.environment)
        devices, d = _occurring(self.frames.devices, self.frames.device)
        captures, c = _occurring(self.frames.captures, self.frames.capture)
        counts = np.zeros((len(environments), len(devices), len(captures)), dtype=np.int64)
        np.add.at(counts, (e, d, c), 1)
        return Layout(environments, devices, captures, counts)

    @cached_property
    def by_recording(self) -> dict[str, NDArray[np.intp]]:
        """Positions among the measured frames, in time order; recordings without a usable frame are left out."""
        number = self.found.sample.recording
        return {name: own for r, name in enumerate(self.recordings) if len(own := np.flatnonzero(number == r))}

    def change(self, values: NDArray[np.float64]) -> dict[str, float]:
        """Of each recording, the median of its last third less that of its first; values: (N,) of each frame."""
        third = self.found.sample.third
        ends = {name: (own[third[own] == 0], own[third[own] == 2]) for name, own in self.by_recording.items()}
        return {
            name: float(np.median(values[last]) - np.median(values[first]))
            for name, (first, last) in ends.items()
            if len(first) and len(last)
        }

    @cached_property
    def room(self) -> list[PlaceNamed] | None:
        """Devices named by channels alone."""
        channel = self.found.channel
        return None if channel is None else name_devices(self.found, Directions(), channel)

    @cached_property
    def recorded_cfo(self) -> list[PlaceNamed] | None:
        """Devices named by the recorded CFO alone, the mean of the antennas."""
        cfo_hz = self.found.cfo_hz
        return None if cfo_hz is None else name_devices(self.found, Numbers(), cfo_hz.mean(axis=1))

    @cached_property
    def residual_cfo(self) -> list[PlaceNamed] | None:
        """Devices named by the offset that is left in the frames."""
        offset_hz = self.found.offset_hz
        return None if offset_hz is None else name_devices(self.found, Numbers(), offset_hz)


def _occurring(names: tuple[str, ...], column: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """The names that occur in a column, and the column as their numbers."""
    there, number = np.unique(column, return_inverse=True)
    return [names[i] for i in there], number.astype(np.int64)
