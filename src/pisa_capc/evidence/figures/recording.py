"""What a recording holds: the spectrum over time with a box around each frame, and who sent when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.evidence.figures.style import COLOURS, GREY, PAGE_INCHES, Picture, canvas

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
