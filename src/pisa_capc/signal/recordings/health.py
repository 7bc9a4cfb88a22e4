"""Whether samples can come from a receiver: checks before a recording is used, and while it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.signal.recordings.base import About, Annotation, FileRecording, Recording, SampleFile
from pisa_capc.signal.recordings.encoding import Encoding

LOOKS, LOOK = 8, 4096  # pieces of a file, and samples of each, by which it is judged
LOUD, QUIETER = 0.3, 0.2  # rms of noise that fills the range; of its part that another reading leaves
FLOATS = (1e-20, 1e9)  # magnitudes that somebody's units may give
ABSURD = 0.05  # part of floats beyond them, from which they are none
LARGE, MANY = 3, 0.3  # of the upper bytes of 16 bits: magnitude, and part of them that must have it to be judged
GATHERED = 0.5  # |mean exp(2πi b/256)| of lower bytes b, which is zero where they take any value
FEWEST = 64  # samples that anything can be said of
ALIGNED = 16  # samples, on which every encoding begins anew
READINGS = tuple(map(Encoding.named, ("cu8", "cs8", "cs16", "cs16_be", "cf32", "cf32_be", "cf64")))
TOO_LARGE = 1e18  # magnitudes whose squares are no numbers are none either
CLIPPED, AT_LEAST = 1e-4, 16  # part of an antenna's samples at full scale from which it is said, and their number
SOME = 16  # of so many samples one tells the power of integers
DEAD = 1e-6  # power of an antenna relative to the strongest
LOOK_BYTES = 4096  # of a file or stream by which it is told from what holds no samples
OTHERS = {
    b"\x89PNG\r\n\x1a\n": "a PNG picture",
    b"\xff\xd8\xff\xe0": "a JPEG picture",
    b"\xff\xd8\xff\xe1": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a ZIP archive (as .npz)",
    b"\x1f\x8b\x08": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"\x7fELF": "a program",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"MATLAB 5.0": "a MAT file",
    b"\x93NUMPY": "an array of NumPy",
    b"SQLite format 3": "a database",
}


def check_is_samples(head: bytes, name: str) -> None:
    """Refuse what holds no samples by its first bytes: text, metadata, pictures, archives, which any format would read.

    >>> check_is_samples(b'{"global": {"core:datatype": "cf32_le"}}', "roof.json")
    Traceback (most recent call last):
    pisa_capc.core.errors.DataError: roof.json: is text; expected samples. Give the file that holds them.
    """
    found = next((what for magic, what in OTHERS.items() if head.startswith(magic)), None)
    if found is None and head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        found = "a WAV file, whose header is no sample"
    if found is None and _is_text(head):
        found = "text"
    if found is not None:
        raise DataError(f"{name}: is {found}; expected samples. Give the file that holds them.")


def _is_text(head: bytes) -> bool:
    """Printable, of many characters, and with words: samples that repeat one value may be printable as well."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not a character that was cut
            return False
        text = head[: error.start].decode("utf-8")
    return len(set(text)) > 8 and any(c.isspace() for c in text) and all(c.isprintable() or c.isspace() for c in text)


