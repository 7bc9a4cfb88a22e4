"""CLDNN: convolutions, then a recurrent layer."""

from __future__ import annotations

from torch import Tensor, nn

from pisa_capc.model.encoders.base import WIDTH, Encoder
from pisa_capc.model.encoders.registry import register_encoder
from pisa_capc.model.stacked import GRU, ConvNorm, Counts, conv_chain


@register_encoder("cldnn")
class CLDNN(Encoder):
    """Two convolutions of kernels 7 and 5, then a one-layer bidirectional GRU of 16 units per direction."""

    title = "CLDNN"
    counting = True

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            ConvNorm(2 * streams, WIDTH, 7, runs), ConvNorm(WIDTH, WIDTH, 5, runs), GRU(WIDTH, WIDTH // 2, runs)
        )

    def forward(self, x: Tensor, tokens: int | None = None, counts: Counts | None = None) -> Tensor:
        convolutions = [c for block in self.blocks if isinstance(block, ConvNorm) for c in block.convolutions()]
        y: Tensor = self.blocks[-1](conv_chain(x, convolutions, counts=counts), tokens, counts)
        return y
