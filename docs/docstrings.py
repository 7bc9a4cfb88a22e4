"""Docstrings of the package as reStructuredText: they are plain text with equations in Unicode."""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import fields, is_dataclass
from typing import Any

from docutils import nodes
from pages import schemas

# What would be markup and is mathematics: |x|, a*, x_ at the end of a word. Directives and inline maths are left alone.
_MARKUP = re.compile(r"(?<!\\)([|*])|(?<=\w)_(?=[\s,.;:)]|$)")
_HELP = re.compile(r"""(?:~?[\w.]*\.)?Annotated\[((?:[^\[\]]|\[[^\]]*\])*?), (?:'[^']*'|"[^"]*")\]""")
_KEPT = re.compile(r"(:\w+:`[^`]*`|`[^`]*`)")


def connect(app: Any) -> None:
    app.connect("autodoc-process-docstring", readable)
    app.connect("autodoc-process-signature", without_help)
    app.connect("doctree-read", with_dashes)


def readable(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape what is not meant as markup, keep indented lists as they stand, and say what parameters are."""
    lines[:] = [*_escaped(lines), *_parameters(thing)]


def without_help(app: Any, what: str, name: str, thing: Any, options: Any, signature: str, returns: str) -> Any:
    """`Annotated[int, "words"]` is the command line's help; of a signature the type is enough."""
    return _HELP.sub(r"\1", signature or "") or signature, returns


def with_dashes(app: Any, doctree: Any) -> None:
    """Between a parameter and its words; without `smartquotes` Sphinx leaves two hyphens there."""
    for found in [text for text in doctree.findall(nodes.Text) if text == " -- "]:
        found.parent.replace(found, nodes.Text(" – "))


def _escaped(lines: list[str]) -> list[str]:
    """Prose with its mathematics escaped; directives and doctests as they are; indented lists as literal blocks."""
    found: list[str] = []
    state = "prose"
    for line in lines:
        indented, empty = line.startswith("   "), not line.strip()
        if (state == "directive" and (indented or empty)) or (state == "doctest" and not empty):
            found.append(line)
        elif line.lstrip().startswith((".. ", ">>>")):
            state = "directive" if line.lstrip().startswith("..") else "doctest"
            found.append(line)
        elif indented:
            found += [line] if state == "list" else ["", "::", "", line]
            state = "list"
        else:
            found += [""] if state == "list" else []
            state = "prose"
            found.append(_plain(line))
    return found


def _plain(line: str) -> str:
    return "".join(part if _KEPT.fullmatch(part) else _MARKUP.sub(r"\\\g<0>", part) for part in _KEPT.split(line))


def _parameters(thing: Any) -> list[str]:
    """What a function says of its parameters in their annotations, and a dataclass of its settings beside them."""
    if inspect.isclass(thing) and is_dataclass(thing):
        settings = {setting.name for setting in fields(thing) if setting.init}
        helps = {name: words for name, words in schemas.beside(thing).items() if name in settings}
    elif inspect.isroutine(thing):
        try:
            hints = typing.get_type_hints(thing, include_extras=True)
        except (NameError, TypeError):
            return []
        helps = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    else:
        return []
    return ["", *(f":param {name}: {_plain(words)}" for name, words in helps.items())] if helps else []
