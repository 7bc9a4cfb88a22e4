"""Pictures of a recording: its spectrum with the frames, who sent when, and the evidence on claimed addresses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.decide.identification import ClaimVerdict, Identified
from pisa_capc.decide.identification.write import samples_of
from pisa_capc.evidence.figures.style import COLOURS, GREY, PAGE_INCHES, Picture, canvas, write_captions
from pisa_capc.signal.detection.dataset import file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BINS = 256  # of frequency
COLUMNS = 1400  # of time, about as many as a page shows
MOST_NAMED = 24  # more names than this are not legible beside each other
STYLES: tuple[Literal["-", "--", ":"], ...] = ("-", "--", ":")  # where there are more names than colours
SHORTEST = 1 / 600  # of the time that is shown: what is drawn of a frame, however short
STRONGEST_DB, WEAKEST_DB = 99.9, 5.0  # percentiles of the picture's cells that its colours lie between


@dataclass(frozen=True)
class Box:
    """A frame in time and frequency, from the block's first sample and from the carrier; label: its colour's name."""

    start_s: float
    stop_s: float
    low_hz: float
    high_hz: float
    label: str


def power_spectrum_db(block: NDArray[np.complex64]) -> NDArray[np.float64]:
    """(256, columns) power in dB of one antenna's samples (n,): Hann windows, those of one column averaged."""
    windows = len(block) // BINS
    if windows < 1:
        raise DataError(f"a block of {len(block)} samples; a spectrogram needs {BINS} at least.")
    edges = np.unique(np.linspace(0, windows, min(COLUMNS, windows) + 1).astype(int))
    columns = np.empty((BINS, len(edges) - 1))
    for i, (start, stop) in enumerate(pairwise(edges)):
        part = block[start * BINS : stop * BINS].reshape(-1, BINS) * np.hanning(BINS)
        columns[:, i] = np.mean(np.abs(np.fft.fft(part, axis=1)) ** 2, axis=0)
    floor = np.finfo(np.float64).tiny
    return 10 * np.log10(np.fft.fftshift(columns, axes=0) + floor)


def draw_spectrogram(
    block: NDArray[np.complex64], sample_rate_hz: float, boxes: Sequence[Box], path: str | Path
) -> Picture:
    """The spectrum of one antenna's samples (n,) over time, and the frames in it."""
    spectrum = power_spectrum_db(block)
    span_s, edge_hz = len(block) / sample_rate_hz, sample_rate_hz / 2
    unit_s, unit = _time_unit(span_s)
    unit_hz, hertz = (1e6, "MHz") if edge_hz > 2e6 else (1e3, "kHz")
    extent = (0, span_s / unit_s, -edge_hz / unit_hz, edge_hz / unit_hz)
    low_db, high_db = np.percentile(spectrum, (WEAKEST_DB, STRONGEST_DB))
    with canvas(path, PAGE_INCHES, 2.6) as figure:
        axes = figure.subplots()
        image = axes.imshow(
            spectrum, aspect="auto", origin="lower", extent=extent, cmap="gray_r", vmin=low_db, vmax=high_db
        )
        _boxes(axes, [box for box in boxes if box.start_s < span_s and box.stop_s > 0], unit_s, unit_hz)
        axes.set(xlim=extent[:2], ylim=extent[2:], xlabel=f"time in {unit}", ylabel=f"from the carrier in {hertz}")
        figure.colorbar(image, ax=axes, label="dB", pad=0.01)
        if boxes:
            figure.legend(loc="outside upper center", ncols=12, handlelength=1, columnspacing=1)
    return Picture(Path(path), f"Spectrum of one antenna over time; boxes: the {len(boxes)} frames, by sender.")


