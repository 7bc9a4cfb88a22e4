"""The registry of encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from pisa_capc.errors import ConfigError, unknown_name
from pisa_capc.stacked import Fusable

WIDTH = 32  # temporal feature width d of all encoders (Table "encoder_families")


class Encoder(Fusable):
    """Base of the encoders: (R, N, T, 2·streams) → (R, N, tokens, WIDTH), or (R, N, T', WIDTH) without `tokens`."""

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()

    def forward(self, x: Tensor, tokens: int | None = None) -> Tensor:
        """Features of each stream; with `tokens`, their adaptive average over that many spans of time."""
        raise NotImplementedError


_registry: dict[str, type[Encoder]] = {}
E_ = TypeVar("E_", bound=type[Encoder])


def register(name: str) -> Callable[[E_], E_]:
    """Make an encoder class known under `name`."""

    def add(cls: E_) -> E_:
        _registry[name] = cls
        return cls

    return add


def encoder_names() -> list[str]:
    """Names of all registered encoders, in the paper's order of first appearance."""
    order = ["cnn", "mscnn", "resnet", "tcn", "cvcnn", "cldnn", "transformer"]
    return [n for n in order if n in _registry] + sorted(set(_registry) - set(order))


def build_encoder(name: str, streams: int = 1, runs: int = 1) -> Encoder:
    """A new encoder for `streams` complex input streams and `runs` stacked runs."""
    if name not in _registry:
        raise ConfigError(unknown_name("encoder", name, _registry))
    return _registry[name](streams, runs)
