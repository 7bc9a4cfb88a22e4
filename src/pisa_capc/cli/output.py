"""How the commands read lists and print tables."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import PlainConsole, visible
from pisa_capc.core.progress import console as notes


def listed(names: str) -> list[str]:
    """'E2, E3' → ['E2', 'E3']."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    if not found:
        raise ConfigError(f"expected one or more names separated by commas, found {names!r}.")
    return found


def listed_numbers(option: str, text: str) -> list[int]:
    """'2026,2027' → [2026, 2027], each once."""
    try:
        numbers = [int(name) for name in listed(text)]
    except ValueError as error:
        raise ConfigError(f"{option}: expected whole numbers separated by commas, found {text!r}.") from error
    if not numbers or min(numbers) < 0:
        raise ConfigError(f"{option}: expected one or more numbers from 0 on, found {text!r}.")
    return list(dict.fromkeys(numbers))


def with_spread(mean: float, spread: float | None) -> str:
    """'0.912 ± 0.004', or the mean alone."""
    return f"{mean:.4f}" if spread is None else f"{mean:.4f} ± {spread:.4f}"


def say(text: str) -> None:
    """A line on standard output: names in it, of files too, are shown and not obeyed."""
    print(visible(text))


def say_written(pictures: Sequence[Any], captions: Path, as_json: bool) -> None:
    """The files of pictures, and that of their captions."""
    if as_json:
        print(json.dumps({"figures": [str(picture.path) for picture in pictures], "captions": str(captions)}))
        return
    for picture in pictures:
        say(str(picture.path))
    notes.print(f"captions: {captions}", highlight=False, soft_wrap=True)


WIDE, READABLE = 200, 100  # characters of a line where nobody's terminal sets them: of numbers, and of words alone


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    last: Sequence[str] = (),
    left: Sequence[str] | None = None,
) -> None:
    """A table on standard output.

    last: a row set apart. left: headings of the columns that hold words, not numbers; by default the first. Where all
    do, what comes after the second stands below it.
    """
    words = headings[:1] if left is None else left
    wordy = set(words) >= set(headings)
    if wordy:
        headings, rows = headings[:2], [_stacked(headings, row) for row in rows]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in words else "right", overflow="fold")
    for i, row in enumerate(rows, 1):
        table.add_row(*row, end_section=i == len(rows))
    if last:
        table.add_row(*last, style="bold")
    wide_console(READABLE if wordy else WIDE).print(table)  # words can be wrapped, numbers cannot


def _stacked(headings: Sequence[str], row: Sequence[str]) -> list[str]:
    """Two cells of a row of words: many columns of them would be narrow and long."""
    below = [f"{heading}: {cell}" for heading, cell in zip(headings[2:], row[2:], strict=False) if cell]
    return [row[0], "\n".join([*row[1:2], *below])]


def wide_console(width: int = WIDE) -> Console:
    """Standard output, on which a table is not squeezed where no terminal says how wide it is."""
    out = PlainConsole()
    if not out.is_terminal:
        out.width = width
    return out


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """What a calculation warns about, said at once and once each, as a note without the line of code it comes from."""
    said: set[str] = set()

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        if (text := str(message)) not in said:
            said.add(text)
            notes.print(f"note: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.filterwarnings("always", r"pisa_capc\.", DeprecationWarning)  # old names in a plugin
        warnings.showwarning = say
        yield
