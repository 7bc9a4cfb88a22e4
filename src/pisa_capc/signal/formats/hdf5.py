"""The HDF5 layout of LoRa_RFFI: single antenna, `data` rows [I…|Q…], `label` (devices numbered from 1).

A file holds all devices of one environment and capture. Beside the layout's two arrays, export writes `cfo_hz` (n,) and
the devices' names as an attribute of `label`; other readers ignore them, and without them devices are D01, D02, ….
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import Frames
from pisa_capc.data.sources import groups
from pisa_capc.data.store.dataset import CaptureSpec
from pisa_capc.data.store.files import atomic, fields_of, fill, find_captures, new_folder, reading
from pisa_capc.signal.formats.base import (
    EVERYWHERE,
    ExportOptions,
    Format,
    ImportOptions,
    Plan,
    Samples,
    assumptions,
    check_unnamed,
    described,
    register_format,
)
from pisa_capc.signal.formats.look import look_at

PATTERN = "{environment}/{capture}.h5"
RATES = (1e6, 868.1e6)  # of the layout, whose files do not say them [Hz]
EXPECTED = "HDF5 with `data` (frames, 2 × samples) and `label` (frames), as LoRa_RFFI writes it"

Found = dict[CaptureSpec, tuple[Path, NDArray[np.intp]]]


def plan(source: Path, options: ImportOptions) -> Plan:
    """One file, or a folder of files whose paths name environment and capture."""
    if options.antennas not in (None, 1):
        raise ConfigError(f"--antennas {options.antennas}: this layout has one antenna.")
    keys = (options.iq_key or "data", options.cfo_key or "cfo_hz")
    if source.is_file() and options.pattern is not None:
        raise ConfigError(f"--pattern {options.pattern}: {source} is one file. Leave it out, or name the folder.")
    defaults, pattern = options.names(), options.pattern or PATTERN
    named = () if source.is_file() else fields_of(pattern)
    check_unnamed(options, named, f"the pattern {pattern}")
    files = [(source, defaults)] if source.is_file() else find_captures(source, pattern, defaults)
    look_at({path: str(path) for path, _ in files}, EXPECTED)
    found: Found = {}
    shapes: dict[CaptureSpec, tuple[int, int]] = {}
    for path, names in files:
        with reading(path, EXPECTED), h5py.File(path, "r") as file:
            label, devices = _labels(file, path, keys[0])
            for members in groups(label):
                device = devices.get(int(label[members[0]]), f"D{label[members[0]]:02d}")
                spec = CaptureSpec(names["environment"], device, names["capture"], len(members))
                if any(spec.name == other.name for other in found):
                    raise DataError(
                        f"{path}: a second file with {spec.name}. Devices come from `label`; "
                        "tell the files apart by {environment} or {capture} in --pattern."
                    )
                found[spec], shapes[spec] = (path, members), (1, file[keys[0]].shape[1] // 2)
    dataset = described(shapes, replace(options, antennas=1), *RATES)
    return Plan(
        dataset,
        lambda spec: _read(*found[spec], *keys),
        lambda spec, i: f"row {found[spec][1][i]} of /{keys[0]} in {found[spec][0].name}",
        tuple(assumptions(options, (*named, "geometry"), RATES)),
    )


def _labels(file: h5py.File, path: Path, data_key: str) -> tuple[NDArray[np.int64], dict[int, str]]:
    for key in (data_key, "label"):
        if key not in file:
            raise DataError(f"{path}: holds no array /{key}; found {', '.join(file) or 'none'}.")
    shape = file[data_key].shape
    if shape[:1] == (0,):
        raise DataError(f"{path}: /{data_key} {shape} holds no frames. Leave the file out.")
    if len(shape) != 2 or not all(shape) or shape[1] % 2:
        raise DataError(f"{path}: /{data_key} has shape {shape}; expected (frames, 2 × samples), I before Q.")
    if (size := file["label"].size) != shape[0]:
        raise DataError(f"{path}: /label has {size} values; expected {shape[0]}, one per row of /{data_key}.")
    label = np.ravel(file["label"][()])
    if not (label == np.round(label)).all() or label.min() < 1:
        raise DataError(f"{path}: /label holds {label.min()}; expected whole numbers from 1.")
    names = file["label"].attrs.get("devices", [])
    return label.astype(np.int64), {i: str(name) for i, name in enumerate(names, 1)}


def _read(path: Path, rows: NDArray[np.intp], data_key: str, cfo_key: str) -> Samples:
    with reading(path, EXPECTED), h5py.File(path, "r") as file:
        # Devices mostly follow one another, so a block holds little but the rows that are wanted.
        low, high = int(rows[0]), int(rows[-1]) + 1
        in_phase, quadrature = np.split(file[data_key][low:high][rows - low].astype(np.float32), 2, axis=1)
        iq = np.empty(in_phase.shape, dtype=np.complex64)
        iq.real, iq.imag = in_phase, quadrature
        if cfo_key not in file:
            return iq[:, None], None
        if (size := file[cfo_key].size) != file[data_key].shape[0]:
            raise DataError(f"{path}: /{cfo_key} has {size} values; expected {file[data_key].shape[0]}.")
        cfo_hz = np.ravel(file[cfo_key][()]).astype(np.float64)
        return iq[:, None], cfo_hz[rows, None]


def export(frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
    """One file per environment and capture, of one antenna."""
    if frames.antennas > 1 and options.antenna is None:
        raise ConfigError(
            f"this layout holds one antenna, the frames have {frames.antennas}. Choose one with --antenna."
        )
    antenna = options.antenna or 0
    if not 0 <= antenna < frames.antennas:
        raise ConfigError(f"--antenna {antenna}: expected 0 to {frames.antennas - 1}.")
    keys = [str(key) for key in np.unique(frames.capture_key)]
    names = fill(options.pattern or PATTERN, [(k.split("/")[0], "", k.split("/")[1]) for k in keys])
    new_folder(out)
    for key, name in zip(keys, names, strict=True):
        part = frames.select(frames.capture_key == key)
        part = part.select(np.lexsort((part.frame, part.device)))
        with atomic(out / name) as temporary:
            _write(temporary, part, antenna)
        done()


def _write(path: Path, frames: Frames, antenna: int) -> None:
    samples = frames.samples
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", (len(frames), 2 * samples), np.float32, track_times=False)
        for start, piece in zip(range(0, len(frames), 1024), frames.batches(1024), strict=True):
            iq = piece.iq[:, antenna]
            data[start : start + len(piece)] = np.concatenate([iq.real, iq.imag], axis=1)
        label = file.create_dataset("label", data=frames.device + 1, track_times=False)
        label.attrs["devices"] = list(frames.devices)
        if (cfo_hz := frames.cfo_hz) is not None:
            file.create_dataset("cfo_hz", data=cfo_hz[:, antenna], track_times=False)


@register_format("hdf5")
class Hdf5Format(Format):
    """HDF5 files as of LoRa_RFFI."""

    uses = EVERYWHERE | {"pattern", "iq_key", "cfo_key"}
    plan = staticmethod(plan)
    export = staticmethod(export)
