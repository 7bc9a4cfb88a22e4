"""Batch normalisation with ReLU, skip and pooling, forward and backward."""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.model.stacked.kernels.counted import count_of_rows


@triton.jit
def _sums(partial, run, parts, C: tl.constexpr, PARTS: tl.constexpr):
    """The two sums of each channel from their parts (R, parts, 2, C); PARTS: at least as many, a power of two."""
    part = tl.arange(0, PARTS)[:, None]
    at = partial + (run * parts + part) * 2 * C + tl.arange(0, C)[None, :]
    there = part < parts
    return tl.sum(tl.load(at, mask=there, other=0.0), 0), tl.sum(tl.load(at + C, mask=there, other=0.0), 0)


@triton.jit
def norm_statistics(
    partial, bias, gamma, beta, running_mean, running_var, mean, rstd, scale, shift,
    parts, count, momentum, eps, C: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Batch statistics from parts of Σy and Σy²; the affine map scale·y + shift; running averages.

    bias: of the convolution, which y is without; it moves the running mean alone.
    """
    run = tl.program_id(0)
    c = tl.arange(0, C)
    at = run * C + c
    s1, s2 = _sums(partial, run, parts, C, PARTS)
    mu = s1 / count
    var = tl.maximum(s2 / count - mu * mu, 0.0)
    inverse = 1.0 / tl.sqrt(var + eps)
    g = tl.load(gamma + at) * inverse
    tl.store(mean + at, mu)
    tl.store(rstd + at, inverse)
    tl.store(scale + at, g)
    tl.store(shift + at, tl.load(beta + at) - mu * g)
    keep = 1.0 - momentum
    tl.store(running_mean + at, keep * tl.load(running_mean + at) + momentum * (mu + tl.load(bias + at)))
    unbiased = var * (count / (count - 1.0))
    tl.store(running_var + at, keep * tl.load(running_var + at) + momentum * unbiased)


@triton.jit
def _before_relu(
    y, scale, shift, skip, run, at, live, C: tl.constexpr, WITH_SKIP: tl.constexpr
):  # fmt: skip
    """y and scale·y + shift + skip, in float32."""
    c = tl.arange(0, C)
    raw = tl.load(y + at, mask=live, other=0.0).to(tl.float32)
    value = raw * tl.load(scale + run * C + c)[None, :] + tl.load(shift + run * C + c)[None, :]
    if WITH_SKIP:
        value += tl.load(skip + at, mask=live, other=0.0).to(tl.float32)
    return raw, value


@triton.jit
def norm_apply(
    y, scale, shift, skip, out, used, rows, length,
    C: tl.constexpr, WITH_SKIP: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = ReLU(scale·y + shift + skip); zeros for frames that are not used."""
    run = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, C)
    at = run * rows * C + m[:, None] * C + c[None, :]
    live = (m < tl.load(used + run) * length)[:, None]
    _, value = _before_relu(y, scale, shift, skip, run, at, live, C, WITH_SKIP)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + at, tl.where(live, value, 0.0).to(out.dtype.element_ty), mask=(m < rows)[:, None])


