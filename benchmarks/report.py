"""What every benchmark prints, a table for people and the same figures as one JSON object on the last line, and where
what it printed is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pisa_capc.core.errors import PisaError
from pisa_capc.core.provenance import machine, made

RESULTS = Path("results")
RECORDS = RESULTS / "records"  # of protocols, a folder each


def read(name: str) -> Any:
    """A committed record."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def begin(main: Callable[[], None]) -> None:
    """A benchmark; what it cannot work with ends in one line, as at the command line of the package."""
    try:
        main()
    except PisaError as error:
        raise SystemExit(f"error: {error}") from None


def show(title: str, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any] | None = None) -> None:
    """Print `rows` as a table with their keys as columns, then everything as JSON."""
    show_table(title, rows)
    print(json.dumps({"benchmark": title, **of_what(), **(facts or {}), "rows": list(rows)}))


def of_what() -> dict[str, Any]:
    """What a record was made with."""
    return {"machine": machine(), "made": made()}


def show_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print `rows` as a table with their keys as columns."""
    table = Table(title=title)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for name in columns:
        table.add_column(name, justify="left" if isinstance(rows[0].get(name), str) else "right")
    for row in rows:
        table.add_row(*(_text(row.get(name)) for name in columns))
    Console(width=160).print(table)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and abs(value) < 100
        else f"{value:,.0f}"
        if isinstance(value, float)
        else str(value)
    )
