"""TCN: dilated residual convolutions."""

from __future__ import annotations

from torch import nn

from pisa_capc.model.encoders.base import WIDTH, Convolutional
from pisa_capc.model.encoders.registry import register_encoder
from pisa_capc.model.encoders.resnet import Residual
from pisa_capc.model.stacked import ConvNorm


@register_encoder("tcn")
class TCN(Convolutional):
    """One convolution of kernel 3, then three non-causal residual blocks with dilations 1, 2 and 4."""

    title = "TCN"

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ConvNorm(2 * streams, WIDTH, 3, runs), Residual(runs, 1), Residual(runs, 2))
        self.last = Residual(runs, 4)
