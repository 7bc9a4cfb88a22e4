"""CVCNN: complex-valued convolutions."""

from __future__ import annotations

import torch
from torch import nn

from pisa_capc.model.encoders.base import WIDTH, Convolutional
from pisa_capc.model.encoders.registry import register_encoder
from pisa_capc.model.stacked import BatchNorm, ConvChain, Convolution
from pisa_capc.model.stacked.layers import conv_parameters


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
