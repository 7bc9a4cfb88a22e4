"""Samples in files of other programs that say what is in them: WAV of receivers, arrays of NumPy, telling names.

WAV: I is the left channel and Q the right one; of several antennas, pairs of channels. SDR#, HDSDR and SDRuno write the
carrier as a 32-bit number at byte 32 of the chunk `auxi`, after two times. Above 4 GB the chunk `ds64` holds the length
(RF64, EBU Tech 3306).
"""

from __future__ import annotations

import re
import struct
import warnings
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from pisa_capc.core.errors import DataError
from pisa_capc.core.quantities import HIGHEST_HZ
from pisa_capc.data.store.files import reading
from pisa_capc.signal.recordings.base import SampleFile
from pisa_capc.signal.recordings.encoding import Encoding

WAV, NPY = ".wav", ".npy"
CHUNKS = 64  # of a WAV file, at most, before its samples
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
CHUNK = struct.Struct("<4sI")
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
GQRX = re.compile(r"gqrx_(\d{8})_(\d{6})_(\d+)_(\d+)_fc")  # date, time, carrier, sample rate; floats
QUANTITY = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([kMG]?)(Hz|sps|)(?![A-Za-z0-9])")


@dataclass(frozen=True)
class ContainerInfo:
    """What is known of a file before its samples; None: it does not say."""

    file: SampleFile | None = None
    sample_rate_hz: float | None = None
    carrier_hz: float | None = None
    time: datetime | None = None
    encoding: Encoding | None = None


def said_by_name(path: Path) -> ContainerInfo:
    """What programs write into the names of their files: gqrx; SDR# and HDSDR; rtl_433.

    >>> said = said_by_name(Path("g001_433.92M_250k.cu8"))
    >>> said.carrier_hz, said.sample_rate_hz
    (433920000.0, 250000.0)
    """
    if (match := GQRX.search(path.name)) and int(match[4]) > 0:
        return ContainerInfo(
            sample_rate_hz=float(match[4]), carrier_hz=float(match[3]), encoding=Encoding.named("cf32")
        )
    rate = carrier = None
    for number, unit, kind in QUANTITY.findall(path.name.rpartition(".")[0]):
        value = float(number) * UNITS[unit]
        if kind == "sps" or (unit == "k" and not kind):
            rate = value
        elif kind == "Hz" or (unit in ("M", "G") and not kind):
            carrier = value
    return ContainerInfo(
        sample_rate_hz=rate if rate and rate < HIGHEST_HZ else None,
        carrier_hz=carrier if carrier and carrier < HIGHEST_HZ else None,
    )


def open_contained(path: Path) -> ContainerInfo:
    """A WAV file or an array of NumPy; what its name says fills what it does not."""
    with reading(path, "a WAV file with I and Q as its channels, or a one-dimensional array of NumPy"):
        own, named = (_wav(path) if path.suffix.lower() == WAV else _npy(path)), said_by_name(path)
    return replace(
        own,
        sample_rate_hz=own.sample_rate_hz or named.sample_rate_hz,
        carrier_hz=own.carrier_hz or named.carrier_hz,
    )


def _wav(path: Path) -> ContainerInfo:
    encoding, channels, rate, carrier, time, long = None, 0, 0, None, None, None
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(12)
        if len(head) < 12 or head[:4] not in (b"RIFF", b"RF64", b"BW64") or head[8:] != b"WAVE":
            raise DataError(f"{path}: is no WAV file: it begins with {head[:4]!r}, expected RIFF. Give --format.")
        for _ in range(CHUNKS):
            if len(header := file.read(CHUNK.size)) < CHUNK.size:
                break
            name, length = CHUNK.unpack(header)
            at = file.tell()
            if name == b"data":
                if encoding is None:
                    break
                return _wav_samples(
                    path, encoding, channels, at, long or length, size, ContainerInfo(None, rate, carrier, time)
                )
            content = file.read(min(length, 1024))
            if name == b"fmt ":
                encoding, channels, rate = _wav_format(path, content)
            elif name == b"ds64":
                long = struct.unpack_from("<Q", content, 8)[0]
            elif name == b"auxi" and len(content) >= 36:
                carrier, time = float(struct.unpack_from("<I", content, 32)[0]) or None, _system_time(content)
            file.seek(at + length + length % 2)
    raise DataError(f"{path}: a WAV file without samples: it has no chunk `data` behind `fmt `. It is cut off.")


