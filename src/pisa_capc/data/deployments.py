"""Deployments: what the captures are like that a calibration meets.

A deployment takes the captures of a target as they are, or draws others from them: larger or smaller, with some devices
more frequent than others or missing, with frames of devices that are not enrolled. Drawing needs the labels, so the
`protocol.Evaluator` draws; the calibration gets only rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, unknown_name

SCORED = ("all", "second-half")
FREQUENCIES = ("dirichlet", "missing", "devices", "bursts", "stays")  # of which a drawn capture has one at most


@dataclass(frozen=True)
class Deployment:
    """Captures as they are, or drawn from them.

    frames: of a drawn capture, about; without it captures are as they are. repeats: captures drawn from each.
    The frequencies of the devices in a drawn capture are equal, unless one of these is given:
        dirichlet  concentration of the distribution that they are drawn from, again for each capture
        missing    share of the devices that are missing, the same in all captures
        devices    how many devices there are, drawn for each capture
        bursts     how many bursts the capture was cut from, each of a device at random: a correlated stream
        stays      devices come and go: each is there from one random time to another, drawn for each capture
    joined: how many captures, one after the other, are taken for one: a receiver that moves, a target of many places.
    unknown: share of frames that are of devices which no model has seen.
    identifiers: whether captures are named; if not, frames come as received and their groups are found.
    scored: all frames, or the second half of each device's frames of a capture. frozen: the calibration is fitted on
    the first half and applied to the second, one frame at a time; otherwise it sees both.
    calibration: the stages that are scored here; all of a run where none is named.
    """

    name: str  # behind the stage in records: paper@missing
    frames: int | None = None
    repeats: int = 1
    dirichlet: float | None = None
    missing: float | None = None
    devices: int | None = None
    bursts: int | None = None
    stays: bool | None = None
    joined: int = 1
    unknown: float = 0.0
    identifiers: bool = True
    scored: str = "all"
    frozen: bool = False
    calibration: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or "@" in self.name:
            raise ConfigError(f"deployments: expected a name without @, found {self.name!r}.")
        if self.scored not in SCORED:
            raise ConfigError(f"{self._where}scored: " + unknown_name("part", self.scored, SCORED))
        for name, (low, high) in {
            "frames": (1, np.inf),
            "repeats": (1, np.inf),
            "dirichlet": (1e-6, np.inf),
            "missing": (0, 1),
            "devices": (1, np.inf),
            "bursts": (1, np.inf),
            "joined": (1, np.inf),
            "unknown": (0, 0.99),
        }.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{self._where}{name}: expected a number from {low:g} to {high:g}, found {value}.")
        drawn = [name for name in FREQUENCIES if getattr(self, name) is not None]
        if len(drawn) > 1:
            raise ConfigError(f"{self._where}{' and '.join(drawn)}: expected one of them.")
        if self.frames is None and (drawn or self.unknown or self.repeats > 1 or self.joined > 1):
            raise ConfigError(f"{self._where}frames: missing. Say how many frames a drawn capture has.")
        if sum((self.frames is not None, not self.identifiers, self.scored != "all")) > 1:
            raise ConfigError(
                f"{self._where}expected one of frames, identifiers: false and scored: second-half, found several."
            )
        if self.frozen and self.scored == "all":
            raise ConfigError(f"{self._where}frozen: needs scored: second-half, as the first half is fitted.")
        if self.is_plain and self.calibration:
            raise ConfigError(f"{self._where}calibration: all stages are scored on the captures as received.")

    @property
    def _where(self) -> str:
        return f"deployments.{self.name}: "

    @property
    def is_plain(self) -> bool:
        """Whether the captures are as they are, with nothing withheld."""
        return self.frames is None and self.identifiers and self.scored == "all"

    @property
    def is_balanced(self) -> bool:
        """Whether named captures hold the enrolled devices about equally often, and no others."""
        drawn = any(getattr(self, name) is not None for name in FREQUENCIES)
        return not drawn and self.joined == 1 and not self.unknown and self.identifiers and self.scored == "all"

    def stage(self, stage: str) -> str:
        """What a stage of inference is called in this deployment: paper, or paper@dirichlet-1."""
        return stage if self.is_plain else f"{stage}@{self.name}"

    def to_json(self) -> dict[str, Any]:
        """The settings that are not left to their defaults; a setting that comes to be changes no other deployment."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    def shares(self, classes: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Frequencies (C,) of the devices in one capture."""
        return draw_shares(classes, rng, **{name: getattr(self, name) for name in FREQUENCIES})


