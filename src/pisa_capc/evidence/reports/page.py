"""One self-contained page: tables and pictures that open from disk without a network."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pisa_capc.core.errors import DataError
from pisa_capc.data.chance import stages_at_chance
from pisa_capc.data.scores import Scores, mean_and_spread, pool
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.evidence.benchmark.render import cell_text
from pisa_capc.evidence.benchmark.results import Mean
from pisa_capc.evidence.evaluation import METRICS

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
h2 { margin-top: 3rem; border-bottom: 2px solid #ddd; }
.wide { overflow-x: auto; }
details td, .words td, .words th { text-align: left; } details td table { margin: 0 0 .5rem; }
summary { font-weight: 600; cursor: pointer; }
.found { font-size: 1.2rem; }
figure { margin: 1rem 0 2rem; } figcaption { font-size: .9rem; color: #444; } figure img { width: 100%; }
figure.narrow { display: inline-block; width: 48.5%; vertical-align: top; margin-right: 1.4%; }
@media (max-width: 50rem) { figure.narrow { width: 100%; } }
"""
NARROW_POINTS = 5 * 72
TYPES = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


class Page:
    """It grows part by part.

    >>> page = Page("A title")
    >>> page.table("Scores", ["stage", "F1"], [["direct", "0.9"]])
    >>> "<td>direct</td>" in page.html()
    True
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []

    def section(self, heading: str) -> None:
        self.parts.append(f"<h2>{escape(heading)}</h2>")

    def text(self, paragraph: str) -> None:
        self.parts.append(f"<p>{escape(paragraph)}</p>")

    def found(self, sentence: str) -> None:
        """The main finding, in larger type."""
        self.parts.append(f'<p class="found">{escape(sentence)}</p>')

    def table(self, caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False) -> None:
        """words: cells hold sentences, not numbers."""
        head = "".join(f"<th>{escape(h)}</th>" for h in headings)
        table = f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{_body(rows)}</table>"
        self.parts.append(f'<div class="wide{" words" * words}">{table}</div>')

    def values(self, caption: str, values: Mapping[str, Any]) -> None:
        """Names and values, one below the other, folded behind their caption; nested values are nested tables."""
        self.parts.append(f'<details class="wide"><summary>{escape(caption)}</summary>{_nested(values)}</details>')

    def picture(self, caption: str, path: Path) -> None:
        """The picture in `path`, as part of the page: over its width, or half of it where it is of one column."""
        if path.suffix not in TYPES:
            raise DataError(f"{path}: a report shows {', '.join(TYPES)} pictures, not {path.suffix or 'this'}.")
        data = base64.b64encode(path.read_bytes()).decode()
        image = f'<img alt="{escape(caption)}" src="data:{TYPES[path.suffix]};base64,{data}">'
        narrow = ' class="narrow"' * _is_narrow(path)
        self.parts.append(f"<figure{narrow}>{image}<figcaption>{escape(caption)}</figcaption></figure>")

    def html(self) -> str:
        title = escape(self.title)
        head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        body = "\n".join(self.parts)
        return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><h1>{title}</h1>\n{body}\n</body></html>\n'

    def save(self, path: str | Path) -> None:
        write_text_atomic(Path(path), self.html())


def _is_narrow(path: Path) -> bool:
    """Whether a drawing is meant for one column of two."""
    head = path.read_text(encoding="utf-8")[:2000] if path.suffix == ".svg" else ""
    width = re.search(r'<svg[^>]*? width="([\d.]+)pt"', head)
    return width is not None and float(width[1]) < NARROW_POINTS


def _body(rows: Sequence[Sequence[str]]) -> str:
    return "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)


def _nested(value: Any) -> str:
    """A mapping as a table of names and values, mappings in a list one below the other, all else as text."""
    if isinstance(value, Mapping) and value:
        rows = (f"<tr><td>{escape(str(name))}</td><td>{_nested(inner)}</td></tr>" for name, inner in value.items())
        return f"<table>{''.join(rows)}</table>"
    if isinstance(value, list | tuple) and any(isinstance(inner, Mapping) for inner in value):
        return "".join(_nested(inner) for inner in value)
    if isinstance(value, list | tuple):
        return escape(", ".join(map(str, value)))
    return "–" if value is None or value == {} else escape(str(value))


def score_tables(page: Page, title: str, found: Mapping[str, Sequence[Scores]]) -> None:
    """Of every stage, over its runs: all metrics, then by capture and by device."""
    first = next(iter(found.values()))[0]

    def table(caption: str, names: Sequence[str], value: Callable[[Scores, str], float]) -> None:
        def cell(runs: Sequence[Scores], name: str) -> str:
            return cell_text(Mean(*mean_and_spread([value(run, name) for run in runs])))

        rows = [[stage, *(cell(runs, name) for name in names)] for stage, runs in found.items()]
        page.table(f"{title}: {caption}", ["stage", *(METRICS.get(name, name) for name in names)], rows)

    table("target scores", list(METRICS), getattr)
    if at_chance := stages_at_chance({stage: pool(runs).confusion for stage, runs in found.items()}):
        page.text(at_chance)
    table("Macro-F1 by capture", list(first.per_capture), lambda scores, name: scores.per_capture[name].macro_f1)
    table("F1 by device", list(first.per_device), lambda scores, name: scores.per_device[name])