def _wav_format(path: Path, content: bytes) -> tuple[Encoding, int, int]:
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", content)
    if kind == EXTENSIBLE:
        kind = struct.unpack_from("<H", content, 24)[0]
    if channels < 2 or channels % 2:
        raise DataError(
            f"{path}: has {channels} channel{'s' * (channels != 1)}; expected two, I and Q. It holds real samples, "
            "as of sound; record I/Q in your receiver's program."
        )
    letter = {(PCM, 8): "u", (PCM, 16): "i", (PCM, 32): "i", (FLOAT, 32): "f", (FLOAT, 64): "f"}.get((kind, bits))
    if letter is None:
        raise DataError(
            f"{path}: samples of kind {kind} with {bits} bits; expected whole numbers of 8, 16 or 32 bits, or floats. "
            "Convert it, as by sox IN.wav -b 16 OUT.wav."
        )
    return Encoding(letter, bits), channels // 2, rate


def _wav_samples(
    path: Path, encoding: Encoding, channels: int, at: int, length: int, size: int, said: ContainerInfo
) -> ContainerInfo:
    there = size - at
    if length > there and length < 0xFFFFFF00:  # receivers write this while they record
        warnings.warn(f"{path}: announces {length:,} bytes of samples and holds {there:,}: cut off.", stacklevel=2)
    count = min(length, there) // (channels * encoding.sample_bytes)
    if count < 1:
        raise DataError(f"{path}: a WAV file without samples. It is empty, or cut off.")
    return replace(said, file=SampleFile(path, encoding, channels, count, at), encoding=encoding)


def _system_time(content: bytes) -> datetime | None:
    year, month, _, day, hour, minute, second, thousandth = struct.unpack_from("<8H", content)
    try:
        return datetime(year, month, day, hour, minute, second, 1000 * thousandth, tzinfo=UTC)
    except ValueError:
        return None


def _npy(path: Path) -> ContainerInfo:
    """One antenna: complex (T,), or I and Q side by side, (T, 2)."""
    shape, fortran, dtype, at = npy_header(path)
    pairs = dtype.kind in "iuf" and len(shape) == 2 and shape[1] == 2 and not fortran
    if not pairs and not (dtype.kind == "c" and len(shape) == 1):
        raise DataError(
            f"{path}: an array {shape} of {dtype}; as a recording expected complex (samples,), or (samples, 2) "
            "of I and Q. Arrays of frames are for `pisa import iq`."
        )
    order, bits = {">": "_be"}.get(dtype.byteorder, ""), dtype.itemsize * (4 if dtype.kind == "c" else 8)
    encoding = Encoding.named(f"c{dtype.kind if pairs else 'f'}{bits}{order}")
    if not shape[0]:
        raise DataError(f"{path}: an array {shape} without samples. It is empty.")
    return ContainerInfo(SampleFile(path, encoding, 1, shape[0], at), encoding=encoding)


def npy_header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, Fortran order and type of an array, and where it begins; the file must hold it. Nothing is unpickled."""
    with reading(path, "an array of NumPy"), path.open("rb") as file:
        if not path.stat().st_size:
            raise DataError(f"{path}: is empty; expected an array of numpy.save. Write it again or leave it out.")
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(npy.read_magic(file))
        if read is None:
            raise DataError(f"{path}: of a version of NumPy's format that is not read; expected 1.0 or 2.0.")
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise DataError(f"{path}: holds Python objects; expected numbers. Nothing is unpickled here.")
        size = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
        if any(n < 0 for n in shape) or size != path.stat().st_size - file.tell():
            found = path.stat().st_size - file.tell()
            raise DataError(f"{path}: {shape} of {dtype} needs {size:,} bytes; it has {found:,}. It is cut off.")
        return shape, fortran, dtype, file.tell()
