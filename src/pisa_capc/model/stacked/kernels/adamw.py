"""One step of AdamW."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def adamw(
    parameters, gradients, means, squares, steps, size, rate, decay, rest1, rest2, log2_beta1, log2_beta2, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """p ← (1 − rate·decay) p − rate·m̂/(√v̂ + eps), of flat parameters; steps: how many, this one included.

    rest: 1 − β. Powers of β are taken in double precision: what they leave of one is small at first.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = i < size
    t = tl.load(steps).to(tl.float64)
    correction1 = (1.0 - tl.exp2(t * log2_beta1)).to(tl.float32)
    correction2 = (1.0 - tl.exp2(t * log2_beta2)).to(tl.float32)
    g = tl.load(gradients + i, mask=live, other=0.0)
    m = tl.load(means + i, mask=live, other=0.0)
    v = tl.load(squares + i, mask=live, other=0.0)
    m += rest1 * (g - m)
    v += rest2 * (g * g - v)
    p = tl.load(parameters + i, mask=live, other=0.0) * (1.0 - rate * decay)
    p -= (rate / correction1) * m / (tl.sqrt(v) / tl.sqrt(correction2) + eps)
    tl.store(means + i, m, mask=live)
    tl.store(squares + i, v, mask=live)
    tl.store(parameters + i, p, mask=live)
