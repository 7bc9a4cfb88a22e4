"""The public surface as a page of the site: what `pisa_capc` itself offers, then module by module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass, isroutine
from pathlib import Path
from typing import Any

import pisa_capc

ARCHITECTURE = Path("docs/architecture.md")  # whose table names the modules and their entries
WITHOUT = ("cli", "evidence.figures", "model.stacked")  # the command line has its own page; the others are internal


def page() -> str:
    own = [name for name in pisa_capc.__all__ if _is_documented(getattr(pisa_capc, name))]
    listed = {id(getattr(pisa_capc, name)) for name in own}
    parts = [
        "Python API\n==========\n",
        "``pisa_capc`` itself has what most programs need. The rest follows by module, as in :doc:`../architecture`, "
        "in the order in which data flows. Every page ends with the examples that use the object.\n",
        _section("pisa_capc", "Most used", [f"pisa_capc.{name}" for name in own]),
    ]
    for home, about, entries in modules():
        names = [name for name, value in public(home, entries) if id(value) not in listed]
        listed |= {id(value) for _, value in public(home, entries)}
        if names:
            parts.append(_section(f"pisa_capc.{home}", about, names))
    return "\n".join(parts)


def modules() -> Iterator[tuple[str, str, list[str]]]:
    """Every module with what is in it and what the table calls the entries."""
    section = ARCHITECTURE.read_text(encoding="utf-8").split("## Modules")[1].split("\n## ")[0]
    for row in section.splitlines():
        if row.startswith("| `"):
            names, about, entries = (cell.strip() for cell in row.strip("|").split("|"))
            for home in re.findall(r"`([\w.]+)`", names):
                if home not in WITHOUT:
                    yield home, about, re.findall(r"`(\w+)`", entries)


def public(home: str, entries: list[str]) -> Iterator[tuple[str, Any]]:
    """Functions and classes that a module exports, or else its entries, by their full names."""
    module = import_module(f"pisa_capc.{home}")
    for name in dict.fromkeys([*getattr(module, "__all__", []), *entries]):
        value = getattr(module, name, None)
        if value is not None and _is_documented(value):
            yield f"pisa_capc.{home}.{name}", value


def _is_documented(value: Any) -> bool:
    return (isclass(value) or isroutine(value)) and bool(value.__doc__)


def _section(title: str, about: str, names: list[str]) -> str:
    heading = f"{title}\n{'-' * len(title)}\n\n{about[0].upper() + about[1:]}.\n"
    return f"{heading}\n.. autosummary::\n   :toctree: objects\n\n" + "".join(f"   {name}\n" for name in names)
