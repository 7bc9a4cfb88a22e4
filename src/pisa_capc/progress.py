"""The one progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Results go to standard output, everything about the way there to standard error.
console = Console(stderr=True)


@contextmanager
def progress(description: str, total: int | None, show: bool = True) -> Iterator[Bar]:
    """A bar with count, elapsed and remaining time; `bar.advance(n, note)` moves it.

    Where standard error is not a terminal (logs, CI) nothing is animated; only the end is printed.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
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
        fields = {} if note is None else {"note": note}
        self._display.update(self._task, advance=steps, **fields)  # type: ignore[arg-type]
