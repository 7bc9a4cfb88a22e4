"""The description of a dataset: `dataset.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.quantities import frequency
from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.data.store.files import cannot_be_read, read_json, remove_stale, write_text_atomic
from pisa_capc.data.store.seal import sealed, unsealed

SCHEMA = 1
TIME, SUBCARRIERS = DOMAINS = ("time", "subcarriers")
AS_REPORTED, COMMON, PER_ANTENNA = FRONTS = ("none", "common", "antenna")
UNKNOWN_FRONT = (
    "one part was imported by an earlier version, and does not say which phases were taken off its channel state. "
    "Import it again from the original files."
)
LONGEST_NAME = 240  # bytes; file systems have 255, of which endings take some
UNLABELLED = "unlabelled"  # the device of frames of which nobody knows whose they are


@dataclass(frozen=True)
class Subcarriers:
    """What the values of channel state mean.

    numbers: (K,) of the subcarriers, ascending; 0 is the carrier. empty: those that never hold anything.
    front: what has been taken off: nothing ('none'), one phase and slope common to all antennas ('common'), or gain,
    phase and slope of each antenna ('antenna').
    """

    numbers: tuple[int, ...]
    empty: tuple[int, ...] = ()
    spacing_hz: float = 312.5e3
    front: str = AS_REPORTED

    def __post_init__(self) -> None:
        if not self.numbers or list(self.numbers) != sorted(set(self.numbers)):
            raise DataError(f"subcarriers {_brief(self.numbers)}: expected different numbers in ascending order.")
        if unknown := set(self.empty) - set(self.numbers):
            raise DataError(f"empty subcarriers {_brief(sorted(unknown))}: are not among the subcarriers.")
        if self.front not in FRONTS:
            raise DataError(f"front {self.front!r}: expected {', '.join(FRONTS)}.")
        frequency(self.spacing_hz, "subcarrier spacing", DataError)

    @property
    def used(self) -> tuple[int, ...]:
        return tuple(number for number in self.numbers if number not in self.empty)

    def first(self, count: int) -> Subcarriers:
        """Of frames that are cut to their first values."""
        kept = self.numbers[:count]
        return replace(self, numbers=kept, empty=tuple(number for number in self.empty if number in kept))

    def to_json(self) -> dict[str, Any]:
        lists = {"numbers": list(self.numbers), "empty": list(self.empty)}
        return {**lists, "spacing_hz": self.spacing_hz, "front": self.front}

    @classmethod
    def from_json(cls, value: Any) -> Subcarriers:
        """Raises what `Dataset.from_json` and `load_model` catch."""
        numbers, empty = (tuple(int(number) for number in value[key]) for key in ("numbers", "empty"))
        return cls(numbers, empty, float(value["spacing_hz"]), str(value["front"]))


def _brief(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "") if numbers else "none"


@dataclass(frozen=True)
class CaptureSpec:
    """One capture file: who transmits where, and how many frames."""

    environment: str
    device: str
    capture: str
    frames: int

    def __post_init__(self) -> None:
        for kind in ("environment", "device", "capture"):
            name = getattr(self, kind)
            # Names become folders and files, and may come from somebody else's metadata.
            if not name or name.startswith(".") or any(c in '/\\:*?"<>|' or not c.isprintable() for c in name):
                raise DataError(f"{kind} {name!r}: expected a name that can be a file name.")
            if len(name.encode()) > LONGEST_NAME:
                raise DataError(
                    f"{kind} {name[:20]}…: {len(name.encode())} bytes long; expected at most {LONGEST_NAME}, "
                    "because it becomes the name of a file. Shorten it."
                )
        if self.frames < 1:
            raise DataError(f"{self.name}: announces {self.frames} frames; expected at least one.")

    @property
    def path(self) -> str:
        return f"{self.environment}/{self.device}/{self.capture}.h5"

    @property
    def name(self) -> str:
        return f"{self.environment}/{self.device}/{self.capture}"


@dataclass(frozen=True)
class Dataset:
    """The content of `dataset.json`: everything about a set but its samples.

    provenance: how the set was made; two sets with equal provenance hold equal samples.
    domain: what the samples of a frame are: of a signal over time, or of a channel over subcarriers. The sample rate of
    the latter is the bandwidth. subcarriers: of channel state; None where earlier versions imported it.
    """

    geometry: ArrayGeometry
    sample_rate_hz: float
    carrier_hz: float
    samples: int
    captures: tuple[CaptureSpec, ...]
    provenance: dict[str, Any] = field(default_factory=dict)
    domain: str = TIME
    subcarriers: Subcarriers | None = None

    def __post_init__(self) -> None:
        names = [c.name for c in self.captures]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{twice}: two captures of this name; expected one file per environment, device, capture.")
        frequency(self.sample_rate_hz, "sample rate", DataError)
        frequency(self.carrier_hz, "carrier", DataError)
        if self.samples < 1:
            raise DataError(f"{self.samples} samples: expected at least one.")
        if self.domain not in DOMAINS:
            raise DataError(f"domain {self.domain!r}: expected {' or '.join(DOMAINS)}.")
        if self.subcarriers is not None and (self.domain, len(self.subcarriers.numbers)) != (SUBCARRIERS, self.samples):
            raise DataError(
                f"{len(self.subcarriers.numbers)} subcarriers are named for frames of {self.samples} values over "
                f"{self.domain}; expected one for each value of channel state."
            )

    @property
    def is_simulated(self) -> bool:
        """Whether `pisa simulate` made the set, or the one that it is a part of."""
        made = self.provenance
        while isinstance(made.get("of"), dict):
            made = made["of"]
        return str(made.get("command")).startswith("pisa simulate")

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "antennas": self.geometry.antennas,
            "geometry": self.geometry.to_json(),
            "sample_rate_hz": self.sample_rate_hz,
            "carrier_hz": self.carrier_hz,
            "samples": self.samples,
            "captures": [vars(c) for c in self.captures],
            "provenance": self.provenance,
            **({} if self.domain == TIME else {"domain": self.domain}),  # sets of earlier versions have none
            **({} if self.subcarriers is None else {"subcarriers": self.subcarriers.to_json()}),
        }

    @classmethod
    def from_json(cls, value: Any, where: str) -> Dataset:
        try:
            if value["schema"] != SCHEMA:
                raise DataError(f"{where}: written with schema {value['schema']}; this version reads {SCHEMA}.")
            return cls(
                ArrayGeometry.from_json(value["geometry"]),
                float(value["sample_rate_hz"]),
                float(value["carrier_hz"]),
                int(value["samples"]),
                tuple(
                    CaptureSpec(str(c["environment"]), str(c["device"]), str(c["capture"]), int(c["frames"]))
                    for c in value["captures"]
                ),
                dict(value["provenance"]),
                str(value.get("domain", TIME)),
                Subcarriers.from_json(value["subcarriers"]) if "subcarriers" in value else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ConfigError) as error:
            raise DataError(f"{where}: not a pisa dataset description ({type(error).__name__}: {error}).") from error

    @classmethod
    def read(cls, folder: Path) -> Dataset:
        path = folder / "dataset.json"
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder. Expected a dataset made by `pisa simulate` or `pisa import`.")
        if not path.is_file():
            raise DataError(
                f"{folder}: holds no dataset.json. Expected a dataset made by `pisa simulate` or `pisa import`."
            )
        try:
            value = unsealed(read_json(path), path)
        except OSError as error:
            raise cannot_be_read(path, error) from error
        except ValueError as error:
            raise DataError(f"{path}: cannot be read ({error}). Make the dataset again.") from error
        return cls.from_json(value, str(path))

    def missing(self, folder: Path) -> list[CaptureSpec]:
        """Captures that are listed and not yet written."""
        return [c for c in self.captures if not (folder / c.path).is_file()]

    def create(self, folder: Path) -> None:
        """Start a dataset in `folder`, or go on with the same one; refuse a folder that holds anything else."""
        remove_stale(folder)
        if (folder / "dataset.json").exists():
            found = Dataset.read(folder)
            if found.to_json() != json.loads(json.dumps(self.to_json())):
                raise DataError(
                    f"{folder}: already holds another dataset ({describe(found)}). Choose another --out, or remove it."
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DataError(f"{folder}: exists and is not a dataset. Choose another --out, or remove it.")
        else:
            self.write(folder)

    def write(self, folder: Path) -> None:
        """Write the description, replacing an older one."""
        write_text_atomic(folder / "dataset.json", json.dumps(sealed(self.to_json()), indent=1))

    def extended(self, more: Dataset, where: Path) -> Dataset:
        """This dataset with the captures of another one added; unchanged if they were added before.

        Both have one array, rates and length of frames. The provenance of what was added stands in the list `added`.
        """
        added = list(self.provenance.get("added", []))
        own = {"captures": [c.name for c in more.captures], **json.loads(json.dumps(more.provenance))}
        if own in added:
            return self
        for name in ("geometry", "sample_rate_hz", "carrier_hz", "samples"):
            here, there = getattr(self, name), getattr(more, name)
            if here != there:
                raise DataError(
                    f"{where}: its {name} is {here}; that of the added captures is {there}. Write two datasets."
                )
        kept = joined_subcarriers(self.subcarriers, more.subcarriers, str(where))
        if twice := sorted({c.name for c in self.captures} & {c.name for c in more.captures}):
            raise DataError(
                f"{where}: has {twice[0]} already. Give the added captures another --environment or --capture, or a "
                "--pattern that tells them apart."
            )
        captures = tuple(sorted([*self.captures, *more.captures], key=lambda c: (c.environment, c.device, c.capture)))
        provenance = {**self.provenance, "added": [*added, own]}
        return replace(self, captures=captures, provenance=provenance, subcarriers=kept)


def joined_subcarriers(one: Subcarriers | None, other: Subcarriers | None, where: str) -> Subcarriers | None:
    """The subcarriers of two sets that are joined: those empty in both are empty. Different front ends are refused."""
    if one is None or other is None or one == other:
        if one != other:
            raise DataError(f"{where}: {UNKNOWN_FRONT}")
        return one
    alike = replace(one, empty=tuple(sorted({*one.empty} & {*other.empty})))
    if replace(other, empty=alike.empty) == alike:
        return alike
    if one.front != other.front:
        raise DataError(
            f"{where}: one part holds channel state with front end {one.front!r}, the other with {other.front!r}. "
            "Import both from the original files, without --phases."
        )
    raise DataError(
        f"{where}: the parts hold different subcarriers, {_brief(one.numbers)} and {_brief(other.numbers)}. Expected "
        "recordings of one card at one bandwidth."
    )


def describe(dataset: Dataset) -> str:
    """One line for people: what the set is."""
    frames = sum(c.frames for c in dataset.captures)
    made = dataset.provenance.get("command", "unknown origin")
    return f"{made}, {len(dataset.captures)} captures, {frames} frames"
