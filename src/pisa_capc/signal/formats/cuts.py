"""Files of I/Q, opened, and what frames are cut from them: all of a recording, windows of it, or its bursts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.quantities import MOST_ANTENNAS
from pisa_capc.signal.detection import FoundFrame, detect
from pisa_capc.signal.detection.burst import STORED
from pisa_capc.signal.formats.arrays import MAT, FrameArray, open_array
from pisa_capc.signal.formats.base import ImportOptions
from pisa_capc.signal.recordings import About, open_recording
from pisa_capc.signal.recordings.base import FileRecording, Recording, SampleFile
from pisa_capc.signal.recordings.containers import NPY, WAV, said_by_name
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.recordings.sigmf import META
from pisa_capc.signal.waveforms.reference import MOST, SentReference

WHOLE = 1 << 18  # samples of a recording, in the median, up to which it is a frame
LONGEST_BURST = 1 << 14  # samples that are kept of one, unless told
FEWEST_BURSTS = 2  # of a recording, from which bursts are taken for what it holds
LOOKS, LOOK = 8, 1024  # pieces of a recording, and samples of each, that show whether it is silent

Rates = tuple[float, float]  # sample rate and carrier in Hz


@dataclass(frozen=True)
class SignalFile:
    """A file: frames (n, A, T), or a recording. names: environment, device and capture.

    rates: of its samples; said: which of them it says itself, or was told. words: how an array was read.
    """

    path: Path
    names: dict[str, str]
    frames: FrameArray | None
    recording: Recording | None
    rates: Rates
    said: frozenset[str]
    words: str = ""

    @property
    def antennas(self) -> int:
        return int(self.frames.frames.shape[1]) if self.frames is not None else self.about.antennas

    @property
    def about(self) -> About:
        assert self.recording is not None
        return self.recording.about

    def read(self, start: int, samples: int) -> NDArray[np.complex64]:
        """(A, samples): frame number `start` of an array, or the samples of a recording from there on."""
        if self.frames is None:
            assert self.recording is not None
            return self.recording.read(start, samples)
        return self.frames.complex(slice(start, start + 1))[0, :, :samples]

    def place(self, start: int) -> str:
        return f"{self.path.name}, {'frame' if self.recording is None else 'sample'} {start:,}"


@dataclass(frozen=True)
class ArrayFile(SampleFile):
    """An array (A, T) of a file that cannot be read piece by piece."""

    x: NDArray[np.complex64] = field(kw_only=True, repr=False)

    def raw(self, first: int, count: int) -> NDArray[np.uint8]:
        return np.ascontiguousarray(self.x[:, first : first + count].T).view(np.uint8).ravel()


def open_mat(
    path: Path, sample_rate_hz: float | None = None, carrier_hz: float | None = None, antennas: int | None = None
) -> FileRecording:
    """The recording in a MAT file, or in another that holds an array; what is given goes before what it says."""
    array, name = open_array(path, ImportOptions(antennas=antennas)), said_by_name(path)
    rate = sample_rate_hz or array.sample_rate_hz or name.sample_rate_hz
    if rate is None:
        raise ConfigError(f"{path}: its samples say no sample rate. Give --sample-rate, as 2.4e6.")
    if len(array.frames) != 1:
        raise DataError(
            f"{path}: {array.words} holds {len(array.frames):,} frames; expected one row of samples for each antenna. "
            "Give --antennas, or make a dataset of the frames by `pisa import iq`."
        )
    return _recording(path, array, rate, carrier_hz or array.carrier_hz or name.carrier_hz)


def _recording(path: Path, array: FrameArray, rate: float, carrier: float | None) -> FileRecording:
    x = array.complex(slice(0, 1))[0]
    if len(x) > MOST_ANTENNAS:
        raise DataError(f"{path}: {array.words} has {len(x):,} antennas; expected at most {MOST_ANTENNAS}.")
    file = ArrayFile(path, Encoding.named("cf32"), *x.shape, x=x)
    return FileRecording(About(path.name, rate, carrier, *x.shape), (file,))


def open_file(
    path: Path, names: dict[str, str], options: ImportOptions, default: tuple[float | None, float]
) -> SignalFile:
    """A file of any kind. default: sample rate and carrier where nothing says them; None: that is refused."""
    given = options.sample_rate_hz, options.carrier_hz
    if options.format is None and path.suffix.lower() in (NPY, MAT):
        array, name = open_array(path, options), said_by_name(path)
        own = array.sample_rate_hz or name.sample_rate_hz, array.carrier_hz or name.carrier_hz
        rates, said = _rates(path, given, own, default)
        if len(array.frames) > 1:
            return SignalFile(path, names, array, None, rates, said, array.words)
        words, recording = array.words, _recording(path, array, *rates)
    else:
        words = ""
        recording = open_recording(
            path,
            format=options.format,
            sample_rate_hz=options.sample_rate_hz or _rate_of_plain(path, default[0]),
            carrier_hz=options.carrier_hz,
            antennas=options.antennas,
        )
        about = recording.about
        rates, said = _rates(path, given, (about.sample_rate_hz, about.carrier_hz), default)
        said -= {"sample_rate_hz"} if about.sample_rate_hz == _rate_of_plain(path, default[0]) else set()
    _check_not_silent(path, recording)
    return SignalFile(path, names, None, recording, rates, said, words)


def open_reference(path: Path, sample_rate_hz: float) -> SentReference:
    """What was sent; at the given sample rate where the file does not say one."""
    file = open_file(path, {}, ImportOptions(), (sample_rate_hz, 1e9))
    if file.recording is None or file.antennas != 1 or file.about.length > MOST:
        raise DataError(f"{path}: expected what was sent as one row of at most {MOST:,} samples of one antenna.")
    try:
        return SentReference(file.read(0, file.about.length)[0], file.rates[0])
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _rate_of_plain(path: Path, default: float | None) -> float | None:
    """What is taken for the rate of samples that do not say one."""
    return None if path.suffix.lower() in (WAV, META) or said_by_name(path).sample_rate_hz else default


def _rates(
    path: Path,
    given: tuple[float | None, float | None],
    own: tuple[float | None, float | None],
    default: tuple[float | None, float],
) -> tuple[Rates, frozenset[str]]:
    found = [a or b for a, b in zip(given, own, strict=True)]
    if (rate := found[0] or default[0]) is None:
        raise ConfigError(f"{path}: its samples say no sample rate. Give --sample-rate, as 2.4e6.")
    names = ("sample_rate_hz", "carrier_hz")
    said = frozenset(name for name, value in zip(names, found, strict=True) if value)
    return (float(rate), float(found[1] or default[1])), said


def _check_not_silent(path: Path, recording: Recording) -> None:
    """Refuse a recording in which nothing varies."""
    length = recording.about.length
    starts = np.linspace(0, max(0, length - LOOK), LOOKS).astype(int)
    looks = [recording.read(int(start), min(LOOK, length)) for start in starts]
    if all((look == looks[0][:, :1]).all() for look in looks):
        raise DataError(
            f"{path}: all its samples are {looks[0][0, 0]:.2g}; expected a received signal. The receiver did not run; "
            "leave the file out."
        )


def alike(files: Sequence[SignalFile]) -> Rates:
    """The rates that all files have."""
    first = files[0]
    for other in files[1:]:
        if other.rates != first.rates:
            raise DataError(
                f"{other.path}: {other.rates[0]:g} samples/s at {other.rates[1]:g} Hz; {first.path.name} has "
                f"{first.rates[0]:g} at {first.rates[1]:g}. Import them as two datasets."
            )
        if (other.recording is None) != (first.recording is None):
            raise DataError(
                f"{other.path}: holds {'frames' if other.recording is None else 'a recording'}, {first.path.name} "
                f"{'frames' if first.recording is None else 'a recording'}. Import them as two datasets."
            )
    return first.rates


class Cuts(NamedTuple):
    """Where the frames of each file begin, their samples, and that in words.

    found: what is known of a frame that is a burst, by the number of its file and its start.
    """

    starts: list[Sequence[int]]
    samples: int
    words: str
    found: Mapping[tuple[int, int], FoundFrame] = MappingProxyType({})


def cut(files: Sequence[SignalFile], options: ImportOptions) -> Cuts:
    """What frames are cut from files of one kind."""
    if files[0].frames is not None:
        return _as_stored(files, options)
    lengths = [file.about.length for file in files]
    rate = files[0].rates[0]
    if options.window is not None:
        samples = options.samples or round(options.window * rate)
        hop = samples if options.hop is None else round(options.hop * rate)
        return _windows(files, samples, hop, "--window, --hop")
    if options.waveform is not None:
        return _bursts(files, options.waveform, options.samples)
    middle = sorted(lengths)[len(lengths) // 2]
    if len(files) > 1 and middle <= WHOLE and 2 * (shortest := min(lengths)) >= middle:
        samples = min(options.samples or shortest, shortest)
        return Cuts(
            [[0]] * len(files),
            samples,
            f"each recording a frame of its first {samples:,} samples (--window, --waveform)",
        )
    bursts = _bursts(files, "burst", options.samples)
    if sum(map(len, bursts.starts)) >= FEWEST_BURSTS * len(files):
        return bursts
    samples = min(options.samples or STORED, middle)
    return _windows(files, samples, samples, "hardly any bursts stand out; --window, --waveform")


def _as_stored(files: Sequence[SignalFile], options: ImportOptions) -> Cuts:
    shapes = [file.frames.frames.shape for file in files if file.frames is not None]
    if options.window is not None or options.waveform is not None:
        raise ConfigError(
            f"{files[0].path}: holds {shapes[0][0]:,} frames that are cut already; --window and --waveform cut "
            "recordings. Leave them out; --axes says which axis is which."
        )
    shortest = min(shape[2] for shape in shapes)
    samples = options.samples or shortest
    if samples > shortest or (options.samples is None and len({shape[2] for shape in shapes}) > 1):
        raise DataError(
            f"{files[0].path.parent}: frames of {shortest:,} to {max(shape[2] for shape in shapes):,} samples. Give "
            f"--samples, at most {shortest}, to cut them all to these."
        )
    return Cuts([range(shape[0]) for shape in shapes], samples, f"frames of {samples:,} samples")


def _windows(files: Sequence[SignalFile], samples: int, hop: int, why: str) -> Cuts:
    shortest = min(files, key=lambda file: file.about.length)
    if not 2 <= samples <= shortest.about.length or hop < 1:
        raise ConfigError(
            f"{shortest.path}: windows of {samples:,} samples, {hop:,} apart; expected two or more and at most the "
            f"{shortest.about.length:,} that it has. Give another --window, in seconds."
        )
    starts: list[Sequence[int]] = [range(0, file.about.length - samples + 1, hop) for file in files]
    return Cuts(starts, samples, f"windows of {samples:,} samples, {hop:,} apart ({why})")


def _bursts(files: Sequence[SignalFile], waveform: str, samples: int | None) -> Cuts:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        found = [detect(file.recording, waveform).frames for file in files if file.recording is not None]
    if any(frame.channel is not None for frames in found for frame in frames):
        raise ConfigError(
            f"--waveform {waveform}: imports keep the rate of the files, and a channel has its own. Use `pisa detect "
            f"--waveform {waveform} --out`, with --label pattern for names from paths."
        )
    if notes:  # of each recording; one stands for many
        more = f" So it is, or alike, in {len(notes):,} recordings." if len(notes) > 1 else ""
        warnings.warn(f"{notes[0].message}{more}", stacklevel=2)
    lengths = sorted(frame.samples or 0 for frames in found for frame in frames)
    typical = lengths[len(lengths) // 2] if lengths else STORED
    samples = samples or max(2, min(typical, LONGEST_BURST))
    kept = [
        {frame.start: frame for frame in frames if frame.start + samples <= file.about.length}
        for file, frames in zip(files, found, strict=True)
    ]
    starts: list[Sequence[int]] = [list(own) for own in kept]
    count = f"{sum(map(len, starts)):,} bursts that last {typical:,} samples in the median"
    words = f"{count}, each a frame of {samples:,} (--waveform, --samples, --window)"
    return Cuts(starts, samples, words, {(n, at): frame for n, own in enumerate(kept) for at, frame in own.items()})