def check_plausible(file: SampleFile, trusted: bool = False) -> None:
    """Refuse samples that make no sense as they are read, and say what they look like; trusted: warn alone.

    Integers with their bytes swapped, of another size or with the wrong sign fill the whole range as noise does; read
    as they were meant they are small. Numbers taken for floats have magnitudes of any power of ten.
    """
    if file.length * file.channels < FEWEST:
        return
    starts = np.linspace(0, max(0, file.length - LOOK), LOOKS).astype(int) // ALIGNED * ALIGNED
    data = np.concatenate([file.raw(int(first), LOOK) for first in sorted(set(starts.tolist()))])
    found = file.encoding
    level = _oddness(data, found, file.channels)
    if found.kind == "f" and level > ABSURD:
        what = f"{level:.0%} of its numbers are NaN, infinite or of absurd size"
        most = LOUD
    elif found.kind != "f" and level > LOUD:
        like = "like noise" if level <= 1 else "in whole bytes"
        what = f"its samples fill the range {like} (rms {_rms(data, found, file.channels):.2g} of full scale)"
        most = QUIETER * level
    else:
        return
    other = looks_like(data, file.channels, most, found)
    if other is None and found.kind != "f":
        return
    advice = "Give the --format that it has"
    if other is not None:
        level = _rms(data[: len(data) // (n := other.sample_bytes * file.channels) * n], other, file.channels)
        plausible = "they are plausible" if other.kind == "f" else f"it is {level:.2g}, as of a receiver"
        advice = f"Read as {other.name} {plausible}. Give --format {other.name}"
    if trusted:
        warnings.warn(f"{file.path}: read as {found.name}, {what}. {advice}.", stacklevel=3)
        return
    raise DataError(f"{file.path}: read as {found.name}, {what}. {advice}, or --format {found.name} if you are sure.")


def looks_like(
    data: NDArray[np.uint8], channels: int = 1, most: float = LOUD, other_than: Encoding | None = None
) -> Encoding | None:
    """The encoding in which bytes are most like a receiver's samples. most: rms that integers may have."""
    best: tuple[float, Encoding] | None = None
    for encoding in READINGS:
        whole = data[: len(data) // (channels * encoding.sample_bytes) * channels * encoding.sample_bytes]
        if encoding == other_than or not whole.any():
            continue
        level = _oddness(whole, encoding, channels)
        if level < (ABSURD / 5 if encoding.kind == "f" else most):
            rank = 0.0 if encoding.kind == "f" else level  # hardly any bytes are floats by chance
            best = (rank, encoding) if best is None or rank < best[0] else best
    return None if best is None else best[1]


def _oddness(data: NDArray[np.uint8], encoding: Encoding, channels: int) -> float:
    """Of floats the part that makes no sense; of integers their rms, more than one where two are taken for one."""
    if encoding.kind == "f":
        return _absurd(data, encoding, channels)
    return 2.0 if _of_bytes(data, encoding) else _rms(data, encoding, channels)


def _of_bytes(data: NDArray[np.uint8], encoding: Encoding) -> bool:
    """Whether 16-bit integers are bytes taken together: where the upper ones are large, the lower ones must be any."""
    if encoding.bits != 16:
        return False
    upper, lower = data[encoding.order == "<" :: 2].view(np.int8), data[encoding.order == ">" :: 2]
    large = (np.abs(upper.astype(np.int16)) >= LARGE) & (upper > -128) & (upper < 127)  # these may be clipped
    if np.count_nonzero(large) < max(FEWEST, MANY * np.count_nonzero(upper)) or not np.std(lower[large]) > 0:
        return False
    return bool(abs(np.mean(np.exp(2j * np.pi / 256 * lower[large]))) > GATHERED)


def _rms(data: NDArray[np.uint8], encoding: Encoding, channels: int) -> float:
    x = encoding.decode(data, channels).view(np.float32)
    return float(np.sqrt(np.mean(x**2, dtype=np.float64)))


def _absurd(data: NDArray[np.uint8], encoding: Encoding, channels: int) -> float:
    """Part of the numbers, zeros not counted, that no receiver writes."""
    with np.errstate(over="ignore", invalid="ignore"):
        magnitude = np.abs(encoding.decode(data, channels).view(np.float32))
    counted = magnitude != 0
    sane = (magnitude > FLOATS[0]) & (magnitude < FLOATS[1])
    return float(np.mean(~sane[counted])) if counted.any() else 0.0


class WatchedRecording:
    """A recording whose samples are looked at as they are read; what is wrong with them is in `notes` afterwards.

    What is no number is read as zero. first, end: the samples that are looked at, where others see to the rest; `add`
    then tells of them all.
    """

    def __init__(self, recording: Recording, first: int = 0, end: int | None = None) -> None:
        self._recording = recording
        antennas = recording.about.antennas
        self._at, self._end = first, recording.about.length if end is None else end  # looked at so far, and to be
        self._samples, self._unusable = 0, 0  # how many were looked at, and are no numbers
        self._first_unusable: int | None = None
        self._power, self._peak = np.zeros(antennas), 0.0
        self._clipped = np.zeros(antennas, dtype=np.int64)

    @property
    def about(self) -> About:
        return self._recording.about

    @property
    def annotations(self) -> tuple[Annotation, ...]:
        return self._recording.annotations

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        block = self._recording.read(first, count)
        bad = None if np.isfinite(_power(block)).all() else ~(np.abs(block) < TOO_LARGE)
        if bad is not None:
            block = np.where(bad, np.complex64(0), block)
        new = self._new(first, block.shape[1])
        if new.start < new.stop:
            self._at = first + new.start
            self._look(block[:, new], None if bad is None else bad[:, new])
        return block

    def _new(self, first: int, count: int) -> slice:
        """Which of samples first … first + count are to be looked at, and were not when they were read before."""
        return slice(max(self._at - first, 0), min(self._end - first, count))

    def blocks(self, size: int) -> Iterator[NDArray[np.complex64]]:
        for first in range(0, self.about.length, size):
            yield self.read(first, size)

    @property
    def integers(self) -> SampleFile | None:
        """The recording's file, where it is one and holds signed integers, which can be used as they lie in it."""
        files = self._recording.files if isinstance(self._recording, FileRecording) else ()
        return files[0] if len(files) == 1 and files[0].encoding.kind == "i" else None

    def pieces(
        self, file: SampleFile, size: int, first: int = 0, end: int | None = None
    ) -> Iterator[NDArray[np.uint8]]:
        """As `blocks`, of samples first … end of `integers`: bytes."""
        end = file.length if end is None else min(end, file.length)
        for at in range(first, end, size):
            data = file.raw(at, min(size, end - at))
            instants = data.reshape(-1, file.channels * file.encoding.sample_bytes)
            new = self._new(at, len(instants))
            if new.start < new.stop:
                self._at = at + new.start
                self._look_at_integers(file, instants[new].reshape(-1))
            yield data

    def _look_at_integers(self, file: SampleFile, data: NDArray[np.uint8]) -> None:
        encoding, channels = file.encoding, file.channels
        numbers = data.view(encoding.number)
        peak = max(int(numbers.max()), -int(numbers.min()))
        self._peak = max(self._peak, encoding.step * peak)
        most = round(self.about.full_scale / encoding.step)
        if peak >= most:
            at_full_scale = np.flatnonzero((numbers >= most) | (numbers <= -most)) // 2
            self._clipped += np.bincount(at_full_scale % channels, minlength=channels)
        some = np.ascontiguousarray(encoding.pairs(data, channels)[::SOME])
        self._power += SOME * _power(encoding.decode(some.view(np.uint8), channels))
        self._passed(len(numbers) // (2 * channels))

    def _passed(self, samples: int) -> None:
        self._at, self._samples = self._at + samples, self._samples + samples

    def add(self, other: WatchedRecording) -> None:
        """What was seen of later samples of the same recording."""
        self._samples, self._unusable = self._samples + other._samples, self._unusable + other._unusable
        if self._first_unusable is None:
            self._first_unusable = other._first_unusable
        self._power, self._peak = self._power + other._power, max(self._peak, other._peak)
        self._clipped = self._clipped + other._clipped

    def _look(self, block: NDArray[np.complex64], bad: NDArray[np.bool_] | None) -> None:
        if bad is not None and bad.any():
            if self._first_unusable is None:
                self._first_unusable = self._at + int(np.flatnonzero(bad.any(axis=0))[0])
            self._unusable += int(np.count_nonzero(bad))
        full_scale = self.about.full_scale
        for antenna, row in enumerate(block.view(np.float32)):
            self._power[antenna] += np.dot(row, row)
            peak = max(row.max(), -row.min())
            self._peak = max(self._peak, float(peak))
            if peak >= full_scale:
                self._clipped[antenna] += np.count_nonzero(np.abs(row) >= full_scale)
        self._passed(block.shape[1])

    def notes(self) -> list[str]:
        """Sentences about what was seen; none where all was well."""
        name, strongest = self.about.name, self._power.max()
        found = []
        if self._unusable:
            found.append(
                f"{name}: {self._unusable:,} samples are NaN, infinite or absurdly large, the first at "
                f"{self._first_unusable:,}; they are read as zero."
            )
        if strongest == 0 and self._samples:
            found.append(f"{name}: all samples are zero.")
        for antenna in np.flatnonzero(self._power < DEAD * strongest).tolist():
            part = self._power[antenna] / strongest
            how_much = "none of the power" if part == 0 else f"{10 * np.log10(part):.0f} dB of the power"
            found.append(f"{name}: antenna {antenna} is dead: it has {how_much} of the strongest one.")
        at_full_scale = self._clipped >= max(AT_LEAST, CLIPPED * self._samples)
        if self._peak > 1:
            at_full_scale[:] = False  # floats in units of their own: nobody knows where the receiver's range ends
        for antenna in np.flatnonzero(at_full_scale).tolist():
            part = self._clipped[antenna] / (2 * self._samples)
            found.append(
                f"{name}: antenna {antenna} clips: {part:.2%} of its values are at full scale. Frames that do are "
                "distorted; record with less gain."
            )
        return found


def _power(block: NDArray[np.complex64]) -> NDArray[np.float64]:
    """(A,) Σ|x|²; not finite where a sample is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array([np.dot(row, row) for row in block.view(np.float32)], dtype=np.float64)
