"""Is a set fit to be trained on?"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from threadpoolctl import threadpool_limits

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.progress import progress
from pisa_capc.data.frames import Frames, check_labelled, load
from pisa_capc.evidence.checks.base import CHECKS, Finding, Verdict
from pisa_capc.evidence.checks.evidence import Evidence
from pisa_capc.evidence.checks.measure import draw_sample, measure

WORST_FIRST = (Verdict.FAULT, Verdict.NOTE, Verdict.FINE)


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
        verdict = "Fit to be trained on" if self.fit else "Not fit to be trained on as it is"
        return (
            f"{verdict}. Faults: {count[Verdict.FAULT]}, worth knowing: {count[Verdict.NOTE]}, fine: "
            f"{count[Verdict.FINE]}. Channels by {self.evidence.found.about}."
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
    frames: Annotated[int, "Frames looked at of each recording, in pairs, from its beginning to its end."] = 256,
    seed: Annotated[int, "Of the projections by which copies are found."] = 2026,
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
