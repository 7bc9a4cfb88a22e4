"""What an encoder is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.registry import Registry
from pisa_capc.model.stacked import ConvChain, Convolution, Fusable, PerRun, adaptive_tokens, check_run_axis

WIDTH = 32  # temporal feature width d of all encoders (Table "encoder_families")


class Encoder(Fusable):
    """Base of the encoders: (R, N, T, 2·streams) → (R, N, tokens, WIDTH), or (R, N, T', WIDTH) without `tokens`."""

    title: ClassVar[str]  # what tables and figures call it; the name it is registered under where it says nothing
    # Both are said of a `forward`; one of a subclass says them again.
    # Whether equal streams give equal features in training, so that they need be computed only once. Then `forward`
    # also takes `counts`, how often each stream counts.
    counting: ClassVar[bool] = False
    # Whether streams do not depend on each other in training. Then `forward` also takes `present`, (R, N), and may
    # leave out those for which it is false: of these the features do not matter.
    skipping: ClassVar[bool] = False

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "forward" in vars(cls):
            cls.counting = vars(cls).get("counting", False)
            cls.skipping = vars(cls).get("skipping", False)

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()

    def forward(self, x: Tensor, tokens: int | None = None) -> Tensor:
        """Features of each stream; with `tokens`, their adaptive average over that many spans of time."""
        raise NotImplementedError


class Convolutional(ConvChain, Encoder):
    """An encoder that is a chain of convolutions: those of `blocks`, then those of `last`."""

    counting = True
    blocks: nn.Sequential
    last: nn.Module

    def convolutions(self) -> list[Convolution]:
        return [c for block in (*self.blocks, self.last) for c in block.convolutions()]


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
    """The title of an encoder in tables and figures; its name if the class is unknown or has no title."""
    return str(vars(ENCODERS[name]).get("title", name)) if name in ENCODERS else name


def build_encoder(name: str, streams: int = 1, runs: int = 1) -> Encoder:
    """A new encoder for `streams` complex input streams and `runs` stacked runs."""
    cls = ENCODERS[name]
    if (cls, streams) not in _checked and not issubclass(cls, Ordinary):
        check_run_axis(lambda count: cls(streams, count), f"encoder {name!r}")
        _checked.add((cls, streams))
    return cls(streams, runs)
