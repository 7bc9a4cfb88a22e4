"""The attention half of a Transformer layer, out = LN(x + dropout(project(attention(x)))), for short sequences.

Forward it is one kernel, one sequence a tile. Heads are told apart by zeroing the other heads' columns rather than by
cutting them out: the products are then as wide as x, but nothing narrower than a matrix unit occurs, and all heads add
into the same tile. Backward it is three: what comes after the heads and what comes before them go row by row, in tiles
without padding, and the heads between them one sequence a tile. Nothing of size L² is ever written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.model.stacked.kernels.shared import end_gradient, kept, layer_norm

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _project(low, qkv, qkv_bias, run, part: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    """Queries (part 0), keys (1) or values (2) of all heads."""
    c = tl.arange(0, WIDTH)
    w = tl.load(qkv + (run * 3 + part) * WIDTH * WIDTH + c[None, :] * WIDTH + c[:, None]).to(low.dtype)
    y = tl.dot(low, w, input_precision=PRECISION) + tl.load(qkv_bias + (run * 3 + part) * WIDTH + c)[None, :]
    return y.to(low.dtype)


@triton.jit(do_not_specialize=["salt_weights", "salt_out"])
def attention(
    x, qkv, qkv_bias, project, project_bias, gamma, beta, key, out, heads, mixed, normed, rstd, logsum,
    streams, length, eps, salt_weights, threshold_weights, inflate_weights, salt_out, threshold_out, inflate_out,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, L: tl.constexpr, DROP: tl.constexpr, KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One sequence of one run; KEEP: also write what the backward pass needs, the five tensors behind `out`."""
    stream = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, L)
    c = tl.arange(0, WIDTH)
    live = (i < length)[:, None]
    row = (run * streams + stream) * length + i
    at = row[:, None] * WIDTH + c[None, :]
    wide = tl.load(x + at, mask=live, other=0.0).to(tl.float32)
    low = wide.to(mixed.dtype.element_ty)
    q = _project(low, qkv, qkv_bias, run, 0, WIDTH, PRECISION)
    k = _project(low, qkv, qkv_bias, run, 1, WIDTH, PRECISION)
    v = _project(low, qkv, qkv_bias, run, 2, WIDTH, PRECISION)
    if KEEP:
        at_heads = heads + row[:, None] * (3 * WIDTH) + c[None, :]
        tl.store(at_heads, q, mask=live)
        tl.store(at_heads + WIDTH, k, mask=live)
        tl.store(at_heads + 2 * WIDTH, v, mask=live)
    D: tl.constexpr = WIDTH // HEADS
    scale: tl.constexpr = LOG2_E / D**0.5
    absent = tl.where(i < length, 0.0, -1e30)[None, :]
    y = tl.zeros((L, WIDTH), tl.float32)
    for head in tl.static_range(HEADS):
        mine = (c // D == head)[None, :]
        q_head = tl.where(mine, q, 0.0).to(low.dtype)
        score = tl.dot(q_head, tl.trans(k), input_precision=PRECISION) * scale + absent
        top = tl.max(score, 1)
        weight = tl.exp2(score - top[:, None])
        total = tl.sum(weight, 1)
        if DROP:
            element = ((stream * HEADS + head) * length + i[:, None]) * length + i[None, :]
            weight = tl.where(kept(key, run, salt_weights, element, threshold_weights), weight, 0.0)
        weight = weight * (inflate_weights / total)[:, None]
        v_head = tl.where(mine, v, 0.0).to(low.dtype)
        y += tl.dot(weight.to(low.dtype), v_head, input_precision=PRECISION)
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


@triton.jit(do_not_specialize=["salt_out"])
def attention_output_gradient(
    project, gamma, key, dout, mixed, normed, rstd, dx, dmixed, partial,
    runs, rows, per_split, salt_out, threshold_out, inflate_out,
    WIDTH: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Through norm, dropout and projection: dmixed, the residual's share of dx, and of the parameters' gradients
    one row of `partial`, each for all runs: project, project_bias, gamma, beta."""
    split = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, WIDTH)
    gain = tl.load(gamma + run * WIDTH + c)[None, :]
    w = tl.load(project + run * WIDTH * WIDTH + c[:, None] * WIDTH + c[None, :]).to(mixed.dtype.element_ty)
    dproject = tl.zeros((WIDTH, WIDTH), tl.float32)
    dproject_bias = tl.zeros((WIDTH,), tl.float32)
    dgamma = tl.zeros((WIDTH,), tl.float32)
    dbeta = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, per_split, BLOCK):
        m = split * per_split + start + tl.arange(0, BLOCK)
        live = (m < rows)[:, None]
        at = (run * rows + m)[:, None] * WIDTH + c[None, :]
        dy, to_gamma, to_beta = end_gradient(
            dout, normed, rstd, key, dx, gain, run, rows, m, salt_out, threshold_out, inflate_out, WIDTH, DROP
        )
        dgamma += to_gamma
        dbeta += to_beta
        dproject_bias += tl.sum(dy, 0)
        low = dy.to(w.dtype)
        dproject += tl.dot(tl.trans(low), tl.load(mixed + at, mask=live, other=0.0), input_precision=PRECISION)
        tl.store(dmixed + at, tl.dot(low, w, input_precision=PRECISION).to(w.dtype), mask=live)
    base = partial + split.to(tl.int64) * runs * (WIDTH * WIDTH + 3 * WIDTH)
    tl.store(base + run * WIDTH * WIDTH + c[:, None] * WIDTH + c[None, :], dproject)
    base += runs * WIDTH * WIDTH
    tl.store(base + run * WIDTH + c, dproject_bias)
    tl.store(base + (runs + run) * WIDTH + c, dgamma)
    tl.store(base + (2 * runs + run) * WIDTH + c, dbeta)


@triton.jit(do_not_specialize=["salt_weights"])
def attention_heads_gradient(
    heads, key, mixed, logsum, dmixed, dheads, streams, length, salt_weights, threshold_weights, inflate_weights,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, PAD: tl.constexpr, L: tl.constexpr, DROP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """All heads of one sequence: the gradients of its queries, keys and values."""
    stream = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    D: tl.constexpr = WIDTH // HEADS
    scale: tl.constexpr = 1 / D**0.5
    i = tl.arange(0, L)
    d = tl.arange(0, PAD)
    live = (i < length)[:, None] & (d < D)[None, :]
    absent = tl.where(i < length, 0.0, -1e30)[None, :]
    row = (run * streams + stream) * length + i
    for head in tl.static_range(HEADS):
        at = row[:, None] * WIDTH + head * D + d[None, :]
        g = tl.load(dmixed + at, mask=live, other=0.0)
        # Σ_j weight · dweight is, over a head's columns, Σ mixed · dmixed
        along = tl.sum(g.to(tl.float32) * tl.load(mixed + at, mask=live, other=0.0).to(tl.float32), 1)
        at = row[:, None] * (3 * WIDTH) + head * D + d[None, :]
        q = tl.load(heads + at, mask=live, other=0.0)
        k = tl.load(heads + at + WIDTH, mask=live, other=0.0)
        v = tl.load(heads + at + 2 * WIDTH, mask=live, other=0.0)
        at_head = ((run * streams + stream) * HEADS + head) * length + i
        norm = tl.load(logsum + at_head, mask=i < length, other=1e30)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * LOG2_E) + absent
        weight = tl.exp2(score - norm[:, None])
        dropped = weight
        dweight = tl.dot(g, tl.trans(v), input_precision=PRECISION)
        if DROP:
            element = ((stream * HEADS + head) * length + i[:, None]) * length + i[None, :]
            keep = kept(key, run, salt_weights, element, threshold_weights)
            dropped = tl.where(keep, weight, 0.0)
            dweight = tl.where(keep, dweight, 0.0)
        # what makes up for dropout, and the scale, come last, where there is least to multiply
        dscore = (weight * (dweight - (along / inflate_weights)[:, None])).to(q.dtype)
        dq = tl.dot(dscore, k, input_precision=PRECISION) * (inflate_weights * scale)
        dk = tl.dot(tl.trans(dscore), q, input_precision=PRECISION) * (inflate_weights * scale)
        dv = tl.dot(tl.trans(dropped.to(g.dtype)), g, input_precision=PRECISION) * inflate_weights
        tl.store(dheads + at, dq.to(q.dtype), mask=live)
        tl.store(dheads + at + WIDTH, dk.to(q.dtype), mask=live)
        tl.store(dheads + at + 2 * WIDTH, dv.to(q.dtype), mask=live)


@triton.jit
def attention_input_gradient(
    x, qkv, dheads, dx, partial, runs, rows, per_split,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Through the projections to queries, keys and values: adds to dx; one row of `partial`: qkv, qkv_bias."""
    split = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, WIDTH)
    tile = c[:, None] * WIDTH + c[None, :]
    size = WIDTH * WIDTH
    wq = tl.load(qkv + run * 3 * size + tile).to(dheads.dtype.element_ty)
    wk = tl.load(qkv + (run * 3 + 1) * size + tile).to(dheads.dtype.element_ty)
    wv = tl.load(qkv + (run * 3 + 2) * size + tile).to(dheads.dtype.element_ty)
    dwq = tl.zeros((WIDTH, WIDTH), tl.float32)
    dwk = tl.zeros((WIDTH, WIDTH), tl.float32)
    dwv = tl.zeros((WIDTH, WIDTH), tl.float32)
    dbq = tl.zeros((WIDTH,), tl.float32)
    dbk = tl.zeros((WIDTH,), tl.float32)
    dbv = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, per_split, BLOCK):
        m = split * per_split + start + tl.arange(0, BLOCK)
        live = (m < rows)[:, None]
        at = (run * rows + m)[:, None] * WIDTH + c[None, :]
        low = tl.load(x + at, mask=live, other=0.0).to(wq.dtype)
        at_heads = dheads + (run * rows + m)[:, None] * (3 * WIDTH) + c[None, :]
        dq = tl.load(at_heads, mask=live, other=0.0)
        dk = tl.load(at_heads + WIDTH, mask=live, other=0.0)
        dv = tl.load(at_heads + 2 * WIDTH, mask=live, other=0.0)
        dbq += tl.sum(dq.to(tl.float32), 0)
        dbk += tl.sum(dk.to(tl.float32), 0)
        dbv += tl.sum(dv.to(tl.float32), 0)
        dwq += tl.dot(tl.trans(dq), low, input_precision=PRECISION)
        dwk += tl.dot(tl.trans(dk), low, input_precision=PRECISION)
        dwv += tl.dot(tl.trans(dv), low, input_precision=PRECISION)
        total = tl.dot(dq, wq, input_precision=PRECISION)
        total = tl.dot(dk, wk, total, input_precision=PRECISION)
        total = tl.dot(dv, wv, total, input_precision=PRECISION)
        total += tl.load(dx + at, mask=live, other=0.0)
        tl.store(dx + at, total.to(dx.dtype.element_ty), mask=live)
    base = partial + split.to(tl.int64) * runs * (3 * size + 3 * WIDTH)
    tl.store(base + run * 3 * size + tile, dwq)
    tl.store(base + (run * 3 + 1) * size + tile, dwk)
    tl.store(base + (run * 3 + 2) * size + tile, dwv)
    base += runs * 3 * size
    tl.store(base + run * 3 * WIDTH + c, dbq)
    tl.store(base + (run * 3 + 1) * WIDTH + c, dbk)
    tl.store(base + (run * 3 + 2) * WIDTH + c, dbv)
