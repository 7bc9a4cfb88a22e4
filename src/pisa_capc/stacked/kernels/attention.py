"""The attention half of a Transformer layer, out = LN(x + dropout(project(attention(x)))), for short sequences.

One sequence is one tile. Heads are told apart by zeroing the other heads' columns rather than by cutting them out: the
products are then as wide as x, but nothing narrower than a matrix unit occurs and all heads add into the same tiles.
Nothing of size L² is written; the backward pass computes the weights again.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.stacked.kernels.shared import kept, layer_norm, layer_norm_gradient


@triton.jit
def _project(low, qkv, qkv_bias, run, part: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    """Queries (part 0), keys (1) or values (2) of all heads, and the matrix (outputs, inputs) that made them."""
    c = tl.arange(0, WIDTH)
    w = tl.load(qkv + (run * 3 + part) * WIDTH * WIDTH + c[:, None] * WIDTH + c[None, :]).to(low.dtype)
    y = tl.dot(low, tl.trans(w), input_precision=PRECISION) + tl.load(qkv_bias + (run * 3 + part) * WIDTH + c)[None, :]
    return y.to(low.dtype), w


@triton.jit(do_not_specialize=["salt_weights", "salt_out"])
def attention(
    x, qkv, qkv_bias, project, project_bias, gamma, beta, key, out, mixed, normed, rstd, logsum,
    streams, length, eps, salt_weights, threshold_weights, inflate_weights, salt_out, threshold_out, inflate_out,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, L: tl.constexpr, DROP: tl.constexpr, KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One sequence of one run; KEEP: also write what the backward pass needs, the four tensors behind `out`."""
    stream = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, L)
    c = tl.arange(0, WIDTH)
    live = (i < length)[:, None]
    row = (run * streams + stream) * length + i
    at = row[:, None] * WIDTH + c[None, :]
    wide = tl.load(x + at, mask=live, other=0.0).to(tl.float32)
    low = wide.to(mixed.dtype.element_ty)
    q, _ = _project(low, qkv, qkv_bias, run, 0, WIDTH, PRECISION)
    k, _ = _project(low, qkv, qkv_bias, run, 1, WIDTH, PRECISION)
    v, _ = _project(low, qkv, qkv_bias, run, 2, WIDTH, PRECISION)
    D: tl.constexpr = WIDTH // HEADS
    scale: tl.constexpr = 1.4426950408889634 / D**0.5  # of base 2
    absent = tl.where(i < length, 0.0, -1e30)[None, :]
    y = tl.zeros((L, WIDTH), tl.float32)
    for head in tl.static_range(HEADS):
        mine = (c // D == head)[None, :]
        score = tl.dot(tl.where(mine, q, 0.0).to(low.dtype), tl.trans(k), input_precision=PRECISION) * scale + absent
        top = tl.max(score, 1)
        weight = tl.exp2(score - top[:, None])
        total = tl.sum(weight, 1)
        if DROP:
            element = ((stream * HEADS + head) * length + i[:, None]) * length + i[None, :]
            weight = tl.where(kept(key, run, salt_weights, element, threshold_weights), weight, 0.0)
        weight = weight * (inflate_weights / total)[:, None]
        y += tl.dot(weight.to(low.dtype), tl.where(mine, v, 0.0).to(low.dtype), input_precision=PRECISION)
        if KEEP:
            at_head = ((run * streams + stream) * HEADS + head) * length + i
            tl.store(logsum + at_head, top + tl.log2(total), mask=i < length)
    y_low = y.to(low.dtype)
    w = tl.load(project + run * WIDTH * WIDTH + c[None, :] * WIDTH + c[:, None]).to(low.dtype)
    y = tl.dot(y_low, w, input_precision=PRECISION) + tl.load(project_bias + run * WIDTH + c)[None, :]
    if DROP:
        element = (stream * length + i)[:, None] * WIDTH + c[None, :]
        y = tl.where(kept(key, run, salt_out, element, threshold_out), y * inflate_out, 0.0)
    unit, inverse = layer_norm(wide + y, eps, WIDTH)
    result = unit * tl.load(gamma + run * WIDTH + c)[None, :] + tl.load(beta + run * WIDTH + c)[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=live)
    if KEEP:
        tl.store(mixed + at, y_low, mask=live)
        tl.store(normed + at, unit.to(normed.dtype.element_ty), mask=live)
        tl.store(rstd + row, inverse, mask=i < length)


@triton.jit(do_not_specialize=["salt_weights", "salt_out"])
def attention_gradient(
    x, qkv, qkv_bias, project, gamma, key, dout, mixed, normed, rstd, logsum, dx, partial,
    runs, streams, length, per_split, salt_weights, threshold_weights, inflate_weights, salt_out, threshold_out,
    inflate_out,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, L: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dx, and one row of `partial` with this program's share of the parameters' gradients.

    A row holds, each for all runs: qkv, project, qkv_bias, project_bias, gamma, beta.
    """
    split = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, L)
    c = tl.arange(0, WIDTH)
    D: tl.constexpr = WIDTH // HEADS
    scale: tl.constexpr = 1 / D**0.5
    gain = tl.load(gamma + run * WIDTH + c)[None, :]
    absent = tl.where(i < length, 0.0, -1e30)[None, :]
    dwq = tl.zeros((WIDTH, WIDTH), tl.float32)
    dwk = tl.zeros((WIDTH, WIDTH), tl.float32)
    dwv = tl.zeros((WIDTH, WIDTH), tl.float32)
    dproject = tl.zeros((WIDTH, WIDTH), tl.float32)
    dbq = tl.zeros((WIDTH,), tl.float32)
    dbk = tl.zeros((WIDTH,), tl.float32)
    dbv = tl.zeros((WIDTH,), tl.float32)
    dproject_bias = tl.zeros((WIDTH,), tl.float32)
    dgamma = tl.zeros((WIDTH,), tl.float32)
    dbeta = tl.zeros((WIDTH,), tl.float32)
    for stream in range(split * per_split, tl.minimum((split + 1) * per_split, streams)):
        live = (i < length)[:, None]
        row = (run * streams + stream) * length + i
        at = row[:, None] * WIDTH + c[None, :]
        low = tl.load(x + at, mask=live, other=0.0).to(mixed.dtype.element_ty)
        unit = tl.load(normed + at, mask=live, other=0.0).to(tl.float32)
        g = tl.load(dout + at, mask=live, other=0.0).to(tl.float32)
        dgamma += tl.sum(g * unit, 0)
        dbeta += tl.sum(g, 0)
        dr = layer_norm_gradient(g * gain, unit, tl.load(rstd + row, mask=i < length, other=0.0), WIDTH)
        dy = dr
        if DROP:
            element = (stream * length + i)[:, None] * WIDTH + c[None, :]
            dy = tl.where(kept(key, run, salt_out, element, threshold_out), dr * inflate_out, 0.0)
        dproject_bias += tl.sum(dy, 0)
        dy_low = dy.to(low.dtype)
        m = tl.load(mixed + at, mask=live, other=0.0)
        dproject += tl.dot(tl.trans(dy_low), m, input_precision=PRECISION)
        w = tl.load(project + run * WIDTH * WIDTH + c[:, None] * WIDTH + c[None, :]).to(low.dtype)
        dmixed = tl.dot(dy_low, w, input_precision=PRECISION)
        along = dmixed * m.to(tl.float32)  # its sum over a head's columns is Σ_j weight · dweight
        dmixed = dmixed.to(low.dtype)
        q, wq = _project(low, qkv, qkv_bias, run, 0, WIDTH, PRECISION)
        k, wk = _project(low, qkv, qkv_bias, run, 1, WIDTH, PRECISION)
        v, wv = _project(low, qkv, qkv_bias, run, 2, WIDTH, PRECISION)
        dq = tl.zeros((L, WIDTH), tl.float32)
        dk = tl.zeros((L, WIDTH), tl.float32)
        dv = tl.zeros((L, WIDTH), tl.float32)
        for head in tl.static_range(HEADS):
            mine = (c // D == head)[None, :]
            at_head = ((run * streams + stream) * HEADS + head) * length + i
            norm = tl.load(logsum + at_head, mask=i < length, other=1e30)
            q_head = tl.where(mine, q, 0.0).to(low.dtype)
            d_head = tl.where(mine, dmixed, 0.0).to(low.dtype)
            score = tl.dot(q_head, tl.trans(k), input_precision=PRECISION) * (scale * 1.4426950408889634) + absent
            weight = tl.exp2(score - norm[:, None])
            dropped = weight * inflate_weights
            dweight = tl.dot(d_head, tl.trans(v), input_precision=PRECISION) * inflate_weights
            if DROP:
                element = ((stream * HEADS + head) * length + i[:, None]) * length + i[None, :]
                keep = kept(key, run, salt_weights, element, threshold_weights)
                dropped = tl.where(keep, dropped, 0.0)
                dweight = tl.where(keep, dweight, 0.0)
            dv += tl.dot(tl.trans(dropped.to(low.dtype)), d_head, input_precision=PRECISION)
            dscore = weight * (dweight - tl.sum(tl.where(mine, along, 0.0), 1)[:, None]) * scale
            dscore = dscore.to(low.dtype)
            dq += tl.dot(dscore, tl.where(mine, k, 0.0).to(low.dtype), input_precision=PRECISION)
            dk += tl.dot(tl.trans(dscore), q_head, input_precision=PRECISION)
        dbq += tl.sum(dq, 0)
        dbk += tl.sum(dk, 0)
        dbv += tl.sum(dv, 0)
        dq_low, dk_low, dv_low = dq.to(low.dtype), dk.to(low.dtype), dv.to(low.dtype)
        dwq += tl.dot(tl.trans(dq_low), low, input_precision=PRECISION)
        dwk += tl.dot(tl.trans(dk_low), low, input_precision=PRECISION)
        dwv += tl.dot(tl.trans(dv_low), low, input_precision=PRECISION)
        dr += tl.dot(dq_low, wq, input_precision=PRECISION)
        dr += tl.dot(dk_low, wk, input_precision=PRECISION)
        dr += tl.dot(dv_low, wv, input_precision=PRECISION)
        tl.store(dx + at, dr.to(dx.dtype.element_ty), mask=live)
    size = WIDTH * WIDTH
    tile = c[:, None] * WIDTH + c[None, :]
    base = partial + split.to(tl.int64) * runs * (4 * size + 6 * WIDTH)
    tl.store(base + run * 3 * size + tile, dwq)
    tl.store(base + (run * 3 + 1) * size + tile, dwk)
    tl.store(base + (run * 3 + 2) * size + tile, dwv)
    base += runs * 3 * size
    tl.store(base + run * size + tile, dproject)
    base += runs * size
    tl.store(base + run * 3 * WIDTH + c, dbq)
    tl.store(base + (run * 3 + 1) * WIDTH + c, dbk)
    tl.store(base + (run * 3 + 2) * WIDTH + c, dbv)
    base += runs * 3 * WIDTH
    tl.store(base + run * WIDTH + c, dproject_bias)
    tl.store(base + (runs + run) * WIDTH + c, dgamma)
    tl.store(base + (2 * runs + run) * WIDTH + c, dbeta)
