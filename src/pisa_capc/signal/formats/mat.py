"""MATLAB files, one per capture, versions 5 and 7.3.

Version 7.3 is HDF5 with the axes reversed and complex numbers as a compound of `real` and `imag`. Arrays are written as
`iq` (T, A, n) and `cfo_hz` (n, A), MATLAB's shapes. Every file is read twice, once to see that all of them are good and
once to convert it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, MissingExtraError
from pisa_capc.data.frames import Frames
from pisa_capc.data.samples import check_samples
from pisa_capc.data.store.dataset import CaptureSpec
from pisa_capc.data.store.files import atomic, fields_of, fill, find_captures, new_folder, reading
from pisa_capc.signal.formats.arrange import DEFAULT_ANTENNAS, Arranged, arrange
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
from pisa_capc.signal.formats.mat5 import check, is_hdf5

PATTERN = "{environment}/{device}/{capture}.mat"
RATES = (20e6, 5.825e9)  # of the paper's set [Hz]; MAT files do not say them
EXPECTED = "a MAT file of version 5 or 7.3"


def plan(source: Path, options: ImportOptions) -> Plan:
    """A folder of MAT files whose paths name environment, device and capture."""
    pattern = options.pattern or PATTERN
    check_unnamed(options, named := fields_of(pattern), f"the pattern {pattern}")
    files: dict[CaptureSpec, Path] = {}
    shapes: dict[CaptureSpec, tuple[int, int]] = {}
    words: list[str] = []
    found = find_captures(source, pattern, options.names(device="D01"))
    look_at({path: path.relative_to(source).as_posix() for path, _ in found if is_hdf5(path)}, EXPECTED)
    for path, names in found:
        iq, _, as_read = read(path, options, path.relative_to(source).as_posix())
        spec = CaptureSpec(names["environment"], names["device"], names["capture"], len(iq))
        files[spec], shapes[spec] = path, (iq.shape[1], iq.shape[2])
        words.append(as_read)
    dataset = described(shapes, options, *RATES)
    assumed = [words[0]] if options.antennas else [words[0], f"{DEFAULT_ANTENNAS} antennas (--antennas)"]
    assumed += assumptions(options, named, RATES)

    def samples(spec: CaptureSpec) -> Samples:
        return read(files[spec], options, files[spec].relative_to(source).as_posix())[:2]

    return Plan(dataset, samples, None, tuple(assumed))


def read(path: Path, options: ImportOptions, where: str) -> Arranged:
    """I/Q and CFO of one file."""
    with reading(where, EXPECTED):
        found = arrange(read_file(path, where), options, where)
    check_samples(found.iq, found.cfo_hz, where)
    return found


def read_file(path: Path, where: str) -> dict[str, NDArray[Any]]:
    """The numeric arrays of one file by name."""
    try:
        from pymatreader import read_mat
    except ImportError as error:
        raise MissingExtraError("pymatreader", "mat", "Reading MAT files") from error
    with reading(where, EXPECTED):
        check(path, where)
        return _arrays(read_mat(path))


def export(frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
    """One MAT file per capture."""
    if options.version not in ("5", "7.3"):
        raise ConfigError(f"MAT version {options.version!r}: expected 5 or 7.3.")
    write = _write_v5 if options.version == "5" else _write_v73
    captures = list(frames.recordings())
    names = fill(options.pattern or PATTERN, [(s.environment, s.device, s.capture) for s, _ in captures])
    new_folder(out)
    for name, (_, part) in zip(names, captures, strict=True):
        arrays: dict[str, NDArray[Any]] = {"iq": part.iq.transpose(2, 1, 0)}
        if (cfo_hz := part.cfo_hz) is not None:
            arrays["cfo_hz"] = cfo_hz
        with atomic(out / name) as temporary:
            write(temporary, arrays)
        done()


def _arrays(values: Mapping[str, Any], prefix: str = "") -> dict[str, NDArray[Any]]:
    """The numeric arrays of a file by name; those of a struct as `struct.field`, a cell of equal arrays as a stack."""
    found: dict[str, NDArray[Any]] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _arrays(value, f"{prefix}{name}.")
        elif isinstance(value, list) and len({np.shape(v) for v in value}) == 1:
            value = np.stack(value)
        elif isinstance(value, int | float | complex):  # what reading makes of an array of one element
            value = np.asarray(value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "cfiu":
            found[prefix + name] = value
    return found


def _write_v5(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    from scipy.io import savemat

    savemat(str(path), dict(arrays), appendmat=False)


def _write_v73(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    header = "MATLAB 7.3 MAT-file, written by pisa-capc"
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            stored = np.ascontiguousarray(array.T)
            if stored.dtype == np.complex64:
                stored = stored.view([("real", np.float32), ("imag", np.float32)])
            data = file.create_dataset(name, data=stored, track_times=False)
            data.attrs["MATLAB_class"] = np.bytes_("single" if array.dtype == np.complex64 else "double")
    with path.open("r+b") as block:  # MATLAB looks for this text, the version 0x0200 and the byte order before the HDF5
        block.write(header.encode().ljust(116) + bytes(8) + b"\x00\x02IM")


@register_format("mat")
class MatFormat(Format):
    """MATLAB files, one per capture."""

    uses = EVERYWHERE | {"pattern", "iq_key", "cfo_key", "samples", "axes", "device"}
    plan = staticmethod(plan)
    export = staticmethod(export)
