"""Docs, help, errors and docstrings avoid phrases that a native engineer would not write."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A phrase and what to write instead.
PHRASES = {
    r"of which": "whose; or two sentences",
    r"nobody|no one": "name the agent, or use the passive: 'not enrolled'",
    r"somebody|someone|whoever": "a user, a device, a sender",
    r"unless (it is )?told|unless said": "by default; unless OPTION is given",
    r"(is|are|was|were|be) said|what is said|what .{1,30} says of": "the command prints; a note reports",
    r"no quality that": "does not measure",
    r"on the air who|who is on the air|who only claims": "which devices are transmitting",
    r"a device more|one device more": "adding a device",
    r"hit were|were hit": "these results were affected",
    r"(room|channel|place)s? (alone )?names? (the|a|each|every) device": "gives the device away, identifies",
    r"behind (an|the|that|the same|its) (equaliser|alignment)": "on equalised frames; with an equaliser",
    r"as ever": "as before",
    r"anew": "again; re-",
    r"strangers?('s?)?(?!:)": "unknown device",
    r"impost[eo]rs?": "spoofer; spoofed address",
    r"is told of|are told of|is told by": "knows; is given",
    r"far from success": "near chance",
    r"missing to it": "the gap to",
    r"the house|every room of": "architecture; every module",
    r"who marks": "the evaluator",
    r"what goes wrong|what came out|what was measured": "Errors; Results; Findings",
    r"aimed at": "target",
    r"begins? anew": "restarts",
    r"like (SNR|distances|power)": "similar",
    r"whatever becomes of": "say what happens",
    r"(takes?|in) the place of what": "replaces",
    r"of one's own": "your own",
}
FOUND = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in PHRASES), re.IGNORECASE)


def words_of(text: str) -> str:
    """Prose without code, links' addresses and file names."""
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    text = re.sub(
        r"`[^`\n]*`|\]\([^)]*\)|[\w./-]+\.(?:md|html|json|py|png|svg|rst)\b|#[\w-]+|dataset\.strangers", " ", text
    )
    return " ".join(text.split())


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, help and messages of a module: its strings that hold more than one word."""
    tree = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    keys = {id(node.slice) for node in tree if isinstance(node, ast.Subscript)}  # of records, which stay as they are
    keys |= {id(key) for node in tree if isinstance(node, ast.Dict) for key in node.keys}
    for node in tree:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in keys
        ):
            yield node.lineno, node.value


def hits(path: Path) -> list[str]:
    parts = list(strings(path)) if path.suffix == ".py" else [(0, path.read_text(encoding="utf-8"))]
    where = path.relative_to(ROOT)
    return [f"{where}:{line}: {found[0]}" for line, text in parts for found in FOUND.finditer(words_of(text))]


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs/results").glob("*.md"),
]
CODE = ("pages", *(f"src/pisa_capc/{path.name}" for path in sorted((ROOT / "src/pisa_capc").glob("[a-z]*/"))))
KERNELS = "stacked"  # whose sources decide what a GPU compiles


def test_pages_are_in_plain_english() -> None:
    assert [hit for page in PAGES for hit in hits(page)] == []


@pytest.mark.parametrize("folder", CODE)
def test_help_errors_and_docstrings_are_in_plain_english(folder: str) -> None:
    assert [
        hit for path in sorted((ROOT / folder).rglob("*.py")) if KERNELS not in path.parts for hit in hits(path)
    ] == []
