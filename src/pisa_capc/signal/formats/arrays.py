"""Arrays of I/Q in single files, `.npy` and `.mat`: frames, or a recording where there is one frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.files import reading
from pisa_capc.signal.formats.arrange import arrange, check_axes
from pisa_capc.signal.formats.base import ImportOptions
from pisa_capc.signal.formats.look import look_at
from pisa_capc.signal.formats.mat import EXPECTED, read_file
from pisa_capc.signal.formats.mat5 import is_hdf5
from pisa_capc.signal.recordings.containers import NPY, npy_header
from pisa_capc.signal.recordings.encoding import Encoding

MAT = ".mat"
RATES = ("samplerate", "fs", "samplingrate", "samplefrequency", "samplingfrequency")
CARRIERS = ("carrier", "cntrfreq", "centerfreq", "centerfrequency", "centrefrequency", "fc", "frequency")


@dataclass(frozen=True)
class FrameArray:
    """Frames (n, A, T) of a file. words: which array was read, and how; None: as it lies there.

    sample_rate_hz, carrier_hz: where the file says them.
    """

    frames: NDArray[Any]
    words: str
    sample_rate_hz: float | None = None
    carrier_hz: float | None = None

    def complex(self, which: Any) -> NDArray[np.complex64]:
        """The frames at the given positions; integers at a full scale of one."""
        chosen = self.frames[which]
        if chosen.dtype.kind == "c":
            return np.ascontiguousarray(chosen, dtype=np.complex64)
        parts = np.ascontiguousarray(chosen).astype(np.float32)  # (…, T, 2)
        if self.frames.dtype.kind != "f":
            encoding = Encoding(self.frames.dtype.kind, 8 * self.frames.dtype.itemsize)
            parts = parts * np.float32(encoding.step) - (encoding.kind == "u")
        return parts.view(np.complex64)[..., 0]


def open_array(path: Path, options: ImportOptions) -> FrameArray:
    """The frames of a file, mapped where it can be."""
    return _npy(path, options) if path.suffix.lower() == NPY else _mat(path, options)


def _npy(path: Path, options: ImportOptions) -> FrameArray:
    shape, fortran, dtype, at = npy_header(path)
    if not all(shape):
        raise DataError(f"{path}: an array {shape} without samples. It is empty.")
    if dtype.kind not in "ciuf" or not shape or len(shape) > 4 or (dtype.kind in "iu" and dtype.itemsize > 4):
        raise DataError(
            f"{path}: an array {shape} of {dtype}; expected I/Q: complex, or I and Q along one axis of two."
        )
    with reading(path, "an array of NumPy"):
        array: NDArray[Any] = np.memmap(path, dtype, "r", at, shape, "F" if fortran else "C")
    if dtype.kind != "c":
        array = _pairs(array, path)
    frames, letters = _frames(array, array.ndim - (dtype.kind != "c"), options, path)
    return FrameArray(frames, f"{shape} of {dtype} as {letters} (--axes)")


def _pairs(array: NDArray[Any], path: Path) -> NDArray[Any]:
    """(…, 2): I and Q along the last axis, the one before it, or in turn."""
    if array.ndim > 1 and array.shape[-1] == 2:
        return array
    if array.ndim > 1 and array.shape[-2] == 2:
        return array.swapaxes(-1, -2)
    if array.ndim == 1 and len(array) % 2 == 0:
        return array.reshape(-1, 2)
    raise DataError(
        f"{path}: real numbers {array.shape}; expected I and Q in turn, or along an axis of two. Store complex numbers."
    )


def _frames(array: NDArray[Any], axes: int, options: ImportOptions, path: Path) -> tuple[NDArray[Any], str]:
    """(n, A, T[, 2]) of an array with 1, 2 or 3 axes before that of I and Q, and which axes these are."""
    check_axes(options.axes)
    antennas = options.antennas or 1
    letters = "T" if axes == 1 else "nT" if antennas == 1 else "AT"
    if axes == 3:
        letters = options.axes or "nAT"
        if options.axes is None and options.antennas is not None and array.shape[1] != antennas == array.shape[2]:
            letters = "nTA"
    elif axes == 2 and antennas > 1 and array.shape[0] != antennas == array.shape[1]:
        letters = "TA"
    elif options.axes is not None and axes == 2:
        letters = "".join(c for c in options.axes if c != ("A" if antennas == 1 else "n"))
    if axes > 3:
        raise DataError(f"{path}: an array {array.shape}; expected (T,), (n, T) or (n, A, T) of I/Q.")
    whole = array.reshape(*array.shape[:axes], *[1] * (3 - axes), *array.shape[axes:])
    order = [*letters, *(c for c in "nAT" if c not in letters)]
    frames = whole.transpose(*(order.index(c) for c in "nAT"), *range(3, whole.ndim))
    if options.antennas is not None and frames.shape[1] != antennas:
        raise DataError(
            f"{path}: {array.shape} as {letters} has {frames.shape[1]} antennas, --antennas says {antennas}. "
            "Correct it, or give --axes."
        )
    return frames, letters


def _mat(path: Path, options: ImportOptions) -> FrameArray:
    with reading(path, EXPECTED):
        look_at({path: str(path)} if is_hdf5(path) else {}, EXPECTED)
        arrays = read_file(path, str(path))
        samples = {name: value for name, value in arrays.items() if value.dtype.kind == "c"}
        found = arrange(samples or arrays, replace(options, antennas=options.antennas or 1), str(path))
    words = found.words.rpartition(",")[0]
    return FrameArray(found.iq, words, _number(arrays, RATES), _number(arrays, CARRIERS))


def _number(arrays: Mapping[str, NDArray[Any]], names: tuple[str, ...]) -> float | None:
    """A frequency that a file has under one of these names, whatever its capitals and the struct it is in."""
    for name, value in arrays.items():
        own = name.rpartition(".")[2].lower().replace("_", "").removesuffix("hz")
        if own in names and value.size == 1 and value.dtype.kind in "iuf":
            number = float(value.item())
            if math.isfinite(number) and number > 0:
                return number
    return None
