"""Who was identified in recordings: when each device sent, a piece of the spectrum with its frames, and the evidence
for and against claimed addresses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisa_capc.decide.identification import ClaimVerdict, Identified
from pisa_capc.decide.identification.write import samples_of
from pisa_capc.evidence.figures.recording import Box, draw_spectrogram, draw_timeline
from pisa_capc.evidence.figures.style import COLOURS, GREY, PAGE_INCHES, Picture, canvas, write_captions
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


COLUMNS = 3
MOST = 30  # addresses that are drawn: those with the most evidence against them first
CEILING = 12.0  # powers of ten: what is beyond is as good as certain


def plot_evidence(path: str | Path, verdicts: Sequence[ClaimVerdict], alpha: float) -> None:
    """A panel per enrolled address: log10 M against the claim and for it after each tested frame, and 1/α."""
    tested = [verdict for verdict in verdicts if len(verdict.rows)]
    tested = sorted(tested, key=lambda verdict: -float(verdict.against.max()))[:MOST]
    rows = max(1, math.ceil(len(tested) / COLUMNS))
    with canvas(path, PAGE_INCHES, 0.5 + 1.35 * rows) as figure:
        grid = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
        for axes in grid.flat[len(tested) :]:
            axes.set_axis_off()
        for axes, verdict in zip(grid.flat, tested, strict=False):
            frames = np.arange(1, len(verdict.rows) + 1)
            for curve, colour, name in (
                (verdict.against, COLOURS[1], "against"),
                (verdict.support, COLOURS[0], "for the claim"),
            ):
                axes.plot(frames, np.clip(curve / np.log(10), -CEILING / 4, CEILING), color=colour, label=name)
            axes.axhline(-math.log10(alpha), color=GREY, linestyle="--", linewidth=0.8)
            axes.set_title(f"{verdict.address}: {verdict.verdict}", fontsize=6.5)
            axes.grid(alpha=0.2)
        for axes in grid[:, 0]:
            axes.set_ylabel("evidence, log10")
        for axes in grid.flat[max(0, len(tested) - COLUMNS) : len(tested)]:  # the lowest of each column
            axes.set_xlabel("frames tested")
        if tested:
            handles, names = grid.flat[0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside upper right", ncols=2)
