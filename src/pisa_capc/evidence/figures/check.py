"""A dataset's check in one picture: what names its devices, how well it was received, how loud its antennas are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from pisa_capc.evidence.checks import Checked
from pisa_capc.evidence.checks.antennas import recording_snr_db
from pisa_capc.evidence.checks.evidence import Evidence
from pisa_capc.evidence.checks.naming import Named, PlaceNamed
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, Picture, canvas, mark_chance

MOST_NAMES = 30  # that are legible below an axis
QUESTIONS = {"later": "later in the recording", "next": "one frame later", "elsewhere": "in other captures"}


def check_picture(checked: Checked, path: Path) -> Picture:
    """Draw it; the suffix of `path` chooses the format."""
    evidence = checked.evidence
    with canvas(path, PAGE_INCHES, 4.6) as figure:
        axes = figure.subplots(2, 2)
        _draw_naming(axes[0, 0], "Devices named by channels alone", evidence.room)
        _draw_naming(axes[0, 1], "Devices named by the recorded CFO alone", evidence.recorded_cfo)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        _draw_snr(axes[1, 0], evidence)
        _draw_antennas(axes[1, 1], evidence)
    caption = (
        "Check of a dataset. Above: balanced accuracy of the nearest mean by one quantity alone, in every environment "
        "and capture, with 95 % intervals; the dotted line is chance. Channels that name devices later in their "
        "recording, and not in other captures, are the room. Below: SNR of each recording and power of its antennas."
    )
    return Picture(path, caption)


def _draw_naming(axes: Axes, title: str, places: list[PlaceNamed] | None) -> None:
    axes.set_title(title, loc="left")
    axes.set(ylabel="balanced accuracy", ylim=(0, 1.02))
    if not places:
        axes.text(0.5, 0.5, "cannot be told", ha="center", va="center", transform=axes.transAxes)
        return
    for i, (question, label) in enumerate(QUESTIONS.items()):
        told: list[tuple[int, Named]] = [
            (x, own) for x, place in enumerate(places) if (own := getattr(place, question)) is not None
        ]
        if told:
            at = [x + 0.27 * (i - 1) for x, _ in told]
            height = [own.accuracy for _, own in told]
            ends = np.abs([[own.accuracy - own.low, own.high - own.accuracy] for _, own in told]).T
            axes.bar(at, height, 0.25, color=COLOURS[i], label=label, yerr=ends, error_kw={"lw": 0.6})
    chance = [own.chance for place in places if (own := place.later or place.next or place.elsewhere) is not None]
    mark_chance(axes, float(np.mean(chance)), upright=True)
    _name_places(axes, [place.name for place in places])


def _draw_snr(axes: Axes, evidence: Evidence) -> None:
    axes.set_title("SNR of each recording", loc="left")
    level_db = recording_snr_db(evidence)
    if level_db is None:
        axes.text(0.5, 0.5, "no preamble to measure it by", ha="center", va="center", transform=axes.transAxes)
        return
    place = evidence.found.frames.capture_key
    names = sorted({str(name) for name in place})
    at = [names.index(str(place[own[0]])) for own in evidence.by_recording.values()]
    axes.plot(at, list(level_db.values()), "o", color=COLOURS[0], markersize=2.5, alpha=0.6)
    axes.set_ylabel("dB")
    _name_places(axes, names)


def _draw_antennas(axes: Axes, evidence: Evidence) -> None:
    """Each recording a line: antennas that hear nothing stand out below."""
    axes.set_title("Power of each antenna", loc="left")
    for own in evidence.by_recording.values():
        power = np.median(evidence.found.power[own], axis=0)
        level_db = 10 * np.log10(np.maximum(power / power.max(), 1e-8))
        axes.plot(np.arange(len(power)), level_db, "o-", color=COLOURS[0], linewidth=0.4, markersize=2, alpha=0.3)
    axes.set(xlabel="antenna", ylabel="dB of the loudest")
    axes.set_xticks(range(evidence.frames.antennas))
    axes.set_ylim(top=1, bottom=min(axes.get_ylim()[0], -10))


def _name_places(axes: Axes, names: list[str]) -> None:
    step = -(-len(names) // MOST_NAMES)
    axes.set_xticks(range(0, len(names), step), names[::step], rotation=90 if len(names) > 6 else 0)
    axes.set_xlim(-0.6, len(names) - 0.4)
