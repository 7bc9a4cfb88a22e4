"""Who was identified in recordings: when each device sent, and a piece of the spectrum with its frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisa_capc.decide.identification import Identified
from pisa_capc.decide.identification.write import samples_of
from pisa_capc.evidence.figures.recording import Box, draw_spectrogram, draw_timeline
from pisa_capc.evidence.figures.style import Picture, write_captions
from pisa_capc.signal.detection.dataset import file_name

SURE = 0.9  # probability from which a decision is drawn as sure
SHOWN = 150  # median frames that the spectrum is long: boxes can still be told apart
UNKNOWN = "unknown"


def draw_identified(who: Identified, folder: Path, format: str = "png") -> list[Picture]:
    """A timeline and a spectrogram of every recording that has frames, and captions beside them."""
    pictures: list[Picture] = []
    for r, found in enumerate(who.seen.found):
        own = np.flatnonzero(who.seen.recording == r)
        if not len(own):
            continue
        stem = file_name(Path(found.recording.about.name).stem)
        pictures += [
            _timeline(who, r, own, folder / f"{stem}-timeline.{format}"),
            _spectrogram(who, r, own, folder / f"{stem}-spectrogram.{format}"),
        ]
    write_captions(folder, pictures)
    return pictures


def _timeline(who: Identified, r: int, own: NDArray[np.intp], path: Path) -> Picture:
    """A row per device that was found; colours tell how sure the decisions are."""
    about = who.seen.found[r].recording.about
    label = _labels(who)
    names = [name for name in (*who.devices, UNKNOWN) if name in {label[i] for i in own}]
    groups = [
        "unknown device" if who.decision[i] < 0 else f"p ≥ {SURE:g}" if who.confidence[i] >= SURE else f"p < {SURE:g}"
        for i in own
    ]
    return draw_timeline(
        who.seen.time_s[own],
        [names.index(label[i]) for i in own],
        names,
        path,
        durations_s=_durations_s(who, r, own),
        groups=groups,
        span_s=about.length / about.sample_rate_hz,
    )


def _spectrogram(who: Identified, r: int, own: NDArray[np.intp], path: Path) -> Picture:
    """The part of the recording where most frames begin, on the antenna that hears them best."""
    found = who.seen.found[r]
    rate = found.waveform.sample_rate_hz
    times_s, lasts_s, label = who.seen.time_s[own], _durations_s(who, r, own), _labels(who)
    span_s = min(SHOWN * float(np.median(lasts_s)), found.stream.about.length / rate)
    begun = np.searchsorted(times_s, times_s + span_s) - np.arange(len(times_s))
    first = max(0, round((times_s[int(np.argmax(begun))] - span_s / 20) * rate))
    block = found.stream.read(first, round(span_s * rate))
    antenna = int(np.nanargmax(np.nanmedian([who.seen.about[i].snr_db for i in own], axis=0)))
    half_hz = found.waveform.occupied * rate / 2
    boxes = [
        Box(begin - first / rate, begin + last - first / rate, -half_hz, half_hz, label[i])
        for i, begin, last in zip(own.tolist(), times_s.tolist(), lasts_s.tolist(), strict=True)
    ]
    here = [box for box in boxes if box.stop_s > 0 and box.start_s < block.shape[1] / rate]
    picture = draw_spectrogram(block[antenna], rate, here, path)
    return picture._replace(caption=f"{picture.caption} Antenna {antenna}, from {first / rate:.4f} s on.")


def _labels(who: Identified) -> list[str]:
    return [UNKNOWN if name is None else name for name in who.device]


def _durations_s(who: Identified, r: int, own: NDArray[np.intp]) -> NDArray[np.float64]:
    found = who.seen.found[r]
    samples = [samples_of(found, who.seen.about[i]) for i in own.tolist()]
    return np.array(samples) / found.recording.about.sample_rate_hz
