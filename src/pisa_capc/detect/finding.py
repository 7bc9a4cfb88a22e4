"""The frames of a recording: found, read as far as their header, and placed in the recording's own samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pisa_capc.detect.base import Detection, Detector
from pisa_capc.detect.wifi import WifiDetector
from pisa_capc.errors import ConfigError, unknown_name
from pisa_capc.phy import Header
from pisa_capc.phy import wifi as wifi_phy
from pisa_capc.phy.wifi.signal import DATA_START
from pisa_capc.recordings import Recording, Watched, resampled
from pisa_capc.waveforms import WAVEFORMS, Waveform

BLOCK = 1 << 18  # samples of each antenna that are read at a time: a few chunks of the detector
TOGETHER = 256  # frames whose headers are read at a time

Rename = Callable[[str], str]


@dataclass(frozen=True)
class FoundFrame:
    """A frame of a recording.

    start: its first preamble sample, counted in the recording. time_s: the same in seconds. at, samples: its first
    sample and, where its header says it, its length, at the waveform's own rate.
    cfo_hz, snr_db: of each antenna. quality: as of `Detection`.
    """

    recording: str
    start: int
    time_s: float
    at: int
    samples: int | None
    cfo_hz: tuple[float, ...]
    snr_db: tuple[float, ...]
    quality: float
    header: Header

    def to_json(self) -> dict[str, Any]:
        header = self.header
        return {
            "recording": self.recording,
            "start": self.start,
            "time_s": self.time_s,
            "cfo_hz": _numbers(self.cfo_hz),
            "snr_db": _numbers(self.snr_db),
            "quality": self.quality,
            "rate_mbps": header.rate_mbps,
            "length": header.length,
            "kind": header.kind,
            "transmitter": header.transmitter,
            "receiver": header.receiver,
            "fcs": header.fcs,
        }


def _numbers(values: Sequence[float]) -> list[float | None]:
    """JSON has no word for what a dead antenna gives."""
    return [value if math.isfinite(value) else None for value in values]


@dataclass(frozen=True)
class Found:
    """The frames of one recording in the order of time, and its samples at the waveform's rate."""

    recording: Recording
    stream: Recording
    waveform: Waveform
    frames: tuple[FoundFrame, ...]


def waveform_named(name: str) -> Waveform:
    """A waveform of which frames can be found."""
    if name not in DETECTORS:
        raise ConfigError(unknown_name("waveform", name, DETECTORS))
    return WAVEFORMS[name]


def _wifi(antennas: int) -> Detector:
    return WifiDetector(antennas, samples=DATA_START)


DETECTORS: dict[str, Callable[[int], Detector]] = {"wifi": _wifi}  # by waveform, for so many antennas


def detect(
    recording: Recording,
    waveform: str = "wifi",
    *,
    decode: bool = True,
    rename: Rename | None = None,
    detector: Detector | None = None,
    after_block: Callable[[], None] = lambda: None,
) -> Found:
    """Find the frames of a recording; it is resampled where its rate is not the waveform's.

    decode: read their headers. rename: what is put in the place of addresses. detector: in the place of the waveform's
    own. What is wrong with the samples is warned about at the end.

    >>> found = detect(open_recording("roof.sigmf-meta"))      # doctest: +SKIP
    >>> found.frames[0].header.transmitter                     # doctest: +SKIP
    'e8:de:27:90:6e:42'
    """
    known = waveform_named(waveform)
    watched = Watched(recording)
    stream = resampled(watched, known.sample_rate_hz, known.occupied)
    detector = detector or DETECTORS[waveform](recording.about.antennas)
    frames = []
    for some in _detections(stream, detector, after_block):
        for detection in _with_headers(waveform, stream, some) if decode else some:
            frames.append(_placed(detection, recording, known, rename))
    for note in watched.notes():
        warnings.warn(note, stacklevel=2)
    return Found(recording, stream, known, tuple(sorted(frames, key=lambda frame: frame.at)))


def _detections(stream: Recording, detector: Detector, after_block: Callable[[], None]) -> Iterator[list[Detection]]:
    for block in stream.blocks(BLOCK):
        yield detector.push(block)
        after_block()
    yield detector.finish()


def blocks_of(recording: Recording, waveform: str) -> int:
    """How often `detect` calls `after_block`, for a progress bar."""
    rate = waveform_named(waveform).sample_rate_hz / recording.about.sample_rate_hz
    return math.ceil(recording.about.length * rate / BLOCK)


def _with_headers(waveform: str, stream: Recording, found: list[Detection]) -> Iterator[Detection]:
    """Of Wi-Fi, the frames with what they say of themselves; other detectors have read it on the way."""
    if waveform != "wifi":
        yield from found
        return
    for i in range(0, len(found), TOGETHER):
        some = found[i : i + TOGETHER]
        cfo_hz = [detection.cfo_hz for detection in some]
        signals = wifi_phy.signals([detection.iq for detection in some], cfo_hz)
        lengths = [DATA_START if signal is None else signal.samples for signal in signals]
        whole = [stream.read(detection.start, length) for detection, length in zip(some, lengths, strict=True)]
        headers = wifi_phy.receive(whole, cfo_hz)
        for detection, signal, header in zip(some, signals, headers, strict=True):
            yield replace(detection, header=header, samples=None if signal is None else signal.samples)


def _placed(detection: Detection, recording: Recording, waveform: Waveform, rename: Rename | None) -> FoundFrame:
    rate = recording.about.sample_rate_hz
    start = round(detection.start * rate / waveform.sample_rate_hz)
    header = detection.header if rename is None else _renamed(detection.header, rename)
    return FoundFrame(
        recording.about.name,
        start,
        start / rate,
        detection.start,
        detection.samples,
        tuple(detection.cfo_hz.tolist()),
        tuple(detection.snr_db.tolist()),
        float(detection.quality),
        header,
    )


def _renamed(header: Header, rename: Rename) -> Header:
    return replace(
        header,
        transmitter=None if header.transmitter is None else rename(header.transmitter),
        receiver=None if header.receiver is None else rename(header.receiver),
    )
