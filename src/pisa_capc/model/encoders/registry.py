"""The registry of encoders."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.registry import Registry
from pisa_capc.model.encoders.base import Encoder
from pisa_capc.model.encoders.ordinary import Ordinary, encoder_of
from pisa_capc.model.stacked import check_run_axis

ENCODERS: Registry[type[Encoder]] = Registry("encoder")
_checked: set[tuple[type, int]] = set()  # classes whose parameters are known to have an axis of runs, and for what
C = TypeVar("C", bound=Callable[..., nn.Module])


def register_encoder(name: str, *, ordinary: bool = False) -> Callable[[C], C]:
    """Make an encoder class known under `name`.

    ordinary: it is a plain module instead, built as `Mine(channels)`: (N, channels, T) → (N, WIDTH, T′) with
    channels = 2 × streams, in-phase parts of all streams before their quadrature parts. Each run gets a copy of it.
    """

    def add(part: C) -> C:
        _check_signature(name, part, *((2,) if ordinary else (1, 1)))
        ENCODERS.add(name, encoder_of(name, part) if ordinary else part)  # type: ignore[arg-type]
        return part

    return add


def _check_signature(name: str, part: Callable[..., Any], *arguments: int) -> None:
    called = getattr(part, "__name__", str(part))
    try:
        inspect.signature(part).bind(*arguments)
    except TypeError as error:
        expected = f"{called}(channels)" if len(arguments) == 1 else f"{called}(streams, runs)"
        other = "" if len(arguments) == 1 else " Register a plain module, built as Mine(channels), with ordinary=True."
        raise ConfigError(f"encoder {name!r}: cannot be built as {expected}: {error}.{other}") from error


def encoder_names() -> list[str]:
    """Names of all encoders, those of the paper first and in its order."""
    return list(ENCODERS)


def encoder_title(name: str) -> str:
    """What tables and figures call an encoder; its name where the class has no title, or is not here."""
    return str(vars(ENCODERS[name]).get("title", name)) if name in ENCODERS else name


def build_encoder(name: str, streams: int = 1, runs: int = 1) -> Encoder:
    """A new encoder for `streams` complex input streams and `runs` stacked runs."""
    cls = ENCODERS[name]
    if (cls, streams) not in _checked and not issubclass(cls, Ordinary):
        check_run_axis(lambda count: cls(streams, count), f"encoder {name!r}")
        _checked.add((cls, streams))
    return cls(streams, runs)
