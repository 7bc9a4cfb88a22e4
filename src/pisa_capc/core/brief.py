"""Objects in a line: arrays by their shapes, and long lists by their lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

LONGEST = 60  # characters of a value that is shown


def brief(self: Any) -> str:
    """The `__repr__` of a dataclass that holds arrays; what is None is left out.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Scored:
    ...     name: str
    ...     score: object
    ...     __repr__ = brief
    >>> import numpy as np
    >>> Scored("roof", np.zeros((5000, 10)))
    Scored(name='roof', score=(5000, 10) float64)
    """
    values = ((field.name, getattr(self, field.name)) for field in fields(self) if field.repr)
    return f"{type(self).__name__}({', '.join(f'{name}={_short(one)}' for name, one in values if one is not None)})"


def _short(value: Any) -> str:
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and kind is not None:
        return f"{tuple(shape)} {str(kind).removeprefix('torch.')}" if len(shape) else f"{value.item():.6g}"
    if isinstance(value, Mapping | list | tuple) and (len(value) > 8 or len(repr(value)) > LONGEST):
        return f"<{len(value):,} of {type(value).__name__}>"
    text = repr(value)
    return text if len(text) <= LONGEST else f"<{type(value).__name__}>"
