"""Output of running jobs: one console, one progress bar, and one way to print user-supplied names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text


def visible(text: str) -> str:
    """The text with its control characters written out: names come from files of others.

    >>> print(visible("room\x1b[2J, D1"))
    room\\x1b[2J, D1
    """
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class PlainConsole(Console):
    """A console that shows text as it is, in cells of tables too: brackets in a name are no markup."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **{**options, "markup": False, "emoji": False})


# Results go to standard output, everything about the way there to standard error.
console = PlainConsole(stderr=True)


@contextmanager
def progress(description: str, total: int | None, show: bool = True) -> Iterator[Bar]:
    """A bar with count, elapsed and remaining time; `bar.advance(n, note)` moves it.

    Where standard error is not a terminal (logs, CI) nothing is animated; only the end is printed.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as display:
        task = display.add_task(description, total=total, note="")
        yield Bar(display, task)


class Bar:
    """Handle on one running progress bar."""

    def __init__(self, display: Progress, task: object) -> None:
        self._display = display
        self._task = task

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        fields = {} if note is None else {"note": visible(note)}
        self._display.update(self._task, advance=steps, **fields)  # type: ignore[arg-type]
