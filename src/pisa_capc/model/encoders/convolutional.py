"""Encoders of convolutions: CNN, MSCNN, ResNet, TCN, CVCNN, and CLDNN with a recurrent layer behind them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pisa_capc.model.encoders.base import WIDTH, Convolutional, Encoder, register_encoder
from pisa_capc.model.stacked import GRU, BatchNorm, ConvChain, ConvNorm, Convolution, Counts, conv_chain
from pisa_capc.model.stacked.layers import conv_parameters


@register_encoder("cnn")
class CNN(Convolutional):
    """Three 1-D convolutions of kernel 3 with 32 channels, each with batch norm and ReLU."""

    title = "CNN"

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ConvNorm(2 * streams, WIDTH, 3, runs), ConvNorm(WIDTH, WIDTH, 3, runs))
        self.last = ConvNorm(WIDTH, WIDTH, 3, runs)


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


@register_encoder("tcn")
class TCN(Convolutional):
    """One convolution of kernel 3, then three non-causal residual blocks with dilations 1, 2 and 4."""

    title = "TCN"

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ConvNorm(2 * streams, WIDTH, 3, runs), Residual(runs, 1), Residual(runs, 2))
        self.last = Residual(runs, 4)


class ComplexConv(ConvChain):
    """Complex convolution of x = a + jb with W = U + jV: (U∗a − V∗b) + j(U∗b + V∗a), then real batch norm and ReLU.

    U and V are each a real convolution with a bias of its own, so the biases of the two parts are u − v and u + v.
    Both parts are computed by one real convolution with the block kernel [[U, −V], [V, U]].
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, runs: int) -> None:
        super().__init__()
        self.weight_real, self.bias_real = conv_parameters(inputs, outputs, kernel, runs)
        self.weight_imag, self.bias_imag = conv_parameters(inputs, outputs, kernel, runs)
        self.norm = BatchNorm(2 * outputs, runs)

    def convolutions(self) -> list[Convolution]:
        u, v = self.weight_real, self.weight_imag
        weight = torch.cat([torch.cat([u, -v], dim=2), torch.cat([v, u], dim=2)], dim=1)
        bias = torch.cat([self.bias_real - self.bias_imag, self.bias_real + self.bias_imag], dim=1)
        return [Convolution([weight], [bias], self.norm)]


@register_encoder("cvcnn")
class CVCNN(Convolutional):
    """Three complex convolutions of kernels 7, 5 and 3 with 16 complex channels."""

    title = "CVCNN"

    def __init__(self, streams: int = 1, runs: int = 1) -> None:
        super().__init__()
        half = WIDTH // 2
        self.blocks = nn.Sequential(ComplexConv(streams, half, 7, runs), ComplexConv(half, half, 5, runs))
        self.last = ComplexConv(half, half, 3, runs)


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
