"""The bidirectional GRU in training on a CPU, some sequences at a time.

    r = σ(W_ir x + b_ir + W_hr h + b_hr),  z = σ(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r (W_hn h + b_hn)),  h' = (1 − z) n + z h

What does not wait for the step before is done for some steps at once, which stay in the cache. The rest is a few
operations a step, so short that they are a script's: threads would wait for the interpreter. Each direction of a block
of sequences is one thread's, and what comes of them is summed in their order: no bit depends on how many threads there
are.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

from pisa_capc.core.threads import all_in_threads
from pisa_capc.model.stacked.scripting import scripted

BLOCK = 512  # sequences of a block


def _forth(
    x: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, offset: Tensor, out: Tensor, late: int
) -> list[Tensor]:
    """Hidden states (n, T, H) of x (n, T, C) into `out`; returns what `_back` needs, with steps first.

    weight: (3H, C), bias: (3H,), hidden: (3H, H), each in the order r, z, n; offset: (H,), b_hn. `bias` holds all other
    biases. late: 1 for the direction that begins at the end, else 0.
    """
    chunk = 8  # steps that are prepared together
    count, steps, _ = x.shape
    width = hidden.shape[1]
    switches = x.new_empty([steps, count, 2 * width])  # r and z
    offered = x.new_empty([steps, count, width])  # W_hn h + b_hn
    fresh = x.new_empty([steps, count, width])  # n
    states = x.new_zeros([steps + 1, count, width])  # that before step t is at t + late, that behind it at t + 1 − late
    to_switches, to_offered = hidden.t()[:, : 2 * width], hidden.t()[:, 2 * width :]
    chunks = (steps + chunk - 1) // chunk
    for c in range(chunks):
        start = (chunks - 1 - c if late else c) * chunk
        end = min(start + chunk, steps)
        own = x[:, start:end].transpose(0, 1).flatten(0, 1)
        gates = torch.addmm(bias, own, weight.t()).view(end - start, count, 3 * width)
        for i in range(end - start):
            t = end - 1 - i if late else start + i
            gate, before, switch = gates[t - start], states[t + late], switches[t]
            torch.addmm(gate[:, : 2 * width], before, to_switches, out=switch).sigmoid_()
            offer = torch.addmm(offset, before, to_offered, out=offered[t])
            n = torch.addcmul(gate[:, 2 * width :], switch[:, :width], offer, out=fresh[t])
            n.mul_(2).sigmoid_().mul_(2).sub_(1)  # tanh a = 2 σ(2a) − 1, quicker
            torch.lerp(n, before, switch[:, width:], out=states[t + 1 - late])
        out[:, start:end] = states[start + 1 - late : end + 1 - late].transpose(0, 1)
    return [switches, offered, fresh, states]


def _back(
    dout: Tensor, x: Tensor, weight: Tensor, hidden: Tensor, kept: list[Tensor], dx: Tensor, late: int
) -> list[Tensor]:
    """The way back of `_forth`: the gradient of x into `dx`; returns those of weight, bias, hidden and offset."""
    chunk = 8
    switches, offered, fresh, states = kept
    count, steps, width = dout.shape
    dweight, dhidden = torch.zeros_like(weight), torch.zeros_like(hidden)
    dbias, doffset = hidden.new_zeros([3 * width]), hidden.new_zeros([width])
    carried = hidden.new_zeros([count, width])
    saved = torch.empty_like(carried)
    chunks = (steps + chunk - 1) // chunk
    for c in range(chunks):
        start = (c if late else chunks - 1 - c) * chunk
        end = min(start + chunk, steps)
        own = dout[:, start:end].transpose(0, 1)
        before, n = states[start + late : end + late], fresh[start:end]
        r, z = switches[start:end, :, :width], switches[start:end, :, width:]
        # All gates' gradients are that of the new state times what is known beforehand.
        to_new = (1 - z) * (1 - n * n)
        factors = torch.stack([to_new * offered[start:end] * r * (1 - r), (before - n) * z * (1 - z), to_new * r], 2)
        dgates, dstates = torch.empty_like(factors), torch.empty_like(to_new)  # those of the hidden state's share
        for i in range(end - start):
            j = i if late else end - start - 1 - i
            dstate = torch.add(carried, own[j], out=dstates[j])
            torch.mul(dstate[:, None], factors[j], out=dgates[j])
            torch.mul(dstate, z[j], out=saved)
            torch.addmm(saved, dgates[j].flatten(1), hidden, out=carried)
        share = dgates.view(-1, 3 * width)
        dhidden += torch.mm(before.flatten(0, 1).t(), share).t()  # this way round it is quicker
        doffset += dgates[:, :, 2].sum([0, 1])
        torch.mul(dstates, to_new, out=dgates[:, :, 2])  # of the input's share, which r does not scale
        dweight += torch.mm(x[:, start:end].transpose(0, 1).flatten(0, 1).t(), share).t()
        dbias += share.sum(0)
        dx[:, start:end] = torch.mm(share, weight).view(end - start, count, -1).transpose(0, 1)
    return [dweight, dbias, dhidden, doffset]


class _Recurrence(torch.autograd.Function):
    """Hidden states (N, T, 2H) of x (N, T, C). parameters: those of `_forth` for both directions, each (2, …)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        width = parameters[-1].shape[1]
        out = x.new_empty(*x.shape[:2], 2 * width)
        ends = list(zip(x.split(BLOCK), out.split(BLOCK), strict=True))
        forth = scripted(_forth)

        def piece(which: tuple[int, int]) -> list[Tensor]:
            block, late = which
            own, into = ends[block]
            found: list[Tensor] = forth(
                own, *(p[late] for p in parameters), into[..., late * width : (late + 1) * width], late
            )
            return found

        ctx.pieces = list(product(range(len(ends)), range(2)))
        ctx.kept = all_in_threads(piece, ctx.pieces)
        ctx.save_for_backward(x, parameters[0], parameters[2])
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        x, weight, hidden = ctx.saved_tensors
        width = hidden.shape[-1]
        dx = [torch.empty_like(x) for _ in range(2)]
        parts = [a.split(BLOCK) for a in (dout, x, *dx)]
        back = scripted(_back)

        def piece(number: int) -> list[Tensor]:
            block, late = ctx.pieces[number]
            own, given, *into = (part[block] for part in parts)
            kept, ctx.kept[number] = ctx.kept[number], None
            of = slice(late * width, (late + 1) * width)
            found: list[Tensor] = back(own[..., of], given, weight[late], hidden[late], kept, into[late], late)
            return found

        found = all_in_threads(piece, range(len(ctx.pieces)))
        all_in_threads(lambda block: parts[2][block].add_(parts[3][block]), range(len(parts[0])))
        sums = [
            torch.stack([torch.stack(own).sum(0) for own in (of[::2], of[1::2])]) for of in zip(*found, strict=True)
        ]
        return dx[0], *sums


def gru(x: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor, bias_hidden: Tensor) -> Tensor:
    """See `layers.GRU`: of one run, (N, T, C) → (N, T, 2·hidden)."""
    width = 2 * weight_hidden.shape[-1]
    bias = torch.cat([bias_input[:, :width] + bias_hidden[:, :width], bias_input[:, width:]], dim=1)
    found: Tensor = _Recurrence.apply(x, weight_input, bias, weight_hidden, bias_hidden[:, width:])
    return found
