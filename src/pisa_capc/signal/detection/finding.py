"""The frames of a recording: found, read as far as their header, and placed in the recording's own samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pisa_capc.core.brief import brief
from pisa_capc.core.engines import available_cores, run_jobs
from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.signal.detection import adsb, ble, burst, ieee802154, lora, wifi  # noqa: F401  (they register their finders)
from pisa_capc.signal.detection.base import NO_IQ, Detector, FoundFrame
from pisa_capc.signal.detection.correlation import PreambleFinder
from pisa_capc.signal.detection.finders import FINDERS, Finder
from pisa_capc.signal.phy import Header
from pisa_capc.signal.recordings import About, Recording, WatchedRecording
from pisa_capc.signal.recordings.channels import ChannelStream
from pisa_capc.signal.recordings.sigmf import annotation
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform

BLOCK = 1 << 20  # samples of each antenna that are read at a time: some chunks of the detector
PART = 8 * BLOCK  # samples that a process searches before it takes others: 0.4 s of Wi-Fi
LEAST_PARTS = 8  # for each process, which takes a second to begin

GENERATOR = "pisa detect"  # of annotations

Rename = Callable[[str], str]


@dataclass(frozen=True)
class Found:
    """The frames of one recording in the order of time, and its samples at the waveform's rate."""

    recording: Recording
    stream: Recording
    waveform: Waveform
    frames: tuple[FoundFrame, ...]

    __repr__ = brief

    def read(self, frame: FoundFrame, samples: int) -> NDArray[np.complex64]:
        """(A, samples) of one of the frames, from its first on."""
        if isinstance(self.stream, ChannelStream) and frame.channel is not None:
            return self.stream.channel(frame.channel).read(frame.at, samples)
        return self.stream.read(frame.at, samples)


def finder_of(waveform: str | Waveform) -> Finder:
    """What finds the frames of a waveform, by its name: its own finder, or else one that looks for its preamble.

    What stands behind a colon are settings of the finder, as in burst:gap=5e-3. A waveform itself, as one from a file,
    is found by its preamble.
    """
    if isinstance(waveform, Waveform):
        return PreambleFinder(waveform)
    name, colon, settings = waveform.partition(":")
    if name not in FINDERS and name not in WAVEFORMS:
        raise ConfigError(unknown_name("waveform", name, sorted({*FINDERS, *WAVEFORMS})))
    finder = FINDERS[name] if name in FINDERS else PreambleFinder(WAVEFORMS[name])
    return finder.with_settings(settings) if colon else finder


