r"""The class-balance operator of U-CAPC: entropic transport of frames onto equally filled classes.

For scores S (n, C) of the frames of one group, Eqs. (balanced_sinkhorn_objective) and (balanced_sinkhorn_constraints):

.. math::
    \mathcal{B}(S) = \arg\max_{\Pi \ge 0} \langle \Pi, S \rangle + \varepsilon H(\Pi),
    \qquad \Pi 1_C = 1_n, \quad \Pi^\top 1_n = \tfrac{n}{C} 1_C .

The solution is :math:`\Pi_{ik} = \mathrm{softmax}_k(S_{ik}/\varepsilon + g_k)` for one potential g per class.
Sinkhorn's iteration [1]_ finds it; written for g alone, one iteration (column update, then row update) is

.. math::
    g_k \leftarrow g_k + \log\tfrac{n}{C} - \log \sum_i \mathrm{softmax}_k(S_{ik}/\varepsilon + g_k),

started at g = 0, i.e. at the plain softmax. Two generalisations serve where classes are not equally frequent: the
classes may be given other shares b than 1/C, and the shares may be held loosely, at a cost ρ KL(Πᵀ1 ‖ n b) [2]_
instead of exactly, which damps the update to

.. math::
    g_k \leftarrow \tfrac{\rho}{\rho + \varepsilon} \left(g_k + \log n b_k - \log \sum_i
    \mathrm{softmax}_k(S_{ik}/\varepsilon + g_k)\right).

Two things follow. Rows sum to one exactly however few iterations are made,
because the softmax is the row update. And a constant added to all scores of a frame changes nothing, so logits and
log-probabilities give the same answer. Only the C potentials are carried from one iteration to the next, so any number
of frames can be streamed.

.. [1] M. Cuturi. Sinkhorn distances: Lightspeed computation of optimal transport. NeurIPS 2013.
.. [2] L. Chizat, G. Peyré, B. Schmitzer, F.-X. Vialard. Scaling algorithms for unbalanced optimal transport problems.
   Mathematics of Computation 87, 2018.
"""

from __future__ import annotations

import math
from functools import partial
from typing import IO

import torch
from torch import Tensor

from pisa_capc.core.errors import ConfigError
from pisa_capc.decide.calibration.blocks import Blocks, one_launch, spilled, total

# See `class_potential`: kernel times scaling then stays within exp(±600), which float64 holds.
_LARGEST_SPREAD = 300.0


def class_potential(
    scores: Blocks[Tensor],
    frames: Blocks[Tensor],
    iterations: int = 20,
    epsilon: float = 1.0,
    spread: float | None = None,
    keep: bool = True,
    shares: Tensor | None = None,
    relaxation: float = math.inf,
    rounded: bool = False,
    file: IO[bytes] | None = None,
) -> Tensor:
    r"""The potentials g (G, C) of G groups after `iterations` of Sinkhorn.

    `scores` holds blocks (G, C, b) and `frames` blocks (G, 1, b) that are one for a frame and zero for padding.
    `spread` bounds how far apart two scores of one frame can be, R = spread / ε. Where R is at most 300 the iteration
    runs on a kernel exp(S/ε) and a scaling v = exp(g), two matrix-vector products each, and cannot leave float64: two
    potentials are never further apart than R, whatever the iteration, and their mean rises from zero to at most R (a
    step raises the dual objective by n times as much, and it can rise by n R in all). Beyond, the same iteration runs
    on logarithms. `keep` says whether the kernel of all blocks may stay in memory; otherwise it goes to `file`, or
    to one of its own, in float32 where `rounded` lets it: scores that are known to seven digits give potentials to as
    many.
    `shares` (G, C) are the classes' b, equal where they are not given; `relaxation` is ρ, exact where it is infinite.
    """
    damping = 1.0 if math.isinf(relaxation) else relaxation / (relaxation + epsilon)
    if spread is not None and spread <= _LARGEST_SPREAD * epsilon:
        if shares is None and damping == 1 and len(scores) == 1 and one_launch(scores[0]):
            from pisa_capc.decide.calibration import kernels

            if kernels.iterates(scores[0]):
                return kernels.potential(scores[0], frames[0], iterations, epsilon)
        kernel = scores.map(lambda block: _kernel(block, epsilon), keep=keep)
        if not keep:
            small = rounded and _fits_float32(scores[0], spread / epsilon)
            kernel = spilled(kernel, torch.float32 if small else torch.float64, file)
        return _potential_by_scaling(kernel, frames, iterations, shares, damping)
    return _potential_by_logarithms(scores, frames, iterations, epsilon, shares, damping)


