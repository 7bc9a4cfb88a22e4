"""Topology-guided token propagation, u = x + scale · out(dropout(A) V) with its graph loss, for few nodes.

Forward it is one kernel, one frame a tile. Backward it is two: the heads one frame a tile, which computes again from x
what it needs of them but the normalisers of the attention; then what goes node by node, in tiles without padding.
Heads are told apart as in `attention.py`, by zeroing the other heads' columns. Exponents are in powers of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.model.stacked.kernels.attention import LOG2_E
from pisa_capc.model.stacked.kernels.shared import kept, layer_norm, layer_norm_gradient

LEAST = tl.constexpr(1e-12)  # the least attention whose logarithm is taken, as in `graph_loss`


@triton.jit(do_not_specialize=["tokens"])
def separations(distances, apart, nodes, tokens, tau_s, BLOCK: tl.constexpr):
    """d(p_a, p_b)/τ_s and behind it |k − l| for each pair of nodes (a, k) and (b, l)."""
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = pair < nodes * nodes
    i = pair // nodes
    j = pair - i * nodes
    a, b = i // tokens, j // tokens
    space = tl.load(distances + a * (nodes // tokens) + b, mask=live, other=0.0) / tau_s
    tl.store(apart + pair, space, mask=live)
    gap = tl.abs((i - a * tokens) - (j - b * tokens))
    tl.store(apart + nodes * nodes + pair, gap.to(tl.float32), mask=live)


@triton.jit
def _apart(apart, nodes, J: tl.constexpr):
    """A frame's tile of what `separations` left."""
    i = tl.arange(0, J)
    live = (i < nodes)[:, None] & (i < nodes)[None, :]
    at = i[:, None] * nodes + i[None, :]
    return tl.load(apart + at, mask=live, other=0.0), tl.load(apart + nodes * nodes + at, mask=live, other=0.0)


@triton.jit
def _availability(available, row, i, nodes):
    """Whether a node is there, and what stands for the logarithm of its share if it is not.

    An absent node is one of the frame's nodes none the less; what fills up the tile is not.
    """
    there = tl.load(available + row, mask=i < nodes, other=0) != 0
    return there, tl.where(i < nodes, -1e9, -1e30)


@triton.jit
def _log_prior(space, gap, tau_t, there, never):
    """log₂ P of Eq. (topology_prior), its rows normalised over the nodes that are there."""
    exponent = tl.where(there[None, :], -LOG2_E * (space + gap / tau_t), never[None, :])
    exponent -= tl.max(exponent, 1)[:, None]
    return exponent - tl.log2(tl.sum(tl.exp2(exponent), 1))[:, None]


@triton.jit
def _score(q, k_head, exponent, there, never, D: tl.constexpr, PRECISION: tl.constexpr):
    """The exponent of Eq. (topology_attention) for one head; exponent: β̃ log₂ P."""
    score = tl.dot(q, tl.trans(k_head), input_precision=PRECISION) * (LOG2_E / D**0.5) + exponent
    return tl.where(there[None, :], score, never[None, :])


@triton.jit
def _of_head(y, head, D: tl.constexpr, WIDTH: tl.constexpr):
    """y with the columns of the other heads zero."""
    c = tl.arange(0, WIDTH)
    return y * ((c >= head * D) & (c < (head + 1) * D)).to(y.dtype)[None, :]


@triton.jit
def _matrix(weight, run, WIDTH: tl.constexpr, LOW: tl.constexpr):
    """The weight of one run, (outputs, inputs)."""
    c = tl.arange(0, WIDTH)
    return tl.load(weight + run * WIDTH * WIDTH + c[:, None] * WIDTH + c[None, :]).to(LOW)


@triton.jit
def _vector(values, run, WIDTH: tl.constexpr):
    """The bias or gain of one run as a row."""
    return tl.load(values + run * WIDTH + tl.arange(0, WIDTH))[None, :]


