"""Where the decisions of each stage go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pisa_capc.figures.style import Picture
from pisa_capc.scores import Scores, plot_confusions, pool


def confusion_figure(stages: Mapping[str, Sequence[Scores]], path: Path) -> Picture:
    """A confusion matrix per stage, of all its runs together. stages: the scores of all runs, by the stage's name."""
    plot_confusions(path, {name: pool(runs) for name, runs in stages.items()})
    most = max(map(len, stages.values()))
    together = f"; {most} runs together" if most > 1 else ""
    return Picture(path, f"Decisions on the target by stage, in percent of a device's frames{together}.")