@triton.jit(do_not_specialize=["pool"])
def norm_pool(
    y, scale, shift, skip, out, used, rows, length, pool,
    C: tl.constexpr, WITH_SKIP: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = mean of ReLU(scale·y + shift + skip) over `pool` consecutive rows; the rows themselves are not written.

    Zeros for frames that are not used.
    """
    run = tl.program_id(1).to(tl.int64)
    bin = tl.program_id(0)
    c = tl.arange(0, C)
    total = tl.zeros((C,), dtype=tl.float32)
    there = bin * pool < tl.load(used + run) * length
    for start in range(0, tl.where(there, pool, 0), BLOCK):
        i = start + tl.arange(0, BLOCK)
        at = run * rows * C + (bin * pool + i)[:, None] * C + c[None, :]
        live = (i < pool)[:, None]
        _, value = _before_relu(y, scale, shift, skip, run, at, live, C, WITH_SKIP)
        if RELU:
            value = tl.maximum(value, 0.0)
        total += tl.sum(tl.where(live, value, 0.0), 0)
    tl.store(out + (run * tl.num_programs(0) + bin) * C + c, (total / pool).to(out.dtype.element_ty))


@triton.jit
def _behind_relu(
    dout, value, run, m, at, live, rows, pool, C: tl.constexpr, RELU: tl.constexpr, POOLED: tl.constexpr
):  # fmt: skip
    """The gradient g behind the ReLU; a pooled gradient (R, rows/pool, C) is spread over its rows."""
    if POOLED:
        c = tl.arange(0, C)
        at = run * (rows // pool) * C + (m // pool)[:, None] * C + c[None, :]
        g = tl.load(dout + at, mask=live, other=0.0).to(tl.float32) / pool
    else:
        g = tl.load(dout + at, mask=live, other=0.0).to(tl.float32)
    if RELU:
        g = tl.where(value > 0, g, 0.0)
    return g


@triton.jit(do_not_specialize=["pool"])
def norm_gradient_sums(
    dout, y, scale, shift, skip, u, partial, used, rows, length, pool,
    C: tl.constexpr, WITH_SKIP: tl.constexpr, RELU: tl.constexpr, POOLED: tl.constexpr, KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Parts of Σg and Σg·y, where g is the gradient behind the ReLU; KEEP: writes it to u."""
    run = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, C)
    s1 = tl.zeros((BLOCK, C), dtype=tl.float32)
    s2 = tl.zeros((BLOCK, C), dtype=tl.float32)
    filled = tl.load(used + run) * length
    for tile in range(tl.program_id(0), tl.cdiv(filled, BLOCK), tl.num_programs(0)):
        m = tile * BLOCK + tl.arange(0, BLOCK)
        at = run * rows * C + m[:, None] * C + c[None, :]
        live = (m < filled)[:, None]
        raw, value = _before_relu(y, scale, shift, skip, run, at, live, C, WITH_SKIP)
        g = _behind_relu(dout, value, run, m, at, live, rows, pool, C, RELU, POOLED)
        if KEEP:
            tl.store(u + at, g.to(u.dtype.element_ty), mask=live)
        s1 += g
        s2 += g * raw
    at_partial = partial + (run * tl.num_programs(0) + tl.program_id(0)) * 2 * C
    tl.store(at_partial + c, tl.sum(s1, 0))
    tl.store(at_partial + C + c, tl.sum(s2, 0))


@triton.jit
def norm_gradient_coefficients(
    partial, gamma, mean, rstd, dgamma, dbeta, coefficient, parts, count, C: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """dγ, dβ, and a, slope and constant of dy = a·(g + slope·y + constant), from parts of Σg and Σg·y."""
    run = tl.program_id(0)
    c = tl.arange(0, C)
    s1, s2 = _sums(partial, run, parts, C, PARTS)
    at = run * C + c
    mu = tl.load(mean + at)
    inverse = tl.load(rstd + at)
    g_hat = (s2 - mu * s1) * inverse
    tl.store(dgamma + at, g_hat)
    tl.store(dbeta + at, s1)
    slope = -inverse * g_hat / count
    tl.store(coefficient + run * 3 * C + c, tl.load(gamma + at) * inverse)
    tl.store(coefficient + run * 3 * C + C + c, slope)
    tl.store(coefficient + run * 3 * C + 2 * C + c, -s1 / count - slope * mu)


@triton.jit
def norm_gradient_apply(
    dout, y, scale, shift, skip, coefficient, dy, dskip, counts, used, rows, length, pool,
    C: tl.constexpr, WITH_SKIP: tl.constexpr, RELU: tl.constexpr, POOLED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """dy = a·(g + count·(slope·y + constant)), and dskip = g; zeros for frames that are not used."""
    run = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, C)
    at = run * rows * C + m[:, None] * C + c[None, :]
    inside = (m < rows)[:, None]
    filled = m < tl.load(used + run) * length
    live = filled[:, None]
    raw, value = _before_relu(y, scale, shift, skip, run, at, live, C, WITH_SKIP)
    g = _behind_relu(dout, value, run, m, at, live, rows, pool, C, RELU, POOLED)
    if WITH_SKIP:
        tl.store(dskip + at, g.to(dskip.dtype.element_ty), mask=inside)
    k = coefficient + run * 3 * C + c
    count = count_of_rows(counts, run, rows, length, m, filled)[:, None]
    value = tl.load(k)[None, :] * (g + count * (tl.load(k + C)[None, :] * raw + tl.load(k + 2 * C)[None, :]))
    tl.store(dy + at, tl.where(live, value, 0.0).to(dy.dtype.element_ty), mask=inside)
