"""MSCNN: multi-scale convolutions."""

from __future__ import annotations

from torch import nn

from pisa_capc.model.encoders.base import WIDTH, Convolutional
from pisa_capc.model.encoders.registry import register_encoder
from pisa_capc.model.stacked import BatchNorm, ConvChain, Convolution
from pisa_capc.model.stacked.layers import conv_parameters

BRANCHES = ((3, 10), (7, 10), (15, 12))  # kernel, channels


class MultiScale(ConvChain):
    """Parallel convolutions of kernels 3, 7 and 15 whose outputs are concatenated, one batch norm, ReLU."""

    def __init__(self, inputs: int, runs: int) -> None:
        super().__init__()
        parameters = [conv_parameters(inputs, channels, kernel, runs) for kernel, channels in BRANCHES]
        self.weights = nn.ParameterList(weight for weight, _ in parameters)
        self.biases = nn.ParameterList(bias for _, bias in parameters)
        self.norm = BatchNorm(WIDTH, runs)

    def convolutions(self) -> list[Convolution]:
        return [Convolution(list(self.weights), list(self.biases), self.norm)]


@register_encoder("mscnn")
class MSCNN(Convolutional):
    """Three multi-scale blocks of 10 + 10 + 12 channels."""

    title = "MSCNN"

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(MultiScale(2 * streams, runs), MultiScale(WIDTH, runs))
        self.last = MultiScale(WIDTH, runs)
