"""Ordinary modules as encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.encoders.base import WIDTH, Encoder
from pisa_capc.model.stacked import PerRun, adaptive_tokens


class Ordinary(Encoder):
    """A plain module (N, channels, T) → (N, WIDTH, T′) as an encoder: one copy a run, see `PerRun`."""

    name: ClassVar[str]

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.net = PerRun(lambda: self._copy(2 * streams), runs)

    def plain(self, channels: int) -> nn.Module:
        raise NotImplementedError

    def _copy(self, channels: int) -> nn.Module:
        module = self.plain(channels)
        if not isinstance(module, nn.Module):
            raise ConfigError(f"encoder {self.name!r}: expected a torch.nn.Module, found {type(module).__name__}.")
        if lazy := [name for name, value in module.named_parameters() if is_lazy(value)]:
            raise ConfigError(
                f"encoder {self.name!r}: {lazy[0]} has no shape before the first frame, so runs cannot be copied. "
                "Give the layer its number of inputs."
            )
        return module

    def forward(self, x: Tensor, tokens: int | None = None) -> Tensor:
        frames = x.transpose(2, 3).contiguous()  # (R, N, channels, T)
        parts = self.net.each(frames)
        self._check_output(parts[0], tuple(frames.shape[1:]))
        y = torch.stack(parts).transpose(2, 3)
        return y if tokens is None else adaptive_tokens(y, tokens)

    def _check_output(self, y: Any, given: tuple[int, ...]) -> None:
        found = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        if not isinstance(found, tuple) or len(found) != 3 or found[:2] != (given[0], WIDTH) or not found[2]:
            raise ConfigError(
                f"encoder {self.name!r}: gave {found} for frames {given}; expected ({given[0]}, {WIDTH}, T′), "
                f"{WIDTH} channels at one or more times T′."
            )


def encoder_of(name: str, plain: Callable[[int], nn.Module]) -> type[Encoder]:
    """The encoder whose runs each are a `plain(channels)`; title, documentation and module are its own."""

    class Made(Ordinary):
        def plain(self, channels: int) -> nn.Module:
            return plain(channels)

    Made.name = name
    Made.__name__ = Made.__qualname__ = getattr(plain, "__name__", name)
    Made.__doc__, Made.__module__ = plain.__doc__, plain.__module__
    if "title" in vars(plain):
        Made.title = vars(plain)["title"]
    return Made
