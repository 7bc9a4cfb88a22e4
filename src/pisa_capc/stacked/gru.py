"""The bidirectional GRU in training on a CPU, some sequences at a time.

    r = σ(W_ir x + b_ir + W_hr h + b_hr),  z = σ(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r (W_hn h + b_hn)),  h' = (1 − z) n + z h

What does not wait for the step before is done for some steps at once, which stay in the cache. The rest is a few
operations a step, on both directions together: the second one reads its sequence from the end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = 1024  # sequences of a block
STEPS = 8  # of a chunk


class _Recurrence(torch.autograd.Function):
    """Hidden states (2, T, N, H) of x (2, T, N, C), the second direction's from the end.

    weight: (2, 3H, C), bias: (2, 3H), hidden: (2, 3H, H), each in the order r, z, n; offset: (2, H), b_hn. All other
    biases are in `bias`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, offset: Tensor) -> Tensor:
        _, steps, count, _ = x.shape
        width = hidden.shape[-1]
        switches = x.new_empty(2, steps, count, 2 * width)  # r and z
        offered, fresh = x.new_empty(2, 2, steps, count, width)  # W_hn h + b_hn, and n
        states = x.new_zeros(2, steps + 1, count, width)
        to_switches, to_offered = hidden.mT[:, :, : 2 * width], hidden.mT[:, :, 2 * width :]
        kept = (switches, switches[..., :width], switches[..., width:], offered, fresh, states[:, :-1], states[:, 1:])
        for start in range(0, steps, STEPS):
            chunk = x[:, start : start + STEPS]
            gates = torch.baddbmm(bias[:, None], chunk.flatten(1, 2), weight.mT).unflatten(1, chunk.shape[1:3])
            parts = (gates[..., : 2 * width], gates[..., 2 * width :], *(a[:, start : start + STEPS] for a in kept))
            for g_switch, g_new, switch, r, z, offer, n, state, after in zip(
                *(a.unbind(1) for a in parts), strict=True
            ):
                torch.baddbmm(g_switch, state, to_switches, out=switch).sigmoid_()
                torch.baddbmm(offset[:, None], state, to_offered, out=offer)
                torch.addcmul(g_new, r, offer, out=n).mul_(2).sigmoid_().mul_(2).sub_(
                    1
                )  # tanh a = 2 σ(2a) − 1, quicker
                torch.lerp(n, state, z, out=after)
        ctx.save_for_backward(x, weight, hidden, switches, offered, fresh, states)
        return states[:, 1:]

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        x, weight, hidden, *kept = ctx.saved_tensors
        _, steps, count, width = dout.shape
        dx, dweight, dhidden = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(hidden)
        dbias, doffset = hidden.new_zeros(2, 3 * width), hidden.new_zeros(2, width)
        carried = dout.new_zeros(2, count, width)
        saved = torch.empty_like(carried)
        for start in reversed(range(0, steps, STEPS)):
            now = slice(start, start + STEPS)
            switches, offered, fresh, before = (a[:, now] for a in (*kept[:3], kept[3][:, :-1]))
            r, z = switches[..., :width], switches[..., width:]
            # All gates' gradients are that of the new state times what is known beforehand.
            to_new = (1 - z) * (1 - fresh * fresh)
            factors = torch.stack([to_new * offered * r * (1 - r), (before - fresh) * z * (1 - z), to_new * r], dim=3)
            dgates, dstates = torch.empty_like(factors), torch.empty_like(to_new)  # those of the hidden state's share
            parts = (dout[:, now], factors, z, dgates, dgates.flatten(3), dstates)
            for own, factor, keep, to_gates, flat, dstate in zip(*(a.unbind(1)[::-1] for a in parts), strict=True):
                torch.add(carried, own, out=dstate)
                torch.mul(dstate[:, :, None], factor, out=to_gates)
                torch.mul(dstate, keep, out=saved)
                torch.baddbmm(saved, flat, hidden, out=carried)
            share = dgates.flatten(3).flatten(1, 2)
            dhidden += (before.flatten(1, 2).mT @ share).mT  # this way round it is quicker
            doffset += dgates[:, :, :, 2].sum((1, 2))
            torch.mul(dstates, to_new, out=dgates[:, :, :, 2])  # of the input's share, which r does not scale
            dweight += (x[:, now].flatten(1, 2).mT @ share).mT
            dbias += share.sum(1)
            dx[:, now] = (share @ weight).view_as(dx[:, now])
        return dx, dweight, dbias, dhidden, doffset


def gru(x: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor, bias_hidden: Tensor) -> Tensor:
    """See `layers.GRU`: of one run, (N, T, C) → (N, T, 2·hidden)."""
    width = 2 * weight_hidden.shape[-1]
    bias = torch.cat([bias_input[:, :width] + bias_hidden[:, :width], bias_input[:, width:]], dim=1)
    parts = []
    for block in x.split(BLOCK):
        sequence = block.transpose(0, 1)
        both = torch.stack([sequence, sequence.flip(0)])
        forwards, from_end = _Recurrence.apply(both, weight_input, bias, weight_hidden, bias_hidden[:, width:])
        parts.append(torch.cat([forwards, from_end.flip(0)], dim=-1).transpose(0, 1))
    return torch.cat(parts)
