"""AdamW over all parameters at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.stacked import kernels

ALIGNED = 64  # numbers: every parameter begins at a multiple of them, as it would if it had its memory to itself
BLOCK = 1024  # numbers of a program


class FlatAdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` of float32 parameters, with their values and its averages one behind the other in memory.

    PyTorch's own takes a block of threads for up to 65,536 numbers, and a tensor is never shared: of small models most
    of a GPU has nothing to do. The state is the same, and can be loaded as ever. Parameters move at the first step;
    those that have no gradient then must not get one later.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay)
        self._flat: _Flat | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        [group] = self.param_groups
        if self._flat is None:
            self._flat = _Flat([p for p in group["params"] if p.grad is not None])
            self.state.update(self._flat.state())
        flat = self._flat
        if (found := sum(p.grad is not None for p in group["params"])) != len(flat.parameters):
            raise ConfigError(
                f"{found} parameters have a gradient, and {len(flat.parameters)} had one in the first step; expected "
                "the same in every step. Let a loss that is to begin later be zero until then."
            )
        flat.steps += 1
        (beta1, beta2), size = group["betas"], flat.values.numel()
        kernels.adamw[(kernels.tiles(size, BLOCK),)](
            flat.values, flat.gradients(), flat.means, flat.squares, flat.steps, size, group["lr"],
            group["weight_decay"], 1 - beta1, 1 - beta2, math.log2(beta1), math.log2(beta2), group["eps"], BLOCK=BLOCK,
        )  # fmt: skip


class _Flat:
    """The parameters, moved into one tensor, and what belongs to each of their numbers."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        first = parameters[0]
        self.pads = [first.new_zeros(-p.numel() % ALIGNED) for p in parameters]
        self.values = self._joined([p.detach() for p in parameters])
        self.means, self.squares = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = first.new_zeros((), dtype=torch.float32)
        for p, own in zip(parameters, self.each(self.values), strict=True):
            p.data = own

    def _joined(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([part for t, pad in zip(tensors, self.pads, strict=True) for part in (t.reshape(-1), pad)])

    def each(self, flat: Tensor) -> list[Tensor]:
        """What of a flat tensor belongs to each parameter."""
        sizes = [size for p, pad in zip(self.parameters, self.pads, strict=True) for size in (p.numel(), pad.numel())]
        return [part.view_as(p) for p, part in zip(self.parameters, flat.split(sizes)[::2], strict=True)]

    def gradients(self) -> Tensor:
        return self._joined([p.grad for p in self.parameters if p.grad is not None])

    def state(self) -> dict[Tensor, dict[str, Tensor]]:
        """As PyTorch's AdamW has it."""
        averages = zip(self.parameters, self.each(self.means), self.each(self.squares), strict=True)
        return {p: {"step": self.steps, "exp_avg": m, "exp_avg_sq": v} for p, m, v in averages}
