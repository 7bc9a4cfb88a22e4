"""Where the frames of a dataset come from: `frames.csv`, a row per frame.

Its SHA-256 is part of the dataset's provenance, so that it can be told from another.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.dataset import Dataset
from pisa_capc.data.store.files import reading, write_text_atomic

NAME = "frames.csv"
PROVENANCE = "frames_sha256"


@dataclass(frozen=True)
class Origin:
    """A frame, by its place in the dataset, and the recording it was cut from.

    start: its first sample there; time_s: that in seconds; time: that by the clock (ISO 8601), or nothing.
    transmitter: the address that it claims, or nothing. cfo_hz, snr_db: in the median of the antennas, and on the best.
    samples: of the recording, that the frame lasts. bandwidth_hz, channel_hz: of a burst. NaN: not known.
    """

    environment: str
    device: str
    capture: str
    frame: int
    recording: str
    start: int
    time_s: float
    time: str
    quality: float
    transmitter: str
    cfo_hz: float = math.nan
    snr_db: float = math.nan
    samples: float = math.nan
    bandwidth_hz: float = math.nan
    channel_hz: float = math.nan


def origins_text(origins: Iterable[Origin]) -> str:
    """The content of the file."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    names = [field.name for field in fields(Origin)]
    table.writerow(names)
    for origin in origins:
        table.writerow([getattr(origin, name) for name in names])
    return out.getvalue()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_origins(folder: Path, text: str) -> None:
    write_text_atomic(folder / NAME, text)


def read_origins(folder: str | Path) -> list[Origin] | None:
    """A row per frame, captures in the order of the dataset; None for a dataset whose frames were not cut here."""
    folder = Path(folder)
    expected = Dataset.read(folder).provenance.get(PROVENANCE)
    if expected is None:
        return None
    path = folder / NAME
    with reading(path, "where the frames of this dataset come from; detect them again"):
        text = path.read_text(encoding="utf-8")
        if digest(text) != expected:
            raise DataError(f"{path}: has changed since it was written. Detect the frames again.")
        kinds: dict[Any, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
        columns = [(field.name, kinds[field.type]) for field in fields(Origin)]
        rows = csv.DictReader(io.StringIO(text))  # those of before have fewer columns
        return [Origin(**{name: kind(row[name]) for name, kind in columns if name in row}) for row in rows]