class Drawn(NamedTuple):
    """The frames of a deployment: rows (n,) of the target, then `unknown` (m,), rows of devices that are not enrolled.

    group (n + m,): the capture of each frame, a name or a number.
    """

    rows: NDArray[np.int64]
    unknown: NDArray[np.int64]
    group: NDArray[np.str_] | NDArray[np.int64]


def draw_frames(
    deployment: Deployment,
    label: NDArray[np.int64],
    capture: NDArray[np.str_],
    frame: NDArray[np.int64],
    classes: int,
    unknown_capture: NDArray[np.str_] | None,
    rng: np.random.Generator,
) -> Drawn:
    """The frames of a deployment, of target frames (N,) and of M frames of unknown devices in these captures."""
    nobody = np.zeros(0, dtype=np.int64)
    if not deployment.identifiers:  # as a receiver sees it: capture after capture, the devices in turn
        order = np.lexsort((frame, capture))
        return Drawn(order, nobody, capture[order])
    if deployment.frames is None:
        return Drawn(np.arange(len(label)), nobody, capture)
    fixed = None if deployment.missing is None else deployment.shares(classes, rng)
    if deployment.dirichlet is not None:
        deployment.shares(classes, rng)  # a draw that nothing uses, as when the first records were made
    rows, strange = [], []
    keys = np.unique(capture)
    for k in range(len(keys)):
        here = np.take(keys, range(k, k + deployment.joined), mode="wrap")
        own = np.flatnonzero(np.isin(capture, here))
        there = nobody if unknown_capture is None else np.flatnonzero(np.isin(unknown_capture, here))
        for _ in range(deployment.repeats):
            shares = deployment.shares(classes, rng) if fixed is None else fixed
            rows.append(own[draw_capture(label[own], deployment.frames, shares, rng)])
            if deployment.unknown:
                count = round(len(rows[-1]) * deployment.unknown / (1 - deployment.unknown))
                strange.append(rng.choice(there, min(len(there), count), replace=False))
    groups = [np.repeat(np.arange(len(parts)), [len(part) for part in parts]) for parts in (rows, strange)]
    return Drawn(np.concatenate(rows), np.concatenate(strange) if strange else nobody, np.concatenate(groups))


def draw_shares(
    classes: int,
    rng: np.random.Generator,
    dirichlet: float | None = None,
    missing: float | None = None,
    devices: int | None = None,
    bursts: int | None = None,
    stays: bool | None = None,
) -> NDArray[np.float64]:
    """Class frequencies (C,) of one capture: equal, or as one of these settings of a `Deployment` asks."""
    if dirichlet is not None:
        return rng.dirichlet(np.full(classes, dirichlet))
    if devices is not None:
        shares = np.zeros(classes)
        few = min(devices, classes)
        shares[rng.choice(classes, few, replace=False)] = 1 / few
        return shares
    if bursts is not None:
        lengths = rng.exponential(size=bursts)
        return np.bincount(rng.integers(classes, size=bursts), lengths, classes) / lengths.sum()
    if stays:
        shares = np.abs(np.diff(rng.random((classes, 2)))).ravel()
        return shares / shares.sum()
    shares = np.full(classes, 1.0 / classes)
    if missing is not None:
        count = min(classes - 1, max(1, round(missing * classes)))
        shares[rng.choice(classes, count, replace=False)] = 0.0
    return shares / shares.sum()


def draw_capture(
    label: NDArray[np.int64], size: int, shares: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of a capture with about `size` frames and these class frequencies, none twice.

    A class that has too few frames gives all it has.
    """
    equal = np.ptp(shares) < 1e-12
    counts = np.full(len(shares), -(-size // len(shares))) if equal else rng.multinomial(size, shares)
    rows = []
    for k, count in enumerate(counts.tolist()):
        own = np.flatnonzero(label == k)
        rows.append(rng.choice(own, min(count, len(own)), replace=False))
    return np.concatenate(rows)
