"""How every figure looks and is written: type and widths of an IEEE page, colours that everyone can tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.data.store.files import atomic, write_text_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_INCHES, PAGE_INCHES = 3.5, 7.16  # one and two columns of an IEEE page
FORMATS = ("pdf", "svg", "png")
# Okabe and Ito: told apart with every kind of colour vision. Grey stands in for their yellow, which is lost on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
# One colour per stage, in every figure; their shades differ in print without colour, too.
SINGLE_COLOUR, DIRECT_COLOUR, CALIBRATED_COLOUR, SAFE_COLOUR = "#999999", "#56B4E9", "#0072B2", "#009E73"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#999999"
_LOOK: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "figure.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1,
    "patch.linewidth": 0.6,
    "pdf.fonttype": 42,  # with the next line: text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "pisa-capc",  # with no date in it either, the same figure is the same file
}
_UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


class Picture(NamedTuple):
    """A figure that was written, and what to say under it."""

    path: Path
    caption: str


@contextmanager
def canvas(path: str | Path, width_inches: float, height_inches: float, formulas: bool = False) -> Iterator[Figure]:
    """A figure to draw on, written to `path` when the block ends; the suffix chooses the format.

    formulas: whether $…$ is one. Names of captures and devices are mostly on it, and are no formulas.
    """
    import matplotlib
    from matplotlib.figure import Figure

    path = Path(path)
    kind = check_picture(path)
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
    with matplotlib.rc_context({**_LOOK, "text.parse_math": formulas}):
        yield figure
        try:
            with atomic(path) as temporary:
                figure.savefig(temporary, format=kind, dpi=200, metadata=_UNDATED.get(kind))
        except ValueError as error:
            raise DataError(f"{path}: the picture cannot be written ({error}).") from error


def stage_colour(name: str) -> str:
    """The colour of a stage by what tables call it: Single, what decides directly, after U-CAPC, under the guard.

    >>> stage_colour("PISA-CAPC") == stage_colour("SigMix + U-CAPC") == stage_colour("U-CAPC")
    True
    """
    if name.endswith(("(safe)", "safe")):
        return SAFE_COLOUR
    if "CAPC" in name or "calibrated" in name:
        return CALIBRATED_COLOUR
    return SINGLE_COLOUR if name == "Single" else DIRECT_COLOUR


def score_axis(axes: Axes, upright: bool = False) -> None:
    """Scores end at one. upright: whether they are read upwards."""
    axis, limit = (axes.yaxis, axes.set_ylim) if upright else (axes.xaxis, axes.set_xlim)
    limit(0, 1)
    axis.set_ticks([0, 0.2, 0.4, 0.6, 0.8, 1])


def score_marks(
    axes: Axes, scores: Iterable[float], places: Iterable[float], spreads: Iterable[float], **look: Any
) -> None:
    """Markers from left to right with their spread; the marker of a perfect score is whole."""
    x, y = list(scores), list(places)
    axes.errorbar(x, y, xerr=list(spreads), fmt="none", ecolor=look["color"], elinewidth=0.7)
    axes.scatter(x, y, s=12, linewidths=0, clip_on=False, zorder=3, **look)


def mark_chance(axes: Axes, chance: float, upright: bool = False) -> None:
    """A labelled line at the score of a guess."""
    line = axes.axhline if upright else axes.axvline
    line(chance, color="black", linewidth=0.7, linestyle=":", zorder=0, label=f"chance ({chance:.2g})")


def check_picture(path: Path) -> str:
    """The format that a picture's name asks for; one that cannot be drawn is refused before anything is computed."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    kind = path.suffix.removeprefix(".")
    if kind not in known:
        raise ConfigError(f"{path}: " + unknown_name("picture format", kind, known))
    return kind


def check_format(format: str) -> None:
    """Refuse a format before anything is computed for it."""
    if format not in FORMATS:
        raise ConfigError(unknown_name("format", format, FORMATS))


def write_captions(folder: Path, pictures: Sequence[Picture]) -> Path:
    """The captions of the pictures of a folder, in `captions.md` beside them."""
    path = folder / "captions.md"
    write_text_atomic(path, "".join(f"**{p.path.name}** {p.caption}\n\n" for p in pictures))
    return path