def _fits_float32(scores: Tensor, spread: float) -> bool:
    """Whether no sum over classes or frames of a block can leave float32, e^±87.

    With v at most one, as in `_masses`, K and v are at least e^−R, (vK)_i is from e^−R to C, and so K_ik / (vK)_i is
    from e^−R / C to e^R: of b frames together at most b e^R.
    """
    _, classes, frames = scores.shape
    return spread + math.log(max(classes, frames)) <= 87


def _kernel(scores: Tensor, epsilon: float) -> Tensor:
    """exp(S/ε), each frame scaled so that its largest entry is one."""
    shifted = scores - scores.amax(dim=1, keepdim=True)
    return (shifted if epsilon == 1.0 else shifted.div_(epsilon)).exp_()


def _potential_by_scaling(
    kernel: Blocks[Tensor], frames: Blocks[Tensor], iterations: int, shares: Tensor | None, damping: float
) -> Tensor:
    groups, classes, _ = kernel[0].shape
    count = total(present.sum(dim=-1, keepdim=True) for present in frames)
    share = count / classes if shares is None else count * shares.unsqueeze(1)
    scaling = share.new_ones(groups, 1, classes)
    for _ in range(iterations):
        scaling = share / total(kernel.walk(partial(_masses, scaling), frames))
        if damping != 1:
            scaling = scaling**damping
    return scaling.squeeze(1).log()


def _masses(scaling: Tensor, kernel: Tensor, present: Tensor) -> Tensor:
    """Σ_i K_ik / (vK)_i (G, 1, C): scaling v (G, 1, C), kernel K (G, C, b), in the kernel's precision."""
    if kernel.dtype == scaling.dtype:
        return torch.bmm(present / torch.bmm(scaling, kernel), kernel.transpose(1, 2))
    largest = scaling.amax(dim=-1, keepdim=True)  # float32 holds v at most one, not v itself
    rows = torch.bmm((scaling / largest).to(kernel.dtype), kernel)
    return torch.bmm(present.to(kernel.dtype) / rows, kernel.transpose(1, 2)).to(scaling.dtype) / largest


def _potential_by_logarithms(
    scores: Blocks[Tensor],
    frames: Blocks[Tensor],
    iterations: int,
    epsilon: float,
    shares: Tensor | None,
    damping: float,
) -> Tensor:
    groups, classes, _ = scores[0].shape
    log_share = 0.0 if shares is None else shares.log().unsqueeze(-1)
    potential = scores[0].new_zeros(groups, classes, 1)
    for _ in range(iterations):
        log_mass = torch.full_like(potential, -torch.inf)
        for block, present in zip(scores, frames, strict=True):
            shifted = (block - block.amax(dim=1, keepdim=True)) / epsilon
            log_rows = torch.logsumexp(shifted + potential, dim=1, keepdim=True)
            columns = torch.logsumexp(shifted - log_rows + present.log(), dim=2, keepdim=True)
            log_mass = torch.logaddexp(log_mass, columns)
        potential = damping * (log_share - log_mass)
        potential = potential - potential.amax(dim=1, keepdim=True)
    return potential.squeeze(2)


def assignment(scores: Tensor, potential: Tensor, epsilon: float = 1.0) -> Tensor:
    """B(S) = softmax(S/ε + g): the row update. Scores (G, C, b), potential (G, C) → (G, C, b), sums to one over C."""
    return torch.softmax((scores if epsilon == 1 else scores / epsilon) + potential.unsqueeze(-1), dim=1)


def balanced_assignment(scores: Tensor, iterations: int = 20, epsilon: float = 1.0) -> Tensor:
    """B(S) of one group in memory: scores (n, C) → (n, C), rows sum to one, columns approach n/C.

    >>> plan = balanced_assignment(torch.tensor([[5.0, 0.0], [4.0, 0.0]], dtype=torch.float64), iterations=1000)
    >>> plan.sum(0)
    tensor([1., 1.], dtype=torch.float64)
    """
    if epsilon <= 0:
        raise ConfigError(f"epsilon is {epsilon}; expected a positive number (the paper uses 1.0).")
    columns = scores.to(torch.float64).T.unsqueeze(0)
    spread = float((scores.amax(dim=1) - scores.amin(dim=1)).max())
    block, present = Blocks(lambda _: columns, 1, True), Blocks(lambda _: torch.ones_like(columns[:, :1]), 1, True)
    potential = class_potential(block, present, iterations, epsilon, spread)
    return assignment(columns, potential, epsilon)[0].T.to(scores.dtype)
