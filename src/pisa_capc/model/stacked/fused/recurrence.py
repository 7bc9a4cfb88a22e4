"""The GRU."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pisa_capc.model.stacked import kernels
from pisa_capc.model.stacked.counts import Counts
from pisa_capc.model.stacked.fused.launching import low_precision, precision


class _Gates(torch.autograd.Function):
    """x Wᵀ of each run: (R, M, inputs), (R, outputs, inputs) → (R, M, outputs)."""

    SPLITS = 64  # of the rows for the gradient of W: one product of so many rows would keep few multiprocessors busy

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        low = weight.to(x.dtype)
        ctx.save_for_backward(x, low)
        return torch.bmm(x, low.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, low = ctx.saved_tensors
        splits = math.gcd(_Gates.SPLITS, x.shape[1])
        parts = [t.reshape(len(x) * splits, -1, t.shape[2]) for t in (dy, x)]
        dweight = torch.bmm(parts[0].transpose(1, 2), parts[1]).unflatten(0, (len(x), splits))
        return torch.bmm(dy, low), dweight.sum(1, dtype=torch.float32)


class _Recurrence(torch.autograd.Function):
    """h_t = (1 − z) n + z h_{t−1} in both directions; gates (R, N, T, 2, 3, H) hold the input's share.

    Its mean over each `pool` steps: (R, N, T/pool, 2, H).
    """

    BLOCK = 16  # streams of a program: few, because the time is that of 320 steps one after the other

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, bias: Tensor, pool: int, used: Tensor) -> Tensor:
        runs, n, t, _, _, hidden = gates.shape
        out = gates.new_empty(runs, n, t, 2, hidden)
        split = weight.unflatten(2, (3, hidden))  # (R, 2, 3, H_out, H_in)
        low = split.transpose(3, 4).to(gates.dtype).contiguous()
        kernels.gru_forward[(kernels.tiles(n, _Recurrence.BLOCK), runs, 2)](
            gates, low, bias, out, used, n, t,
            H=hidden, BLOCK=_Recurrence.BLOCK, PRECISION=precision(gates), num_warps=1,
        )  # fmt: skip
        ctx.save_for_backward(gates, weight, bias, out, used)
        ctx.pool = pool
        return out if pool == 1 else out.unflatten(2, (-1, pool)).mean(3)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        gates, weight, bias, out, used = ctx.saved_tensors
        runs, n, t, _, _, hidden = gates.shape
        split = weight.unflatten(2, (3, hidden)).to(gates.dtype)
        count = kernels.tiles(n, _Recurrence.BLOCK)
        dgates = torch.empty_like(gates)
        dweight = weight.new_empty(count, runs, 2, 3, hidden, hidden)
        dbias = weight.new_empty(count, runs, 2, 4, hidden)
        kernels.gru_backward[(count, runs, 2)](
            gates, split.transpose(3, 4).contiguous(), split.contiguous(), bias, out, dout.contiguous(),
            dgates, dweight, dbias, used, n, t, ctx.pool,
            H=hidden, BLOCK=_Recurrence.BLOCK, PRECISION=precision(gates), num_warps=1,
        )  # fmt: skip
        return dgates, dweight.sum(0).transpose(3, 4).flatten(2, 3), dbias.sum(0), None, None


def gru(
    x: Tensor,
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias_input: Tensor,
    bias_hidden: Tensor,
    tokens: int = 0,
    counts: Counts | None = None,
) -> Tensor:
    """See `layers.GRU`: one matrix product for the inputs of all steps, then the recurrence.

    tokens must divide the length; 0 means no pooling. Of frames that are not used anything is given.
    """
    runs, n, t, _ = x.shape
    hidden = weight_hidden.shape[-1]
    gates = _Gates.apply(low_precision(x).flatten(1, 2), weight_input.flatten(1, 2))
    b_input, b_hidden = (b.unflatten(2, (3, hidden)) for b in (bias_input, bias_hidden))
    bias = torch.cat([b_input[:, :, :2] + b_hidden[:, :, :2], b_hidden[:, :, 2:], b_input[:, :, 2:]], dim=2)
    pool = t // tokens if tokens else 1
    gates = gates.view(runs, n, t, 2, 3, hidden)
    used = (counts or Counts.once(x)).used
    out: Tensor = _Recurrence.apply(gates, weight_hidden, bias.contiguous(), pool, used)
    return out.flatten(3)
