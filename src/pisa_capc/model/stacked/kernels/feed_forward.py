"""The feed-forward half of a Transformer layer, out = LN(x + dropout(down(dropout(ReLU(up(x)))))).

The hidden activations, four times as wide as x, never leave the chip; the backward pass computes them again.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.model.stacked.kernels.shared import end_gradient, kept, layer_norm


@triton.jit(do_not_specialize=["salt_hidden", "salt_out"])
def feed_forward(
    x, up, up_bias, down, down_bias, gamma, beta, key, out, normed, rstd,
    rows, eps, salt_hidden, threshold_hidden, inflate_hidden, salt_out, threshold_out, inflate_out,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, CHUNK: tl.constexpr, DROP: tl.constexpr, KEEP: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of rows; KEEP: also write what the backward pass needs, `normed` and `rstd`."""
    run = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, WIDTH)
    live = (m < rows)[:, None]
    at = (run * rows + m)[:, None] * WIDTH + c[None, :]
    wide = tl.load(x + at, mask=live, other=0.0).to(tl.float32)
    low = wide.to(normed.dtype.element_ty)
    y = tl.zeros((BLOCK, WIDTH), tl.float32) + tl.load(down_bias + run * WIDTH + c)[None, :]
    for start in tl.static_range(0, HIDDEN, CHUNK):
        j = start + tl.arange(0, CHUNK)
        w = tl.load(up + run * HIDDEN * WIDTH + j[None, :] * WIDTH + c[:, None]).to(low.dtype)
        hidden = tl.dot(low, w, input_precision=PRECISION) + tl.load(up_bias + run * HIDDEN + j)[None, :]
        hidden = tl.maximum(hidden, 0.0)
        if DROP:
            keep = kept(key, run, salt_hidden, m[:, None] * HIDDEN + j[None, :], threshold_hidden)
            hidden = tl.where(keep, hidden * inflate_hidden, 0.0)
        w = tl.load(down + run * WIDTH * HIDDEN + c[None, :] * HIDDEN + j[:, None]).to(low.dtype)
        y += tl.dot(hidden.to(low.dtype), w, input_precision=PRECISION)
    if DROP:
        keep = kept(key, run, salt_out, m[:, None] * WIDTH + c[None, :], threshold_out)
        y = tl.where(keep, y * inflate_out, 0.0)
    unit, inverse = layer_norm(wide + y, eps, WIDTH)
    result = unit * tl.load(gamma + run * WIDTH + c)[None, :] + tl.load(beta + run * WIDTH + c)[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=live)
    if KEEP:
        tl.store(normed + at, unit.to(normed.dtype.element_ty), mask=live)
        tl.store(rstd + run * rows + m, inverse, mask=m < rows)


@triton.jit(do_not_specialize=["salt_hidden", "salt_out"])
def feed_forward_gradient(
    x, up, up_bias, down, gamma, key, dout, normed, rstd, dx, dy, partial,
    runs, rows, per_split, salt_hidden, threshold_hidden, inflate_hidden, salt_out, threshold_out, inflate_out,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, CHUNK: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dx, and one row of `partial` with this program's share of the parameters' gradients.

    A program goes over its rows once for norm and dropout, which leaves the gradient dy of down's result, and then once
    for every chunk of the hidden units: a chunk's weights and their gradients stay in registers, and the rows in the
    cache. A row of `partial` holds, each for all runs: up, down, up_bias, down_bias, gamma, beta.
    """
    split = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, WIDTH)
    size = WIDTH * HIDDEN
    base = partial + split.to(tl.int64) * runs * (2 * size + HIDDEN + 3 * WIDTH)
    gain = tl.load(gamma + run * WIDTH + c)[None, :]
    ddown_bias = tl.zeros((WIDTH,), tl.float32)
    dgamma = tl.zeros((WIDTH,), tl.float32)
    dbeta = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, per_split, BLOCK):
        m = split * per_split + start + tl.arange(0, BLOCK)
        live = (m < rows)[:, None]
        at = (run * rows + m)[:, None] * WIDTH + c[None, :]
        dr, to_gamma, to_beta = end_gradient(
            dout, normed, rstd, key, dx, gain, run, rows, m, salt_out, threshold_out, inflate_out, WIDTH, DROP
        )
        dgamma += to_gamma
        dbeta += to_beta
        ddown_bias += tl.sum(dr, 0)
        tl.store(dy + at, dr.to(dy.dtype.element_ty), mask=live)
    vectors = base + runs * (2 * size + HIDDEN) + run * WIDTH + c
    tl.store(vectors, ddown_bias)
    tl.store(vectors + runs * WIDTH, dgamma)
    tl.store(vectors + 2 * runs * WIDTH, dbeta)
    tl.debug_barrier()  # dx and dy are read again, perhaps by another thread
    for first in range(0, HIDDEN, CHUNK):
        j = first + tl.arange(0, CHUNK)
        at_up = run * size + j[:, None] * WIDTH + c[None, :]
        at_down = run * size + c[:, None] * HIDDEN + j[None, :]
        w_up = tl.load(up + at_up).to(dy.dtype.element_ty)
        w_down = tl.load(down + at_down).to(dy.dtype.element_ty)
        bias = tl.load(up_bias + run * HIDDEN + j)[None, :]
        dup = tl.zeros((CHUNK, WIDTH), tl.float32)
        ddown = tl.zeros((WIDTH, CHUNK), tl.float32)
        dup_bias = tl.zeros((CHUNK,), tl.float32)
        for start in range(0, per_split, BLOCK):
            m = split * per_split + start + tl.arange(0, BLOCK)
            live = (m < rows)[:, None]
            at = (run * rows + m)[:, None] * WIDTH + c[None, :]
            low = tl.load(x + at, mask=live, other=0.0).to(w_up.dtype)
            g_low = tl.load(dy + at, mask=live, other=0.0)
            hidden = tl.dot(low, tl.trans(w_up), input_precision=PRECISION) + bias
            dhidden = tl.dot(g_low, w_down, input_precision=PRECISION)
            alive = hidden > 0.0
            if DROP:
                alive = alive & kept(key, run, salt_hidden, m[:, None] * HIDDEN + j[None, :], threshold_hidden)
            hidden_low = tl.where(alive, hidden * inflate_hidden, 0.0).to(w_up.dtype)
            dhidden = tl.where(alive, dhidden * inflate_hidden, 0.0)
            dup_bias += tl.sum(dhidden, 0)
            dhidden_low = dhidden.to(w_up.dtype)
            ddown += tl.dot(tl.trans(g_low), hidden_low, input_precision=PRECISION)
            dup += tl.dot(tl.trans(dhidden_low), low, input_precision=PRECISION)
            total = tl.dot(dhidden_low, w_up, input_precision=PRECISION) + tl.load(dx + at, mask=live, other=0.0)
            tl.store(dx + at, total.to(dx.dtype.element_ty), mask=live)
        tl.store(base + at_up, dup)
        tl.store(base + runs * size + at_down, ddown)
        tl.store(base + runs * 2 * size + run * HIDDEN + j, dup_bias)
        tl.debug_barrier()
