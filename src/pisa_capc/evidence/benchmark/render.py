"""Tables as Markdown and LaTeX, flat rows as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pisa_capc.evidence.benchmark.results import Difference, Mean
from pisa_capc.evidence.benchmark.tables import COLUMNS, Cell, Table

LATEX = {"Δ": r"$\Delta$", "→": r"$\rightarrow$", "±": r"$\pm$", "%": r"\%", "&": r"\&", "_": r"\_", "–": "--"}


def markdown(tables: Sequence[Table]) -> str:
    """Tables that a page on GitHub shows, each under its title."""
    return "\n".join(_markdown(table) for table in tables)


def _markdown(table: Table) -> str:
    sides = ["---" if words else "---:" for words in _words(table)]
    lines = [f"### {table.title}", "", _row(table.headings), _row(sides)]
    lines += [_row([cell_text(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, "", table.note, ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _words(table: Table) -> list[bool]:
    """Which columns hold words and no numbers; the first names the row."""
    return [i == 0 or any(isinstance(row[i], str) for row in table.rows) for i in range(len(table.headings))]


def cell_text(cell: Cell) -> str:
    if isinstance(cell, Mean):
        return (f"{cell.mean:.4f}" if cell.std is None else f"{cell.mean:.4f} ± {cell.std:.4f}") + _collapsed(cell)
    if isinstance(cell, Difference):
        return f"{cell.mean:+.4f} [{cell.low:+.4f}, {cell.high:+.4f}]"
    return "–" if cell is None else str(cell)


def _collapsed(cell: Mean) -> str:
    """', median 0.9636, 44 % collapsed', where some trainings have."""
    return "" if cell.median is None else f", median {cell.median:.4f}, {100 * cell.collapsed:.0f} % collapsed"


def latex(tables: Sequence[Table]) -> str:
    """Tables for a paper; they need the package booktabs."""
    return "\n".join(_latex(table) for table in tables)


def _latex(table: Table) -> str:
    lines = [
        r"\begin{table*}[!t]",
        r"\centering",
        rf"\caption{{{_escaped(table.title)}. {_escaped(table.note)}}}",
        rf"\begin{{tabular}}{{@{{}}{''.join('l' if words else 'c' for words in _words(table))}@{{}}}}",
        r"\toprule",
        " & ".join(map(_escaped, table.headings)) + r" \\",
        r"\midrule",
        *(" & ".join(cells) + r" \\" for cells in _with_best(table)),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table*}",
        "",
    ]
    return "\n".join(lines)


def _with_best(table: Table) -> list[list[str]]:
    """Every cell, the highest mean of each column in bold where it has several."""
    columns = []
    for column in zip(*table.rows, strict=True):
        means = [round(cell.mean, 4) for cell in column if isinstance(cell, Mean)]
        best = max(means) if len(means) > 1 else math.inf
        columns.append([_mathematics(c, isinstance(c, Mean) and round(c.mean, 4) == best) for c in column])
    return [list(row) for row in zip(*columns, strict=True)]


def _mathematics(cell: Cell, bold: bool = False) -> str:
    if isinstance(cell, Mean):
        number = rf"\mathbf{{{cell.mean:.4f}}}" if bold else f"{cell.mean:.4f}"
        spread = "" if cell.std is None else rf"\pm{cell.std:.4f}"
        return f"${number}{spread}$" + _escaped(_collapsed(cell))
    if isinstance(cell, Difference):
        return f"${cell.mean:+.4f}$ $[{cell.low:+.4f}, {cell.high:+.4f}]$"
    return _escaped(cell_text(cell))


def _escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of `flat_rows` with a heading; a number that is not defined is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {"markdown": markdown, "latex": latex}
