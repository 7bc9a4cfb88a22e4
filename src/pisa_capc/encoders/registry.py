"""The registry of encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn

from pisa_capc.errors import ConfigError, unknown_name

WIDTH = 32  # temporal feature width d of all encoders (Table "encoder_families")


class Encoder(nn.Module):
    """Base of the encoders: (R, N, T, 2·streams) → (R, N, T', WIDTH)."""

    # Whether torch.compile should fuse the features on a GPU; the convolutional encoders bring their own kernels.
    compile_on_gpu = False
    fast_features: Callable[[Tensor], Tensor] | None = None  # the compiled form, used in training

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()

    def features(self, x: Tensor) -> Tensor:
        """What a subclass writes."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.fast_features is not None:
            return self.fast_features(x)
        return self.features(x)


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
