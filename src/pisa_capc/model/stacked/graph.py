"""Attention under the topology prior and its graph loss, in training on a CPU, some frames at a time.

The equations are those of `model/networks/topology.py`. What they make of a pair of nodes, two dozen times as much as
the nodes are, stays in the cache of a core, and each block of frames is one thread's, as in `sequences.py`. Masks are 0
or 1 to multiply with: PyTorch's choices between two values take several times as long as a product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pisa_capc.model.stacked.precision import at_least_float32, full_precision, product_dtype
from pisa_capc.model.stacked.runs import join_runs, split_runs
from pisa_capc.model.stacked.scripting import scripted
from pisa_capc.model.stacked.sequences import Heads, RunDropoutMask, each, sequence_blocks, sums

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import Dropout

LEAST = 1e-12  # attention of which a logarithm is taken


def _prior_forth(
    tau: Tensor, beta: Tensor, seen: Tensor, space: Tensor, gap: Tensor, never: float
) -> tuple[Tensor, Tensor]:
    """log P (n, J, J), and β̃ log P, which is `never` where a node is not there.

    tau, beta: (n, 1, 1); seen: (n, 1, J).
    """
    absent = (1 - seen) * never
    log_prior = torch.log_softmax(torch.addcmul(absent, -space - gap / tau, seen), -1)
    return log_prior, torch.addcmul(absent, beta * log_prior, seen)


def _prior_back(
    tau: Tensor, beta: Tensor, seen: Tensor, gap: Tensor, log_prior: Tensor, dlog_prior: Tensor, dexponent: Tensor
) -> tuple[Tensor, Tensor]:
    """Of τ̃_t and of β̃. dlog_prior: of log P from where else it is used, (n, J, J); is written to."""
    dexponent = dexponent * seen
    dbeta = (dexponent * log_prior).sum([1, 2])
    dlog_prior += dexponent * beta
    dprior = torch._log_softmax_backward_data(dlog_prior, log_prior, -1, log_prior.dtype).mul_(seen)
    return (dprior * ((gap / tau) / tau)).sum([1, 2]), dbeta


def _loss_forth(mean: Tensor, log_prior: Tensor, seen: Tensor, least: float) -> tuple[Tensor, list[Tensor]]:
    """The loss of each frame, (n,), and what `_loss_back` needs. mean: attention averaged over heads, (n, J, J)."""
    pairs = seen.mT * seen
    count = seen.sum([1, 2]).square()
    ratio = mean.clamp_min(least).log_().sub_(log_prior)  # the logarithm of it
    return (mean * ratio * pairs).sum([1, 2]) / count, [mean, ratio, pairs, count]


def _loss_back(dloss: Tensor, kept: list[Tensor], least: float) -> tuple[Tensor, Tensor]:
    """Of `mean` and of `log_prior`."""
    mean, ratio, pairs, count = kept
    dratio = pairs * (dloss / count)[:, None, None]
    along = dratio * mean
    return (along / mean.clamp_min(least)).mul_(mean >= least).add_(dratio * ratio), along.neg_()


class _Graph(torch.autograd.Function):
    """dropout(A) V of one run, and the graph loss of A: (N, J, W), τ̃_t and β̃ (N,) → (N, J, W), (N,).

    seen: (N, J), 1 where a node is there, else 0. space, gap, never: see `attention`.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, tau: Tensor, beta: Tensor, seen: Tensor, space: Tensor, gap: Tensor, never: float,
        heads: Callable[..., Heads], *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        own, prior, graph_loss = heads(*parameters), scripted(_prior_forth), scripted(_loss_forth)
        out, loss, nodes = torch.empty_like(x), torch.empty_like(tau), x.shape[1]
        tau, beta, seen = tau[:, None, None], beta[:, None, None], seen[:, None]

        def forth(block: tuple[Any, Any]) -> tuple[Any, Any, Tensor, Any]:
            rows, where = block
            log_prior, exponent = prior(tau[rows], beta[rows], seen[rows], space, gap, never)
            made, kept = own.forward(x[rows], where, exponent)
            out[rows] = made.view_as(x[rows])
            mean = own.weights(kept).view(-1, own.heads, nodes, nodes).mean(1)
            loss[rows], of_loss = graph_loss(mean, log_prior, seen[rows], LEAST)
            return rows, kept, log_prior, of_loss

        ctx.save_for_backward(x, tau, beta, seen, gap)
        ctx.heads, ctx.blocks = own, each(forth, sequence_blocks(len(x), own.elements(nodes)))
        return out, loss

    @staticmethod
    def backward(ctx: Any, dout: Tensor, dloss: Tensor) -> Any:
        x, tau, beta, seen, gap = ctx.saved_tensors
        prior, graph_loss = scripted(_prior_back), scripted(_loss_back)
        dx, dtau, dbeta = torch.empty_like(x), torch.empty_like(dloss), torch.empty_like(dloss)

        def back(block: tuple[Any, Any, Tensor, Any]) -> Sequence[Tensor]:
            rows, kept, log_prior, of_loss = block
            dmean, dlog_prior = graph_loss(dloss[rows], of_loss, LEAST)
            dx[rows], gradients, dscore = ctx.heads.backward(x[rows], kept, dout[rows], dmean)
            dtau[rows], dbeta[rows] = prior(
                tau[rows], beta[rows], seen[rows], gap, log_prior, dlog_prior, dscore.sum(1)
            )
            return gradients

        gradients = sums(each(back, ctx.blocks))
        return dx, dtau, dbeta, None, None, None, None, None, *ctx.heads.gradients(*gradients)


def attention(
    x: Tensor, tau_t: Tensor, beta: Tensor, available: Tensor, space: Tensor, gap: Tensor, never: float,
    weight: Tensor, bias: Tensor, heads: int, dropout: Dropout,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """dropout(A) V (R, N, J, W) and the graph loss (R, N), A = softmax(QKᵀ/√d + β̃ log P), for each run.

    x: (R, N, J, W); tau_t, beta: (R, N); available: (R, N, J); space, gap: (J, J), with log P = −space − gap/τ̃_t but
    for a constant of each row; never: stands for log 0; weight (R, 3W, W) and bias (R, 3W) of queries, keys and values.
    """
    dtype = product_dtype(x)
    with full_precision(x):
        x = at_least_float32(x)
        seen = available.to(tau_t.dtype)
        elements = x.shape[1] * heads * x.shape[2] ** 2
        makers = [
            partial(Heads, heads=heads, drop=RunDropoutMask(dropout, r, elements), dtype=dtype) for r in range(len(x))
        ]
        runs = [
            _Graph.apply(*own, space, gap, never, makers[run], w, b)
            for run, (*own, w, b) in enumerate(zip(*map(split_runs, (x, tau_t, beta, seen, weight, bias)), strict=True))
        ]
        mixed, loss = zip(*runs, strict=True)
        return join_runs(mixed), join_runs(loss)