def detect(
    recording: Recording,
    waveform: str | Waveform = "wifi",
    *,
    decode: bool = True,
    rename: Rename | None = None,
    detector: Detector | None = None,
    after_block: Callable[[], None] = lambda: None,
    workers: int | None = 1,
) -> Found:
    """Find the frames of a recording; it is resampled where its rate is not the waveform's.

    decode: read their headers. rename: what is put in the place of addresses. detector: in the place of the waveform's
    own. workers: processes among which a long recording is shared, where its finder allows it (that of Wi-Fi); None:
    one for each core. The frames are the same. What is wrong with the samples is warned about at the end.

    >>> found = detect(open_recording("roof.sigmf-meta"))      # doctest: +SKIP
    >>> found.frames[0].header.transmitter                     # doctest: +SKIP
    'e8:de:27:90:6e:42'
    """
    finder = finder_of(waveform)
    known = finder.waveform(recording.about)
    stream = finder.stream(WatchedRecording(recording))
    length = finder.searched(recording).about.length
    shared = detector is None and finder.in_parts
    parts = range(0, length, PART) if shared else ()
    workers = min(available_cores() if workers is None else workers, len(parts) // LEAST_PARTS)
    if workers > 1:
        jobs = [(recording, waveform, decode, first, min(first + PART, length)) for first in parts]
        searched = _in_order(run_jobs(_search, jobs, workers=workers), after_block)
    else:
        searched = [_search(recording, waveform, decode, 0, length, detector, after_block)]
    watched = searched[0].watched
    for later in searched[1:]:
        watched.add(later.watched)
    for note in watched.notes():
        warnings.warn(note, stacklevel=2)
    frames = [
        frame if rename is None else replace(frame, header=renamed(frame.header, rename))
        for frame in _joined(searched, len(known.preamble()))
    ]
    return Found(recording, stream, known, tuple(frames))


class _Searched(NamedTuple):
    """Samples first … end of a stream: what was found in them, and what they looked like."""

    first: int
    end: int
    frames: list[FoundFrame]
    watched: WatchedRecording


def _search(
    recording: Recording,
    waveform: str | Waveform,
    decode: bool,
    first: int,
    end: int,
    detector: Detector | None = None,
    after_block: Callable[[], None] = lambda: None,
) -> _Searched:
    """Find the frames that begin between two samples of a recording at the waveform's rate, multiples of PART or ends.

    A detector hears what is before and after them, too, so that it finds what one of the whole recording would.
    """
    finder = finder_of(waveform)
    known = finder.waveform(recording.about)
    ratio = recording.about.sample_rate_hz / finder.searched(recording).about.sample_rate_hz
    watched = WatchedRecording(recording, round(first * ratio), round(end * ratio))
    stream = finder.searched(watched)
    part = first > 0 or end < stream.about.length
    span = (first, end) if part else ()
    heard = range(max(first - finder.ahead, 0), min(end + finder.longest, stream.about.length) if part else end, BLOCK)
    blocks: Iterator[NDArray[Any]] = (stream.read(at, min(BLOCK, heard.stop - at)) for at in heard)
    if detector is None and stream is watched and watched.integers is not None and finder.takes_bytes:
        detector = finder.detector(recording.about, watched.integers.encoding, *span)
        blocks = watched.pieces(watched.integers, BLOCK, heard.start, heard.stop)
    detector = detector or finder.detector(recording.about, None, *span)
    read = finder.with_headers if decode else finder.without_headers
    with threadpool_limits(1):  # its arrays are small: threads of BLAS would only spin
        frames = [
            placed(frame, recording.about, known)
            for some in _as_found(_ahead(blocks), detector, after_block)
            for frame in read(some)
        ]
    return _Searched(first, end, sorted(frames, key=lambda frame: frame.at), watched)


def _in_order(searched: Iterable[_Searched], after_block: Callable[[], None]) -> list[_Searched]:
    """All parts, which come as they are done."""
    done = []
    for one in searched:
        done.append(one)
        for _ in range(one.first, one.end, BLOCK):
            after_block()
    return sorted(done, key=lambda one: one.first)


def _joined(searched: Sequence[_Searched], preamble: int) -> list[FoundFrame]:
    """The frames of all parts; one that begins where two meet may be found in both, and is then the first one's."""
    frames = list(searched[0].frames)
    for later in searched[1:]:
        taken = frames[-1].at + preamble if frames else 0
        frames += [frame for frame in later.frames if frame.at >= taken]
    return frames


def _as_found(
    blocks: Iterator[NDArray[Any]], detector: Detector, after_block: Callable[[], None]
) -> Iterator[list[FoundFrame]]:
    for block in blocks:
        yield detector.push(block)
        after_block()
    yield detector.finish()


def _ahead(blocks: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Each block is read while the one before it is looked at."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            yield block


def blocks_of(recording: Recording, waveform: str | Waveform) -> int:
    """How often `detect` calls `after_block`, for a progress bar."""
    return math.ceil(finder_of(waveform).searched(recording).about.length / BLOCK)


def placed(frame: FoundFrame, about: About, waveform: Waveform, first: int = 0, kept: int = 0) -> FoundFrame:
    """Place a frame in its recording or stream, whose samples the detector saw from `first` on.

    kept: samples of the frame that stay with it.
    """
    rate_hz, own_hz = about.sample_rate_hz, waveform.sample_rate_hz
    start = first + round(frame.at * rate_hz / own_hz)
    return replace(
        frame,
        iq=np.ascontiguousarray(frame.iq[:, :kept]) if kept else NO_IQ,
        quality=float(frame.quality),
        front=None,
        source=about.name,
        start=start,
        end=first + round((frame.at + frame.iq.shape[1]) * rate_hz / own_hz),
        time_s=start / rate_hz,
    )


def renamed(header: Header, rename: Rename) -> Header:
    """The header with other names in the place of addresses."""
    return replace(
        header,
        transmitter=None if header.transmitter is None else rename(header.transmitter),
        receiver=None if header.receiver is None else rename(header.receiver),
    )


def as_annotations(found: Found, antennas: slice) -> list[dict[str, Any]]:
    """An annotation per frame: what SigMF has fields for, and in our namespace CFO, SNR and quality of antennas."""
    return [_annotation(found, frame, antennas) for frame in found.frames]


def band_of(found: Found, frame: FoundFrame) -> tuple[float, float]:
    """Lowest and highest frequency of a frame in Hz, relative to the carrier where that is not known."""
    waveform, carrier = found.waveform, found.recording.about.carrier_hz or 0.0
    centre, half = carrier, waveform.occupied * waveform.sample_rate_hz / 2
    if frame.bandwidth_hz is not None:
        channel = carrier if frame.channel_hz is None else frame.channel_hz
        centre, half = channel + float(np.nanmedian(frame.cfo_hz)), frame.bandwidth_hz / 2
    return centre - half, centre + half


def _annotation(found: Found, frame: FoundFrame, antennas: slice) -> dict[str, Any]:
    about, waveform, header = found.recording.about, found.waveform, frame.header
    samples = frame.samples or len(waveform.preamble())
    said = frame.to_json()
    others = ("quality", "kind", "rate_mbps", "length", "receiver", "fcs", "bandwidth_hz", "channel_hz")
    own = {"cfo_hz": said["cfo_hz"][antennas], "snr_db": said["snr_db"][antennas]}
    return annotation(
        frame.start,
        round(samples * about.sample_rate_hz / waveform.sample_rate_hz),
        header.transmitter or header.kind or waveform.name,
        emitter=None if header.transmitter is None else {"label": header.transmitter},
        band_hz=band_of(found, frame),
        unique=f"{GENERATOR} {frame.source} {frame.start}",
        pisa=own | {name: said[name] for name in others if said.get(name) is not None},
    )
