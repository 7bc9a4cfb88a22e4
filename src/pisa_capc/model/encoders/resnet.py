"""ResNet: residual convolutions."""

from __future__ import annotations

from torch import nn

from pisa_capc.model.encoders.base import WIDTH, Convolutional
from pisa_capc.model.encoders.registry import register_encoder
from pisa_capc.model.stacked import ConvChain, ConvNorm, Convolution


class Residual(ConvChain):
    """ReLU(x + BN(conv(ReLU(BN(conv(x)))))), kernel 3, both convolutions with the same dilation."""

    def __init__(self, runs: int, dilation: int = 1) -> None:
        super().__init__()
        self.first = ConvNorm(WIDTH, WIDTH, 3, runs, dilation=dilation)
        self.second = ConvNorm(WIDTH, WIDTH, 3, runs, dilation=dilation)

    def convolutions(self) -> list[Convolution]:
        return [*self.first.convolutions(), *self.second.convolutions(residual=True)]


@register_encoder("resnet")
class ResNet(Convolutional):
    """One convolution of kernel 7, then two residual blocks of two kernel-3 convolutions."""

    title = "ResNet"

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ConvNorm(2 * streams, WIDTH, 7, runs), Residual(runs))
        self.last = Residual(runs)
