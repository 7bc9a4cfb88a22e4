"""What a format is, and the registry of them: a class each with `plan` (reading) and `export` (writing).

Reading has two steps. `plan` looks at everything and says what the dataset will be, so a bad file is refused before
anything is written; then captures are read and stored one at a time, so memory follows the largest capture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.registry import Registry
from pisa_capc.data.frames import Frames
from pisa_capc.data.geometry import ArrayGeometry, default_geometry
from pisa_capc.data.store.dataset import TIME, CaptureSpec, Dataset
from pisa_capc.data.store.origins import Origin

NAMES = {"environment": "E1", "capture": "L1"}  # of frames of which nothing says where and when
# What every format of this package can be told, beside options of its own; it refuses the rest.
EVERYWHERE = frozenset({"environment", "capture", "sample_rate_hz", "carrier_hz", "geometry", "antennas"})
OPTIONS = {
    "device": "--device-name",
    "sample_rate_hz": "--sample-rate",
    "carrier_hz": "--carrier",
    "geometry": "--array",
    "csi": "--csi-card, --chip, --stream, --phases, --skip-bad, --by-address",
}

Samples = tuple[NDArray[np.complex64], NDArray[np.float64] | None]  # iq (n, A, T) and cfo_hz (n, A)


@dataclass(frozen=True)
class CsiOptions:
    """How channel state is read.

    card: intel, atheros, nexmon, picoscenes or esp32; None: recognised. chip: of Nexmon, where its number is not known.
    stream: the transmit stream that is kept, from 0. phases: 'raw', as the card reports them; 'sanitised', without one
    slope and phase common to all antennas, which is now for a training to do. skip_bad: leave out packets that cannot
    be used, instead of refusing the import. by_address: devices are the senders' addresses in the logs.
    """

    card: str | None = None
    chip: str | None = None
    stream: int = 0
    phases: str = "raw"
    skip_bad: bool = False
    by_address: bool = False


@dataclass(frozen=True)
class ImportOptions:
    """What a foreign file does not say. None means: as the format has it.

    pattern: path of a capture's file under the source folder, with {environment}, {device} and {capture}.
    iq_key, cfo_key: names of the arrays, where they cannot be recognised.
    antennas, samples: shape of a frame. axes: order of an array's axes, n frames, T samples, A antennas, as "nTA".
    environment, capture, device: names for frames whose file and path name none; `unlabelled` is the device of frames
    of unknown origin.
    format: of plain samples, as cs16. waveform: what frames are cut from recordings by, burst with its settings.
    window, hop: in seconds, of windows that are cut from recordings instead.
    """

    pattern: str | None = None
    iq_key: str | None = None
    cfo_key: str | None = None
    antennas: int | None = None
    samples: int | None = None
    axes: str | None = None
    environment: str | None = None
    capture: str | None = None
    sample_rate_hz: float | None = None
    carrier_hz: float | None = None
    geometry: ArrayGeometry | None = None
    device: str | None = None
    csi: CsiOptions | None = None
    format: str | None = None
    waveform: str | None = None
    window: float | None = None
    hop: float | None = None

    def given(self) -> dict[str, Any]:
        """The options that were given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def names(self, device: str = "") -> dict[str, str]:
        """Environment, device and capture of frames that name none."""
        return {
            "environment": self.environment or NAMES["environment"],
            "device": self.device or device,
            "capture": self.capture or NAMES["capture"],
        }


def option_of(name: str) -> str:
    """What a setting of `ImportOptions` is called on the command line."""
    return OPTIONS.get(name, "--" + name.replace("_", "-"))


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
    origins: Callable[[CaptureSpec], Iterable[Origin]] | None = None  # what is known of the frames of a capture


class Format:
    """Base of the formats: `plan` for reading, `export` for writing, or one of them alone.

    uses: settings of `ImportOptions` that it makes use of; None: it does not say. domains: what the samples of frames
    may be that it can write; one that cannot say so is for samples in time.
    """

    name: str
    uses: frozenset[str] | None = None
    domains: tuple[str, ...] = (TIME,)

    def plan(self, source: Path, options: ImportOptions) -> Plan:
        """Look at everything in `source` and say what the dataset will be; nothing is written yet."""
        raise ConfigError(f"format {self.name!r} cannot be read, only written. Use another one.")

    def export(self, frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
        """Write frames to `out`, which must not exist or be an empty folder; `done()` after each capture."""
        raise ConfigError(f"format {self.name!r} cannot be written, only read. Use another one.")


FORMATS: Registry[Format] = Registry("format")
F = TypeVar("F", bound=type[Format])


def register_format(name: str) -> Callable[[F], F]:
    """Make a format known under `name`: a class that is built without arguments."""

    def add(cls: F) -> F:
        FORMATS.add(name, cls())
        FORMATS[name].name = name
        return cls

    return add


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
    if shape[0] > shape[1] and not {"antennas", "axes", "geometry"} & set(options.given()):
        raise DataError(
            f"{first.name}: frames of {shape[0]} antennas and {shape[1]} samples, more antennas than samples. Give the "
            f"order of the axes, as --axes nTA, or --antennas {shape[0]} where it is so."
        )
    if options.antennas not in (None, shape[0]):
        raise ConfigError(f"--antennas {options.antennas}: the frames of {first.name} have {shape[0]}.")
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


def check_unnamed(options: ImportOptions, named: Collection[str], by: str) -> None:
    """Refuse a name for frames that have one already. named: environment, device or capture; by: who names them."""
    for kind in ("environment", "device", "capture"):
        if kind in named and getattr(options, kind) is not None:
            raise ConfigError(f"{option_of(kind)} {getattr(options, kind)}: {by} names it. Leave one of them out.")


def assumptions(options: ImportOptions, known: Collection[str], rates: tuple[float, float]) -> list[str]:
    """What is taken for granted, for people. known: what the source says itself. rates: sample rate, carrier in Hz."""
    said = {*known, *options.given()}
    found = [f"{kind} {name} (--{kind})" for kind, name in NAMES.items() if kind not in said]
    for name, what, value in zip(("sample_rate_hz", "carrier_hz"), ("sample rate", "carrier"), rates, strict=True):
        if name not in said:
            found.append(f"{value / 1e6:g} MHz of {what} ({option_of(name)})")
    return found if "geometry" in said else [*found, "antennas half a wavelength apart (--array)"]
