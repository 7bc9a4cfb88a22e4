"""What an encoder is."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from pisa_capc.model.stacked import ConvChain, Convolution, Fusable

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
