"""What a check is, what it looks at, and how all of them are run.

To add one: a function in one of the files beside this with `@register_check("name")`, which takes the evidence and
returns a finding. Table, JSON, report and exit code follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.progress import progress
from pisa_capc.core.registry import Registry
from pisa_capc.data.descriptors import cfo_descriptors
from pisa_capc.data.frames import Frames, check_labelled, group_name, groups_of, load
from pisa_capc.evidence.checks.measure import SetMeasured, draw_sample, measure
from pisa_capc.evidence.checks.naming import Directions, Numbers, PlaceNaming, Points, name_devices


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
    def room(self) -> list[PlaceNaming] | None:
        """Devices identified by channels alone."""
        channel = self.found.channel
        return None if channel is None else name_devices(self.found, Directions(), channel)

    @cached_property
    def recorded_cfo(self) -> list[PlaceNaming] | None:
        """Devices identified by the recorded CFO alone, the mean of the antennas."""
        cfo_hz = self.found.cfo_hz
        return None if cfo_hz is None else name_devices(self.found, Numbers(), cfo_hz.mean(axis=1))

    @cached_property
    def descriptor(self) -> list[PlaceNaming] | None:
        """Devices identified by the CFO descriptor alone, each of its numbers in units of its spread over the set."""
        if self.found.cfo_hz is None or (found := cfo_descriptors(self.found.frames.unlabelled())) is None:
            return None
        spread = found.std(axis=0)
        return name_devices(self.found, Points(), (found / np.where(spread > 0, spread, 1)).astype(np.float64))

    @cached_property
    def residual_cfo(self) -> list[PlaceNaming] | None:
        """Devices identified by the offset left in the frames."""
        offset_hz = self.found.offset_hz
        return None if offset_hz is None else name_devices(self.found, Numbers(), offset_hz)


def _occurring(names: tuple[str, ...], column: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """The names that occur in a column, and the column as their numbers."""
    there, number = np.unique(column, return_inverse=True)
    return [names[i] for i in there], number.astype(np.int64)


class Verdict(StrEnum):
    """fault: training on this set gives wrong or untestable results. note: keep it in mind when you read scores.

    skipped: there was nothing to look at, so it may be either.
    """

    SKIPPED = "not looked at"
    FINE = "fine"
    NOTE = "worth knowing"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """found: a sentence with the numbers. advice: what to do about it, empty where there is nothing to do."""

    verdict: Verdict
    found: str
    advice: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


CheckFunction = Callable[["Evidence"], Finding]
CHECKS: Registry[CheckFunction] = Registry("check")


def register_check(name: str) -> Callable[[CheckFunction], CheckFunction]:
    """Make a check known under `name`: a function that takes the evidence and returns a finding."""
    return CHECKS.register(name)


def named(names: list[str], most: int = 4) -> str:
    """'E1/L1, E2/L1, … (9 in all)'."""
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed}, … ({len(names)} in all)"


WORST_FIRST = (Verdict.FAULT, Verdict.NOTE, Verdict.FINE, Verdict.SKIPPED)


@dataclass(frozen=True)
class Checked:
    """findings: by name of the check, the worst first. evidence: what they rest on, for pictures."""

    findings: dict[str, Finding]
    evidence: Evidence = field(repr=False)

    @property
    def fit(self) -> bool:
        """Whether nothing found is a fault."""
        return all(finding.verdict != Verdict.FAULT for finding in self.findings.values())

    @property
    def summary(self) -> str:
        count = {v: sum(finding.verdict == v for finding in self.findings.values()) for v in WORST_FIRST}
        skipped = f", not looked at: {count[Verdict.SKIPPED]}" if count[Verdict.SKIPPED] else ""
        verdict = "Fit to be trained on" if self.fit else "Not fit to be trained on as it is"
        return (
            f"{verdict}. Faults: {count[Verdict.FAULT]}, worth knowing: {count[Verdict.NOTE]}, fine: "
            f"{count[Verdict.FINE]}{skipped}. Channels by {self.evidence.found.about}."
        )

    def to_json(self) -> dict[str, Any]:
        looked = len(self.evidence.found.usable)
        return {
            "fit": self.fit,
            "frames": len(self.evidence.frames),
            "frames_looked_at": looked,
            "channels_by": self.evidence.found.about,
            "findings": {name: finding.to_json() for name, finding in self.findings.items()},
        }


def check(
    data: Annotated[str | Path, "A dataset made by `pisa simulate`, `pisa import` or `pisa detect`."],
    *,
    frames: Annotated[int, "Frames of each recording: those looked at, in pairs, from its beginning to its end."] = 256,
    seed: Annotated[int, "Seed: of the projections by which copies are found."] = 2026,
    show_progress: bool = True,
) -> Checked:
    """Look for what would spoil training or its scores; nothing is trained, and the set is not changed."""
    return check_frames(load(data), frames, seed, show_progress)


def check_frames(data: Frames, frames: int = 256, seed: int = 2026, show_progress: bool = False) -> Checked:
    """The same of frames that are open."""
    if frames < 6:
        raise ConfigError(f"frames: expected 6 or more of each recording, found {frames}.")
    if not len(data):
        raise DataError("check: there are no frames.")
    check_labelled(data)
    sample = draw_sample(data, frames)
    with threadpool_limits(1), progress("check", total=len(sample.position), show=show_progress) as bar:
        evidence = Evidence(data, measure(data, sample, seed, bar.advance))
        if not len(evidence.found.frames):
            raise DataError(f"check: none of {len(sample.position):,} frames holds a finite signal.")
        found = {name: function(evidence) for name, function in CHECKS.parts().items()}
    ordered = sorted(found, key=lambda name: WORST_FIRST.index(found[name].verdict))
    return Checked({name: found[name] for name in ordered}, evidence)
