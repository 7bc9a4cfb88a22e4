"""The bidirectional GRU in training on a CPU, some sequences at a time.

    r = σ(W_ir x + b_ir + W_hr h + b_hr),  z = σ(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r (W_hn h + b_hn)),  h' = (1 − z) n + z h

What does not wait for the step before is done for all steps at once. The rest is a few operations a step, on both
directions together: the second one reads its sequence from the end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = 512  # sequences of a block


def _both(x: Tensor) -> Tensor:
    """(N, T, C) → (2, T, N, C): forwards, and from the end."""
    forwards = x.transpose(0, 1)
    return torch.stack([forwards, forwards.flip(0)])


class _Recurrence(torch.autograd.Function):
    """Hidden states (2, T, N, H) from the input's share of the gates (2, T, N, 3H), in the order r, z, n.

    weight: (2, 3H, H). bias: (2, H), b_hn; all others are in the input's share.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        _, steps, count, width = gates.shape
        hidden = width // 3
        switches = gates.new_empty(2, steps, count, 2 * hidden)  # r and z
        offered, fresh = gates.new_empty(2, 2, steps, count, hidden)  # W_hn h + b_hn, and n
        states = gates.new_zeros(2, steps + 1, count, hidden)
        to_switches, to_offered = weight.mT[:, :, : 2 * hidden], weight.mT[:, :, 2 * hidden :]
        parts = (gates[..., : 2 * hidden], gates[..., 2 * hidden :], switches, switches[..., :hidden])
        each = [part.unbind(1) for part in (*parts, switches[..., hidden:], offered, fresh, states)]
        state = each[-1][0]
        for g_switch, g_new, switch, r, z, offer, n, after in zip(*each[:-1], each[-1][1:], strict=True):
            torch.baddbmm(g_switch, state, to_switches, out=switch).sigmoid_()
            torch.baddbmm(bias[:, None], state, to_offered, out=offer)
            torch.addcmul(g_new, r, offer, out=n).mul_(2).sigmoid_().mul_(2).sub_(
                1
            )  # tanh a = 2 σ(2a) − 1, and quicker
            state = torch.lerp(n, state, z, out=after)
        ctx.save_for_backward(weight, switches, offered, fresh, states)
        return states[:, 1:]

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        weight, switches, offered, fresh, states = ctx.saved_tensors
        hidden = fresh.shape[-1]
        r, z = switches[..., :hidden], switches[..., hidden:]
        # All gates' gradients are that of the new state times what is known beforehand.
        to_new = (1 - z) * (1 - fresh * fresh)
        factors = torch.stack([to_new * offered * r * (1 - r), (states[:, :-1] - fresh) * z * (1 - z), to_new * r], 3)
        dgates = torch.empty_like(factors)  # (2, T, N, 3, H), those of the hidden state's share
        dstates = torch.empty_like(fresh)
        kept = torch.empty_like(fresh[:, 0])
        carried = torch.zeros_like(kept)
        each = [
            part.unbind(1) for part in (dout, factors, z, dgates, dgates.flatten(3), dstates, dstates[..., None, :])
        ]
        for own, factor, keep, to_gates, flat, dstate, column in zip(*(part[::-1] for part in each), strict=True):
            torch.add(carried, own, out=dstate)
            torch.mul(column, factor, out=to_gates)
            torch.mul(dstate, keep, out=kept)
            torch.baddbmm(kept, flat, weight, out=carried)
        hidden_share = dgates.flatten(3).flatten(1, 2)
        dweight = (states[:, :-1].flatten(1, 2).mT @ hidden_share).mT  # this way round it is quicker
        dbias = dgates[:, :, :, 2].sum((1, 2))
        torch.mul(dstates, to_new, out=dgates[:, :, :, 2])  # of the input's share, which r does not scale
        return dgates.flatten(3), dweight, dbias


def gru(x: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor, bias_hidden: Tensor) -> Tensor:
    """See `layers.GRU`: of one run, (N, T, C) → (N, T, 2·hidden)."""
    width = 2 * weight_hidden.shape[-1]
    bias = torch.cat([bias_input[:, :width] + bias_hidden[:, :width], bias_input[:, width:]], dim=1)
    parts = []
    for block in x.split(BLOCK):
        sequence = _both(block)
        gates = torch.baddbmm(bias[:, None], sequence.flatten(1, 2), weight_input.mT).unflatten(1, sequence.shape[1:3])
        forwards, from_end = _Recurrence.apply(gates, weight_hidden, bias_hidden[:, width:])
        parts.append(torch.cat([forwards, from_end.flip(0)], dim=-1).transpose(0, 1))
    return torch.cat(parts)
