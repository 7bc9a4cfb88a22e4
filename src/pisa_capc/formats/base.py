"""What a format is, and the registry of them: one module each with `plan` (reading) and `export` (writing).

Reading has two steps. `plan` looks at everything and says what the dataset will be, so a bad file is refused before
anything is written; then captures are read and stored one at a time, so memory follows the largest capture.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pisa_capc.errors import ConfigError, DataError
from pisa_capc.frames import Frames
from pisa_capc.geometry import ArrayGeometry, default_geometry
from pisa_capc.registry import Registry
from pisa_capc.store.dataset import TIME, CaptureSpec, Dataset

MODULES = ("mat", "sigmf", "npz", "hdf5", "csi")

Samples = tuple[NDArray[np.complex64], NDArray[np.float64] | None]  # iq (n, A, T) and cfo_hz (n, A)


@dataclass(frozen=True)
class CsiOptions:
    """How channel state is read.

    card: intel, atheros, nexmon or esp32; None: recognised. chip: of Nexmon, where its number is not known.
    stream: the transmit stream that is kept, from 0. phases: 'sanitised', without timing slope and common phase, which
    are new with every packet and the receiver's own; or 'raw'. skip_bad: leave out packets that cannot be used, instead
    of refusing the import.
    """

    card: str | None = None
    chip: str | None = None
    stream: int = 0
    phases: str = "sanitised"
    skip_bad: bool = False


@dataclass(frozen=True)
class ImportOptions:
    """What a foreign file does not say. None means: as the format has it.

    pattern: path of a capture's file under the source folder, with {environment}, {device} and {capture}.
    iq_key, cfo_key: names of the arrays, where they cannot be recognised.
    antennas, samples: shape of a frame. axes: order of an array's axes, n frames, T samples, A antennas, as "nTA".
    environment, capture, device: names for frames whose file and path name none; `unlabelled` is the device of frames
    of which nobody knows whose they are.
    """

    pattern: str | None = None
    iq_key: str | None = None
    cfo_key: str | None = None
    antennas: int | None = None
    samples: int | None = None
    axes: str | None = None
    environment: str = "E1"
    capture: str = "L1"
    sample_rate_hz: float | None = None
    carrier_hz: float | None = None
    geometry: ArrayGeometry | None = None
    device: str | None = None
    csi: CsiOptions | None = None


@dataclass(frozen=True)
class ExportOptions:
    """How to write. pattern: as for import. version: of MAT files, 5 or 7.3. antenna: the one that HDF5 rows hold."""

    pattern: str | None = None
    version: str = "5"
    antenna: int | None = None


@dataclass(frozen=True)
class Plan:
    """What an import will write, and how to read each capture of it.

    dataset: its provenance is what the format has to add to how the set was made.
    """

    dataset: Dataset
    read: Callable[[CaptureSpec], Samples]
    place: Callable[[CaptureSpec, int], str] | None = None  # where the source has a frame of a capture, for messages
    assumed: tuple[str, ...] = ()  # what the source does not say, with its value
    notes: tuple[str, ...] = ()  # sentences on what is done with what it says


class Format:
    """Base of the formats that plugins bring: `plan` for reading, `export` for writing, or one of them alone."""

    name: str

    @property
    def domains(self) -> tuple[str, ...]:
        """What the samples of frames may be that it can write: one that cannot say so is for samples in time."""
        return (TIME,)

    def plan(self, source: Path, options: ImportOptions) -> Plan:
        """Look at everything in `source` and say what the dataset will be; nothing is written yet."""
        raise ConfigError(f"format {self.name!r} cannot be read, only written. Use another one.")

    def export(self, frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
        """Write frames to `out`, which must not exist or be an empty folder; `done()` after each capture."""
        raise ConfigError(f"format {self.name!r} cannot be written, only read. Use another one.")


class _InModule(Format):
    """A format of this package, imported when it is used: it is slow, and what it needs may be absent."""

    def plan(self, source: Path, options: ImportOptions) -> Plan:
        found: Plan = self._module().plan(source, options)
        return found

    def export(self, frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
        getattr(self._module(), "export", super().export)(frames, out, options, done)

    @property
    def domains(self) -> tuple[str, ...]:
        return getattr(self._module(), "DOMAINS", super().domains)

    def _module(self) -> Any:
        return importlib.import_module(f"pisa_capc.formats.{self.name}")


FORMATS: Registry[Format] = Registry("format")
F = TypeVar("F", bound=type[Format])


def register(name: str) -> Callable[[F], F]:
    """Make a format known under `name`: a class that is built without arguments."""

    def add(cls: F) -> F:
        FORMATS.add(name, cls())
        FORMATS[name].name = name
        return cls

    return add


for _name in MODULES:
    register(_name)(_InModule)


def described(
    captures: dict[CaptureSpec, tuple[int, int]],
    options: ImportOptions,
    sample_rate_hz: float,
    carrier_hz: float,
    domain: str = TIME,
) -> Dataset:
    """The dataset of captures found with their (antennas, samples), which must agree; options go before defaults."""
    first, shape = next(iter(captures.items()))
    for spec, found in captures.items():
        if found != shape:
            raise DataError(
                f"{spec.name}: frames of {found[0]} antennas and {found[1]} samples, {first.name} has "
                f"{shape[0]} and {shape[1]}; expected one shape in a dataset. Import them as two."
            )
    geometry = options.geometry or default_geometry(shape[0])
    if geometry.antennas != shape[0]:
        raise ConfigError(f"geometry: describes {geometry.antennas} antennas, the frames have {shape[0]}.")
    return Dataset(
        geometry,
        sample_rate_hz if options.sample_rate_hz is None else options.sample_rate_hz,
        carrier_hz if options.carrier_hz is None else options.carrier_hz,
        shape[1],
        tuple(sorted(captures, key=lambda c: (c.environment, c.device, c.capture))),
        domain=domain,
    )
