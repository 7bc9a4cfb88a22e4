"""How every figure looks and is written: type and widths of an IEEE page, colours that everyone can tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pisa_capc.errors import ConfigError, DataError, unknown_name
from pisa_capc.store.files import atomic, write_text_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN_INCHES, PAGE_INCHES = 3.5, 7.16  # one and two columns of an IEEE page
FORMATS = ("pdf", "svg", "png")
# Okabe and Ito: told apart with every kind of colour vision. Grey stands in for their yellow, which is lost on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
LIGHT = COLOURS[4:6] + COLOURS[7:]  # those on which black can be read and white cannot
STAGE_COLOURS = ("#999999", "#56B4E9", "#0072B2", "#009E73")  # their shades differ in print without colour, too
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
