"""The first convolution of a chain, of so few channels that its outputs need not be written."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pisa_capc.model.stacked import kernels
from pisa_capc.model.stacked.counts import Counts
from pisa_capc.model.stacked.fused.launching import ROWS, precision, programs

LARGEST = 32  # numbers of a window, beyond which outputs are better read than computed again


class Window(NamedTuple):
    """Inputs x (R, N, T, C_in) and the kernel (R, C, C_in, taps) of a first convolution."""

    x: Tensor
    weight: Tensor

    def seen(self, outputs: int) -> int:
        """Numbers that so many outputs side by side see, as the kernels take them."""
        _, _, inputs, taps = self.weight.shape
        return kernels.padded((outputs + taps - 1) * inputs)

    def options(self, outputs: int) -> dict[str, Any]:
        """What kernels that read so many outputs at a time have to know."""
        _, _, inputs, taps = self.weight.shape
        return {"INPUTS": inputs, "FIRST_TAPS": taps, "SEEN": self.seen(outputs)}

    def moments(self, counts: Counts) -> tuple[Tensor, Tensor]:
        """The second moments of the window of an output, and from them the sums of the outputs (R, 1, 2, C)."""
        x, (runs, width, _, _) = self.x, self.weight.shape
        _, frames, length, _ = x.shape
        shape = self._shape()
        count = programs(kernels.tiles(frames * length, ROWS), runs, 8)
        partial = x.new_empty(runs, count, shape["PADDED"], shape["PADDED"], dtype=torch.float32)
        kernels.window_moments[(count, runs)](
            x, partial, counts.each, counts.used, frames, LENGTH=length, **shape, BLOCK=ROWS, PRECISION=precision(x)
        )
        moments, sums = partial.sum(1), partial.new_empty(runs, 1, 2, width)
        kernels.window_sums[(runs,)](x, moments, self.weight, sums, **shape, C=width)
        return moments, sums

    def activation(self, scale: Tensor, shift: Tensor, counts: Counts) -> Tensor:
        """ReLU(scale · y + shift) of the outputs y, where they have to be written after all: (R, N, T, C)."""
        x, (runs, width, inputs, taps) = self.x, self.weight.shape
        _, frames, length, _ = x.shape
        out = x.new_empty(runs, frames, length, width)
        kernels.window_apply[(kernels.tiles(frames * length, ROWS), runs)](
            x, self.weight, scale, shift, out, counts.used, frames,
            LENGTH=length, INPUTS=inputs, TAPS=taps, C=width, PADDED=self.seen(1), BLOCK=ROWS, PRECISION=precision(x),
        )  # fmt: skip
        return out

    def gradient(self, moments: Tensor, along: Tensor, coefficient: Tensor) -> Tensor:
        """dW. along: Σ u wᵀ (R, outputs·C, seen); coefficient: of dy, as `norm_gradient_apply` has it."""
        runs, width, _, _ = self.weight.shape
        dweight = torch.empty_like(self.weight)
        kernels.window_gradient[(runs,)](
            self.x, along, moments, self.weight, coefficient, dweight, **self._shape(), C=width,
            SPAN=along.shape[1] // width, SEEN=along.shape[2],
        )  # fmt: skip
        return dweight

    def _shape(self) -> dict[str, int]:
        _, _, inputs, taps = self.weight.shape
        return {"INPUTS": inputs, "TAPS": taps, "PADDED": kernels.padded(inputs * taps + 1)}  # and a one
