"""The feed-forward half of a Transformer layer, out = LN(x + dropout(down(dropout(ReLU(up(x)))))).

The hidden activations, four times as wide as x, never leave the chip; the backward pass computes them again.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.stacked.kernels.shared import kept, layer_norm, layer_norm_gradient


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
    x, up, up_bias, down, gamma, key, dout, normed, rstd, dx, partial,
    runs, rows, per_split, salt_hidden, threshold_hidden, inflate_hidden, salt_out, threshold_out, inflate_out,
    WIDTH: tl.constexpr, HIDDEN: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dx, and one row of `partial` with this program's share of the parameters' gradients.

    A row holds, each for all runs: up, down, up_bias, down_bias, gamma, beta.
    """
    split = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, WIDTH)
    j = tl.arange(0, HIDDEN)
    scale = tl.load(gamma + run * WIDTH + c)[None, :]
    bias = tl.load(up_bias + run * HIDDEN + j)[None, :]
    dup = tl.zeros((HIDDEN, WIDTH), tl.float32)
    ddown = tl.zeros((HIDDEN, WIDTH), tl.float32)  # transposed
    dup_bias = tl.zeros((HIDDEN,), tl.float32)
    ddown_bias = tl.zeros((WIDTH,), tl.float32)
    dgamma = tl.zeros((WIDTH,), tl.float32)
    dbeta = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, per_split, BLOCK):
        m = split * per_split + start + tl.arange(0, BLOCK)
        live = (m < rows)[:, None]
        at = (run * rows + m)[:, None] * WIDTH + c[None, :]
        low = tl.load(x + at, mask=live, other=0.0).to(normed.dtype.element_ty)
        unit = tl.load(normed + at, mask=live, other=0.0).to(tl.float32)
        g = tl.load(dout + at, mask=live, other=0.0).to(tl.float32)
        dgamma += tl.sum(g * unit, 0)
        dbeta += tl.sum(g, 0)
        dr = layer_norm_gradient(g * scale, unit, tl.load(rstd + run * rows + m, mask=m < rows, other=0.0), WIDTH)
        dy = dr
        if DROP:
            keep = kept(key, run, salt_out, m[:, None] * WIDTH + c[None, :], threshold_out)
            dy = tl.where(keep, dr * inflate_out, 0.0)
        ddown_bias += tl.sum(dy, 0)
        dy_low = dy.to(low.dtype)
        w = tl.load(up + run * HIDDEN * WIDTH + j[:, None] * WIDTH + c[None, :]).to(low.dtype)
        hidden = tl.dot(low, tl.trans(w), input_precision=PRECISION) + bias
        alive = hidden > 0.0
        if DROP:
            alive = alive & kept(key, run, salt_hidden, m[:, None] * HIDDEN + j[None, :], threshold_hidden)
        hidden = tl.where(alive, hidden * inflate_hidden, 0.0).to(low.dtype)
        ddown += tl.dot(tl.trans(hidden), dy_low, input_precision=PRECISION)
        w_down = tl.load(down + run * WIDTH * HIDDEN + c[:, None] * HIDDEN + j[None, :]).to(low.dtype)
        dhidden = tl.dot(dy_low, w_down, input_precision=PRECISION)
        dhidden = tl.where(alive, dhidden * inflate_hidden, 0.0)
        dup_bias += tl.sum(dhidden, 0)
        dhidden_low = dhidden.to(low.dtype)
        dup += tl.dot(tl.trans(dhidden_low), low, input_precision=PRECISION)
        dr += tl.dot(dhidden_low, w, input_precision=PRECISION)
        tl.store(dx + at, dr.to(dx.dtype.element_ty), mask=live)
    size = WIDTH * HIDDEN
    row = partial + split.to(tl.int64) * runs * (2 * size + HIDDEN + 3 * WIDTH)
    tl.store(row + run * size + j[:, None] * WIDTH + c[None, :], dup)
    row += runs * size
    tl.store(row + run * size + c[None, :] * HIDDEN + j[:, None], ddown)
    row += runs * size
    tl.store(row + run * HIDDEN + j, dup_bias)
    row += runs * HIDDEN
    tl.store(row + run * WIDTH + c, ddown_bias)
    tl.store(row + (runs + run) * WIDTH + c, dgamma)
    tl.store(row + (2 * runs + run) * WIDTH + c, dbeta)