@triton.jit
def _linear(low, weight, bias, run, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    w = tl.trans(_matrix(weight, run, WIDTH, low.dtype))
    return tl.dot(low, w, input_precision=PRECISION) + _vector(bias, run, WIDTH)


@triton.jit(do_not_specialize=["salt"])
def topology(
    x, tau_t, beta, available, apart, gamma, shift, query, query_bias, key, key_bias, value, value_bias,
    out, out_bias, noise, u, loss, mixed, logsum, frames, nodes, scale, eps, salt, threshold, inflate,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, J: tl.constexpr, DROP: tl.constexpr, KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One frame of one run: u and the graph loss; KEEP: also what the backward pass needs, the two tensors behind."""
    n = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    D: tl.constexpr = WIDTH // HEADS
    LOW: tl.constexpr = mixed.dtype.element_ty
    i = tl.arange(0, J)
    c = tl.arange(0, WIDTH)
    live = (i < nodes)[:, None]
    space, gap = _apart(apart, nodes, J)
    frame = run * frames + n
    row = frame * nodes + i
    at = row[:, None] * WIDTH + c[None, :]
    wide = tl.load(x + at, mask=live, other=0.0).to(tl.float32)
    unit, _ = layer_norm(wide, eps, WIDTH)
    low = (unit * _vector(gamma, run, WIDTH) + _vector(shift, run, WIDTH)).to(LOW)
    q = _linear(low, query, query_bias, run, WIDTH, PRECISION).to(LOW)
    k = _linear(low, key, key_bias, run, WIDTH, PRECISION).to(LOW)
    v = _linear(low, value, value_bias, run, WIDTH, PRECISION).to(LOW)
    there, never = _availability(available, row, i, nodes)
    log_prior = _log_prior(space, gap, tl.load(tau_t + frame), there, never)
    exponent = tl.load(beta + frame) * log_prior
    mean = tl.zeros((J, J), tl.float32)
    y = tl.zeros((J, WIDTH), tl.float32)
    for head in range(HEADS):
        score = _score(q, _of_head(k, head, D, WIDTH), exponent, there, never, D, PRECISION)
        top = tl.max(score, 1)
        weight = tl.exp2(score - top[:, None])
        total = tl.sum(weight, 1)
        weight = weight / total[:, None]
        mean += weight
        if DROP:
            element = ((n * HEADS + head) * nodes + i[:, None]) * nodes + i[None, :]
            weight = tl.where(kept(noise, run, salt, element, threshold), weight * inflate, 0.0)
        y = tl.dot(weight.to(LOW), _of_head(v, head, D, WIDTH), y, input_precision=PRECISION)
        if KEEP:
            at_head = (frame * HEADS + head) * nodes + i
            tl.store(logsum + at_head, top + tl.log2(total), mask=i < nodes)
    y_low = y.to(LOW)
    if KEEP:
        tl.store(mixed + at, y_low, mask=live)
    y = _linear(y_low, out, out_bias, run, WIDTH, PRECISION)
    tl.store(u + at, (wide + scale * y).to(u.dtype.element_ty), mask=live)
    mean = mean / HEADS
    ratio = mean * (tl.log2(tl.maximum(mean, LEAST)) - log_prior)
    ratio = tl.where(there[:, None] & there[None, :], ratio, 0.0)
    count = tl.sum(there.to(tl.float32), 0)
    tl.store(loss + frame, tl.sum(tl.sum(ratio, 1), 0) / (LOG2_E * count * count))


@triton.jit(do_not_specialize=["salt"])
def topology_heads_gradient(
    x, tau_t, beta, available, apart, gamma, shift, query, query_bias, key, key_bias, value, value_bias, out,
    noise, logsum, du, dloss, dtau_t, dbeta, dheads, frames, nodes, scale, eps, salt, threshold, inflate,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, J: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One frame of one run: dτ̃_t, dβ̃, and the gradients of its queries, keys and values."""
    n = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    D: tl.constexpr = WIDTH // HEADS
    LOW: tl.constexpr = dheads.dtype.element_ty
    i = tl.arange(0, J)
    c = tl.arange(0, WIDTH)
    live = (i < nodes)[:, None]
    frame = run * frames + n
    row = frame * nodes + i
    at = row[:, None] * WIDTH + c[None, :]
    unit, _ = layer_norm(tl.load(x + at, mask=live, other=0.0).to(tl.float32), eps, WIDTH)
    low = (unit * _vector(gamma, run, WIDTH) + _vector(shift, run, WIDTH)).to(LOW)
    q = _linear(low, query, query_bias, run, WIDTH, PRECISION).to(LOW)
    k = _linear(low, key, key_bias, run, WIDTH, PRECISION).to(LOW)
    v = _linear(low, value, value_bias, run, WIDTH, PRECISION).to(LOW)
    there, never = _availability(available, row, i, nodes)
    reach = tl.load(tau_t + frame)
    strength = tl.load(beta + frame)
    space, gap = _apart(apart, nodes, J)
    log_prior = _log_prior(space, gap, reach, there, never)
    exponent = strength * log_prior
    mean = tl.zeros((J, J), tl.float32)
    for head in range(HEADS):
        score = _score(q, _of_head(k, head, D, WIDTH), exponent, there, never, D, PRECISION)
        norm = tl.load(logsum + (frame * HEADS + head) * nodes + i, mask=i < nodes, other=1e30)
        mean += tl.exp2(score - norm[:, None])
    mean = mean / HEADS
    # What the graph loss asks of each head's attention, and, by way of the prior, of τ̃_t.
    count = tl.sum(there.to(tl.float32), 0)
    share = tl.load(dloss + frame) / (count * count)
    pairs = there[:, None] & there[None, :]
    asked = (tl.log2(tl.maximum(mean, LEAST)) - log_prior) / LOG2_E + tl.where(mean >= LEAST, 1.0, 0.0)
    asked = tl.where(pairs, asked * (share / HEADS), 0.0)
    farther = share * tl.sum(tl.sum(tl.where(pairs, (tl.exp2(log_prior) - mean) * gap, 0.0), 1), 0)
    dy = (tl.load(du + at, mask=live, other=0.0).to(tl.float32) * scale).to(LOW)
    dmixed = tl.dot(dy, _matrix(out, run, WIDTH, LOW), input_precision=PRECISION).to(LOW)
    dq = tl.zeros((J, WIDTH), tl.float32)
    dk = tl.zeros((J, WIDTH), tl.float32)
    dv = tl.zeros((J, WIDTH), tl.float32)
    dscores = tl.zeros((J, J), tl.float32)
    for head in range(HEADS):
        k_head = _of_head(k, head, D, WIDTH)
        dmixed_head = _of_head(dmixed, head, D, WIDTH)
        score = _score(q, k_head, exponent, there, never, D, PRECISION)
        norm = tl.load(logsum + (frame * HEADS + head) * nodes + i, mask=i < nodes, other=1e30)
        weight = tl.exp2(score - norm[:, None])
        dropped = weight
        dweight = tl.dot(dmixed_head, tl.trans(v), input_precision=PRECISION)
        if DROP:
            element = ((n * HEADS + head) * nodes + i[:, None]) * nodes + i[None, :]
            keep = kept(noise, run, salt, element, threshold)
            dropped = tl.where(keep, weight * inflate, 0.0)
            dweight = tl.where(keep, dweight * inflate, 0.0)
        dweight += asked
        dscore = weight * (dweight - tl.sum(weight * dweight, 1)[:, None])
        dscores += dscore
        dscore_low = dscore.to(LOW)
        dv = tl.dot(tl.trans(dropped.to(LOW)), dmixed_head, dv, input_precision=PRECISION)
        dq = tl.dot(dscore_low, k_head, dq, input_precision=PRECISION)
        dk = tl.dot(tl.trans(dscore_low), _of_head(q, head, D, WIDTH), dk, input_precision=PRECISION)
    at = row[:, None] * (3 * WIDTH) + c[None, :]
    tl.store(dheads + at, (dq / D**0.5).to(LOW), mask=live)
    tl.store(dheads + at + WIDTH, (dk / D**0.5).to(LOW), mask=live)
    tl.store(dheads + at + 2 * WIDTH, dv.to(LOW), mask=live)
    # Rows of dscores sum to zero, so that the prior's own normaliser has no say in them.
    farther += strength * tl.sum(tl.sum(dscores * gap, 1), 0)
    tl.store(dtau_t + frame, farther / (reach * reach))
    tl.store(dbeta + frame, -tl.sum(tl.sum(dscores * (space + gap / reach), 1), 0))


@triton.jit
def topology_rows_gradient(
    x, gamma, shift, query, key, value, mixed, du, dheads, dx, partial, runs, rows, scale, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What goes node by node: dx, and of the parameters' gradients one row of `partial`, each for all runs: query, key,
    value, out, then their biases, gamma and shift."""
    run = tl.program_id(1).to(tl.int64)
    LOW: tl.constexpr = mixed.dtype.element_ty
    c = tl.arange(0, WIDTH)
    gain, offset = _vector(gamma, run, WIDTH), _vector(shift, run, WIDTH)
    wq, wk, wv = _matrix(query, run, WIDTH, LOW), _matrix(key, run, WIDTH, LOW), _matrix(value, run, WIDTH, LOW)
    dwq = tl.zeros((WIDTH, WIDTH), tl.float32)
    dwk = tl.zeros((WIDTH, WIDTH), tl.float32)
    dwv = tl.zeros((WIDTH, WIDTH), tl.float32)
    dwo = tl.zeros((WIDTH, WIDTH), tl.float32)
    dbq = tl.zeros((WIDTH,), tl.float32)
    dbk = tl.zeros((WIDTH,), tl.float32)
    dbv = tl.zeros((WIDTH,), tl.float32)
    dbo = tl.zeros((WIDTH,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):
        m = start + tl.arange(0, BLOCK)
        live = (m < rows)[:, None]
        row = (run * rows + m)[:, None]
        at = row * WIDTH + c[None, :]
        g = tl.load(du + at, mask=live, other=0.0).to(tl.float32)
        unit, rstd = layer_norm(tl.load(x + at, mask=live, other=0.0).to(tl.float32), eps, WIDTH)
        unit_low = unit.to(LOW)
        at_heads = dheads + row * (3 * WIDTH) + c[None, :]
        dq = tl.load(at_heads, mask=live, other=0.0)
        dk = tl.load(at_heads + WIDTH, mask=live, other=0.0)
        dv = tl.load(at_heads + 2 * WIDTH, mask=live, other=0.0)
        dy = g * scale
        dbo += tl.sum(dy, 0)
        dbq += tl.sum(dq.to(tl.float32), 0)
        dbk += tl.sum(dk.to(tl.float32), 0)
        dbv += tl.sum(dv.to(tl.float32), 0)
        before = tl.load(mixed + at, mask=live, other=0.0)
        dwo += tl.dot(tl.trans(dy.to(LOW)), before, input_precision=PRECISION)
        dwq += tl.dot(tl.trans(dq), unit_low, input_precision=PRECISION)
        dwk += tl.dot(tl.trans(dk), unit_low, input_precision=PRECISION)
        dwv += tl.dot(tl.trans(dv), unit_low, input_precision=PRECISION)
        dnormed = tl.dot(dq, wq, input_precision=PRECISION)
        dnormed = tl.dot(dk, wk, dnormed, input_precision=PRECISION)
        dnormed = tl.dot(dv, wv, dnormed, input_precision=PRECISION)
        g += layer_norm_gradient(dnormed * gain, unit, rstd, WIDTH)
        tl.store(dx + at, g.to(dx.dtype.element_ty), mask=live)
    # The products were with x before gain and shift, whose own gradients follow from them.
    dgamma = tl.sum(dwq * wq + dwk * wk + dwv * wv, 0)
    dshift = tl.sum(dbq[:, None] * wq + dbk[:, None] * wk + dbv[:, None] * wv, 0)
    size: tl.constexpr = WIDTH * WIDTH
    base = partial + tl.program_id(0).to(tl.int64) * runs * (4 * size + 6 * WIDTH)
    tile = run * size + c[:, None] * WIDTH + c[None, :]
    tl.store(base + tile, dwq * gain + dbq[:, None] * offset)
    tl.store(base + runs * size + tile, dwk * gain + dbk[:, None] * offset)
    tl.store(base + 2 * runs * size + tile, dwv * gain + dbv[:, None] * offset)
    tl.store(base + 3 * runs * size + tile, dwo)
    base += 4 * runs * size + run * WIDTH
    tl.store(base + c, dbq)
    tl.store(base + runs * WIDTH + c, dbk)
    tl.store(base + 2 * runs * WIDTH + c, dbv)
    tl.store(base + 3 * runs * WIDTH + c, dbo)
    tl.store(base + 4 * runs * WIDTH + c, dgamma)
    tl.store(base + 5 * runs * WIDTH + c, dshift)