def _boxes(axes: Axes, boxes: Sequence[Box], unit_s: float, unit_hz: float) -> None:
    """Outlines, one colour for each label; the legend names as many as can be read."""
    from matplotlib.collections import PatchCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    labels = sorted({box.label for box in boxes})
    for i, (label, colour) in enumerate(zip(labels, cycle(COLOURS[:-1]), strict=False)):
        mine = [
            Rectangle(
                (box.start_s / unit_s, box.low_hz / unit_hz),
                (box.stop_s - box.start_s) / unit_s,
                (box.high_hz - box.low_hz) / unit_hz,
            )
            for box in boxes
            if box.label == label
        ]
        style = STYLES[i // (len(COLOURS) - 1) % len(STYLES)]
        axes.add_collection(PatchCollection(mine, facecolor="none", edgecolor=colour, linewidth=0.8, linestyle=style))
        if i < MOST_NAMED:
            axes.add_line(Line2D([], [], color=colour, linewidth=1.5, linestyle=style, label=label))


def draw_timeline(
    times_s: NDArray[np.float64],
    rows: Sequence[int],
    names: Sequence[str],
    path: str | Path,
    *,
    durations_s: NDArray[np.float64] | None = None,
    groups: Sequence[str] | None = None,
    span_s: float | None = None,
) -> Picture:
    """Who sent when: a row for each of `names`, and in it a mark for each frame.

    times_s: (F,) beginnings. rows: (F,) which name each frame belongs to. durations_s: (F,) how long each is drawn.
    groups: (F,) what to tell apart by colour, as "known", "spoofed". span_s: end of the time that is shown.
    """
    if not len(times_s) == len(rows) == len(times_s if groups is None else groups):
        raise DataError(f"a timeline of {len(times_s)} times, {len(rows)} rows: expected as many of each.")
    lasts_s = np.zeros(len(times_s)) if durations_s is None else durations_s
    end_s = span_s or float(np.max(times_s + lasts_s, initial=1e-3))
    unit_s, unit = _time_unit(end_s)
    kinds = [""] * len(times_s) if groups is None else list(groups)
    with canvas(path, PAGE_INCHES, 0.75 + 0.16 * max(len(names), 2)) as figure:
        axes = figure.subplots()
        axes.hlines(np.arange(len(names)), 0, end_s / unit_s, color=GREY, linewidth=0.3)
        for kind, colour in zip(sorted(set(kinds)), cycle(COLOURS), strict=False):
            mine = np.flatnonzero([k == kind for k in kinds])
            starts = times_s[mine] / unit_s
            stops = starts + np.maximum(lasts_s[mine], end_s * SHORTEST) / unit_s
            axes.hlines(np.asarray(rows)[mine], starts, stops, color=colour, linewidth=6, label=kind)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlim=(0, end_s / unit_s), ylim=(len(names) - 0.4, -0.6), xlabel=f"time in {unit}")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if groups is not None and len(kinds):
            figure.legend(loc="outside upper center", ncols=8, handlelength=1)
    return Picture(Path(path), f"Who sent when: {len(times_s)} frames in {len(names)} rows.")


def _time_unit(span_s: float) -> tuple[float, str]:
    """Seconds or milliseconds, whichever gives numbers that can be read."""
    return (1.0, "s") if span_s > 2 else (1e-3, "ms")


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


ABREAST = 3
MOST = 30  # addresses that are drawn: those with the most evidence against them first
CEILING = 12.0  # powers of ten: what is beyond is as good as certain


def plot_evidence(path: str | Path, verdicts: Sequence[ClaimVerdict], alpha: float) -> None:
    """A panel per enrolled address: log10 M against the claim and for it after each tested frame, and 1/α."""
    tested = [verdict for verdict in verdicts if len(verdict.rows)]
    tested = sorted(tested, key=lambda verdict: -float(verdict.against.max()))[:MOST]
    rows = max(1, math.ceil(len(tested) / ABREAST))
    with canvas(path, PAGE_INCHES, 0.5 + 1.35 * rows) as figure:
        grid = figure.subplots(rows, ABREAST, squeeze=False, sharey=True)
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
        for axes in grid.flat[max(0, len(tested) - ABREAST) : len(tested)]:  # the lowest of each column
            axes.set_xlabel("frames tested")
        if tested:
            handles, names = grid.flat[0].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside upper right", ncols=2)
