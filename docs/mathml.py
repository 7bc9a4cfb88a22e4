"""Formulas as MathML, which browsers draw themselves: the site opens from disk, without a network."""

from __future__ import annotations

from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml


def connect(app: Any) -> None:
    app.add_html_math_renderer("mathml", (inline, None), (display, None))


def inline(translator: Any, node: Any) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise SkipNode


def display(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode
