"""Triton kernels of the stacked layers. Shapes and mathematics are in `fused.py`, which calls them.

Conventions: run axis first, channels last; M = N·T rows per run; row m = n·T + t. Partial sums are written per tile
and added afterwards in a fixed order, so a kernel gives the same bits every time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def convolve(
    x, weight, bias, y, partial,
    rows, length,
    CIN: tl.constexpr, COUT: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr,
    GATHER: tl.constexpr, WITH_BIAS: tl.constexpr, WITH_SUMS: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y[m] = Σ_j x[m + (j − TAPS/2)·DILATION] W[j] + b, zero outside a frame; per-tile Σy and Σy² per channel.

    GATHER > 0 folds taps and channels into one padded inner axis of that size, for inputs with few channels.
    """
    tile = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    m = tile * BLOCK + tl.arange(0, BLOCK)
    t = m % length
    live = m < rows
    co = tl.arange(0, COUT)
    x += run * rows * CIN
    y += run * rows * COUT
    weight += run * TAPS * CIN * COUT
    total = tl.zeros((BLOCK, COUT), dtype=tl.float32)
    if GATHER > 0:
        inner = tl.arange(0, GATHER)
        offset = (inner // CIN - TAPS // 2) * DILATION
        at = t[:, None] + offset[None, :]
        inside = live[:, None] & (at >= 0) & (at < length) & (inner < TAPS * CIN)[None, :]
        a = tl.load(x + (m[:, None] + offset[None, :]) * CIN + (inner % CIN)[None, :], mask=inside, other=0.0)
        b = tl.load(weight + inner[:, None] * COUT + co[None, :], mask=(inner < TAPS * CIN)[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    else:
        ci = tl.arange(0, CIN)
        for tap in tl.static_range(TAPS):
            shift = (tap - TAPS // 2) * DILATION
            inside = live & (t + shift >= 0) & (t + shift < length)
            a = tl.load(x + (m + shift)[:, None] * CIN + ci[None, :], mask=inside[:, None], other=0.0)
            b = tl.load(weight + (tap * CIN + ci)[:, None] * COUT + co[None, :])
            total = tl.dot(a, b, total, input_precision=PRECISION)
    if WITH_BIAS:
        total += tl.load(bias + run * COUT + co)[None, :]
    tl.store(y + m[:, None] * COUT + co[None, :], total.to(y.dtype.element_ty), mask=live[:, None])
    if WITH_SUMS:
        total = tl.where(live[:, None], total, 0.0)
        at_partial = partial + (run * tl.num_programs(0) + tile) * 2 * COUT
        tl.store(at_partial + co, tl.sum(total, 0))
        tl.store(at_partial + COUT + co, tl.sum(total * total, 0))


@triton.jit
def weight_gradient(
    x, dy, partial,
    rows, length, rows_per_split,
    CIN: tl.constexpr, COUT: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr,
    GATHER: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Partial dW[j] = Σ_m x[m + shift_j]ᵀ dy[m] over one split of the rows; one tap per program unless GATHER."""
    tap = tl.program_id(0)
    split = tl.program_id(1)
    run = tl.program_id(2).to(tl.int64)
    co = tl.arange(0, COUT)
    x += run * rows * CIN
    dy += run * rows * COUT
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, rows)
    INNER: tl.constexpr = GATHER if GATHER > 0 else CIN
    inner = tl.arange(0, INNER)
    total = tl.zeros((INNER, COUT), dtype=tl.float32)
    for start in range(first, last, BLOCK):
        m = start + tl.arange(0, BLOCK)
        t = m % length
        live = m < last
        if GATHER > 0:
            offset = (inner // CIN - TAPS // 2) * DILATION
            at = t[None, :] + offset[:, None]
            inside = live[None, :] & (at >= 0) & (at < length) & (inner < TAPS * CIN)[:, None]
            a = tl.load(x + (m[None, :] + offset[:, None]) * CIN + (inner % CIN)[:, None], mask=inside, other=0.0)
        else:
            shift = (tap - TAPS // 2) * DILATION
            inside = live & (t + shift >= 0) & (t + shift < length)
            a = tl.load(x + (m + shift)[None, :] * CIN + inner[:, None], mask=inside[None, :], other=0.0)
        b = tl.load(dy + m[:, None] * COUT + co[None, :], mask=live[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    SIZE: tl.constexpr = TAPS * CIN
    row = inner if GATHER > 0 else tap * CIN + inner
    out = partial + ((run * tl.num_programs(1) + split) * SIZE + row[:, None]) * COUT + co[None, :]
    tl.store(out, total, mask=(row < SIZE)[:, None])


@triton.jit
def norm_statistics(
    sums, gamma, beta, running_mean, running_var, mean, rstd, scale, shift,
    count, momentum, eps, C: tl.constexpr,
):  # fmt: skip
    """Batch statistics from Σy, Σy² (R, 2, C); the affine map scale·y + shift; running averages."""
    run = tl.program_id(0)
    c = tl.arange(0, C)
    at = run * C + c
    mu = tl.load(sums + run * 2 * C + c) / count
    var = tl.maximum(tl.load(sums + run * 2 * C + C + c) / count - mu * mu, 0.0)
    inverse = 1.0 / tl.sqrt(var + eps)
    g = tl.load(gamma + at) * inverse
    tl.store(mean + at, mu)
    tl.store(rstd + at, inverse)
    tl.store(scale + at, g)
    tl.store(shift + at, tl.load(beta + at) - mu * g)
    keep = 1.0 - momentum
    tl.store(running_mean + at, keep * tl.load(running_mean + at) + momentum * mu)
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
    y, scale, shift, skip, out, rows,
    C: tl.constexpr, WITH_SKIP: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = ReLU(scale·y + shift + skip)."""
    run = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, C)
    at = run * rows * C + m[:, None] * C + c[None, :]
    live = (m < rows)[:, None]
    _, value = _before_relu(y, scale, shift, skip, run, at, live, C, WITH_SKIP)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=live)


@triton.jit
def norm_pool(
    y, scale, shift, skip, out, rows, pool,
    C: tl.constexpr, WITH_SKIP: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = mean of ReLU(scale·y + shift + skip) over `pool` consecutive rows; the rows themselves are not written."""
    run = tl.program_id(1).to(tl.int64)
    bin = tl.program_id(0)
    c = tl.arange(0, C)
    total = tl.zeros((C,), dtype=tl.float32)
    for start in range(0, pool, BLOCK):
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


@triton.jit
def norm_gradient_sums(
    dout, y, scale, shift, skip, partial, rows, pool,
    C: tl.constexpr, WITH_SKIP: tl.constexpr, RELU: tl.constexpr, POOLED: tl.constexpr,
    BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Per-tile Σg and Σg·y, where g is the gradient behind the ReLU."""
    tile = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, C)
    base = run * rows * C
    s1 = tl.zeros((C,), dtype=tl.float32)
    s2 = tl.zeros((C,), dtype=tl.float32)
    for step in tl.static_range(STEPS):
        m = (tile * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        at = base + m[:, None] * C + c[None, :]
        live = (m < rows)[:, None]
        raw, value = _before_relu(y, scale, shift, skip, run, at, live, C, WITH_SKIP)
        g = _behind_relu(dout, value, run, m, at, live, rows, pool, C, RELU, POOLED)
        s1 += tl.sum(g, 0)
        s2 += tl.sum(g * raw, 0)
    at_partial = partial + (run * tl.num_programs(0) + tile) * 2 * C
    tl.store(at_partial + c, s1)
    tl.store(at_partial + C + c, s2)


@triton.jit
def norm_gradient_coefficients(
    sums, gamma, mean, rstd, dgamma, dbeta, coefficient, count, C: tl.constexpr
):  # fmt: skip
    """dγ, dβ, and a, b, c of dy = a·g + b·y + c, from Σg and Σg·y (R, 2, C)."""
    run = tl.program_id(0)
    c = tl.arange(0, C)
    s1 = tl.load(sums + run * 2 * C + c)
    s2 = tl.load(sums + run * 2 * C + C + c)
    at = run * C + c
    mu = tl.load(mean + at)
    inverse = tl.load(rstd + at)
    g_hat = (s2 - mu * s1) * inverse
    tl.store(dgamma + at, g_hat)
    tl.store(dbeta + at, s1)
    a = tl.load(gamma + at) * inverse
    b = -a * inverse * g_hat / count
    tl.store(coefficient + run * 3 * C + c, a)
    tl.store(coefficient + run * 3 * C + C + c, b)
    tl.store(coefficient + run * 3 * C + 2 * C + c, -a * s1 / count - b * mu)


@triton.jit
def norm_gradient_apply(
    dout, y, scale, shift, skip, coefficient, dy, dskip, rows, pool,
    C: tl.constexpr, WITH_SKIP: tl.constexpr, RELU: tl.constexpr, POOLED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy = a·g + b·y + c, and dskip = g."""
    run = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, C)
    at = run * rows * C + m[:, None] * C + c[None, :]
    live = (m < rows)[:, None]
    raw, value = _before_relu(y, scale, shift, skip, run, at, live, C, WITH_SKIP)
    g = _behind_relu(dout, value, run, m, at, live, rows, pool, C, RELU, POOLED)
    if WITH_SKIP:
        tl.store(dskip + at, g.to(dskip.dtype.element_ty), mask=live)
    k = coefficient + run * 3 * C + c
    value = tl.load(k)[None, :] * g + tl.load(k + C)[None, :] * raw + tl.load(k + 2 * C)[None, :]
    tl.store(dy + at, value.to(dy.dtype.element_ty), mask=live)


@triton.jit
def _mix(x):
    """The hash of `noise.py`."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    return (x ^ ((x >> 15) & 0x1FFFF)) * -0x7B935975


@triton.jit
def _weights(
    q, k, key, run, stream, head, length, threshold, scale,
    HEADS: tl.constexpr, L: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """softmax(q kᵀ·scale) of one head, and which entries dropout keeps."""
    i = tl.arange(0, L)
    score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    score = tl.where((i < length)[None, :], score, -1e30)
    weight = tl.exp(score - tl.max(score, 1)[:, None])
    weight = weight / tl.sum(weight, 1)[:, None]
    keep = weight >= 0.0
    if DROP:
        element = ((stream * HEADS + head) * length + i[:, None]) * length + i[None, :]
        keep = _mix(element ^ tl.load(key + run)) >= threshold
    return weight, keep


@triton.jit
def attention_forward(
    qkv, key, out, streams, length, threshold, scale, inflate,
    HEADS: tl.constexpr, D: tl.constexpr, PAD: tl.constexpr, L: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All heads of one stream: out (R, N, L, HEADS·D) from qkv (R, N, L, 3·HEADS·D); nothing of size L² is written."""
    stream = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, L)
    d = tl.arange(0, PAD)
    live = (i < length)[:, None] & (d < D)[None, :]
    row = (run * streams + stream) * length + i
    for head in tl.static_range(HEADS):
        at = qkv + row[:, None] * (3 * HEADS * D) + head * D + d[None, :]
        q = tl.load(at, mask=live, other=0.0)
        k = tl.load(at + HEADS * D, mask=live, other=0.0)
        v = tl.load(at + 2 * HEADS * D, mask=live, other=0.0)
        weight, keep = _weights(q, k, key, run, stream, head, length, threshold, scale, HEADS, L, DROP, PRECISION)
        dropped = tl.where(keep, weight * inflate, 0.0)
        mixed = tl.dot(dropped.to(v.dtype), v, input_precision=PRECISION)
        at = out + row[:, None] * (HEADS * D) + head * D + d[None, :]
        tl.store(at, mixed.to(out.dtype.element_ty), mask=live)


@triton.jit
def attention_backward(
    qkv, key, dout, dqkv, streams, length, threshold, scale, inflate,
    HEADS: tl.constexpr, D: tl.constexpr, PAD: tl.constexpr, L: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of `attention_forward`; the weights are computed again rather than stored."""
    stream = tl.program_id(0)
    run = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, L)
    d = tl.arange(0, PAD)
    live = (i < length)[:, None] & (d < D)[None, :]
    row = (run * streams + stream) * length + i
    for head in tl.static_range(HEADS):
        at = row[:, None] * (3 * HEADS * D) + head * D + d[None, :]
        q = tl.load(qkv + at, mask=live, other=0.0)
        k = tl.load(qkv + at + HEADS * D, mask=live, other=0.0)
        v = tl.load(qkv + at + 2 * HEADS * D, mask=live, other=0.0)
        g = tl.load(dout + row[:, None] * (HEADS * D) + head * D + d[None, :], mask=live, other=0.0)
        weight, keep = _weights(q, k, key, run, stream, head, length, threshold, scale, HEADS, L, DROP, PRECISION)
        dropped = tl.where(keep, weight * inflate, 0.0)
        dv = tl.dot(tl.trans(dropped).to(g.dtype), g, input_precision=PRECISION)
        dweight = tl.where(keep, tl.dot(g, tl.trans(v), input_precision=PRECISION) * inflate, 0.0)
        dscore = weight * (dweight - tl.sum(dweight * weight, 1)[:, None]) * scale
        dq = tl.dot(dscore.to(k.dtype), k, input_precision=PRECISION)
        dk = tl.dot(tl.trans(dscore).to(q.dtype), q, input_precision=PRECISION)
        tl.store(dqkv + at, dq.to(dqkv.dtype.element_ty), mask=live)
        tl.store(dqkv + at + HEADS * D, dk.to(dqkv.dtype.element_ty), mask=live)
        tl.store(dqkv + at + 2 * HEADS * D, dv.to(dqkv.dtype.element_ty), mask=live)


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def gru_forward(
    gates, weight, bias, out, streams, length,
    H: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Recurrence of one direction for BLOCK streams; the state stays in registers over the whole frame.

    gates (R, N, T, 2, 3, H): x W_iᵀ. weight (R, 2, 3, H_in, H_out). out (R, N, T, 2, H).
    bias (R, 2, 4, H): of reset and update gate (input's and state's together), of the new gate's state and input.
    """
    run = tl.program_id(1).to(tl.int64)
    direction = tl.program_id(2)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = (n < streams)[:, None]
    j = tl.arange(0, H)
    w = weight + (run * 2 + direction) * 3 * H * H + j[:, None] * H + j[None, :]
    w_r = tl.load(w)
    w_z = tl.load(w + H * H)
    w_n = tl.load(w + 2 * H * H)
    b = bias + (run * 2 + direction) * 4 * H + j
    b_r = tl.load(b)[None, :]
    b_z = tl.load(b + H)[None, :]
    b_n = tl.load(b + 2 * H)[None, :]
    b_x = tl.load(b + 3 * H)[None, :]
    row = (run * streams + n)[:, None] * length
    t = tl.where(direction == 0, 0, length - 1)
    move = tl.where(direction == 0, 1, -1)
    at = gates + ((row + t) * 2 + direction) * 3 * H + j[None, :]
    x_r = tl.load(at, mask=live, other=0.0)
    x_z = tl.load(at + H, mask=live, other=0.0)
    x_n = tl.load(at + 2 * H, mask=live, other=0.0)
    h = tl.zeros((BLOCK, H), dtype=tl.float32)
    for step in range(length):
        # The next step's inputs are fetched before this step's arithmetic, which hides their latency.
        ahead = tl.where(step + 1 < length, t + move, t)
        at = gates + ((row + ahead) * 2 + direction) * 3 * H + j[None, :]
        next_r = tl.load(at, mask=live, other=0.0)
        next_z = tl.load(at + H, mask=live, other=0.0)
        next_n = tl.load(at + 2 * H, mask=live, other=0.0)
        low = h.to(w_r.dtype)
        r = _sigmoid(x_r.to(tl.float32) + b_r + tl.dot(low, w_r, input_precision=PRECISION))
        z = _sigmoid(x_z.to(tl.float32) + b_z + tl.dot(low, w_z, input_precision=PRECISION))
        new = _tanh(x_n.to(tl.float32) + b_x + r * (b_n + tl.dot(low, w_n, input_precision=PRECISION)))
        h = (1.0 - z) * new + z * h
        tl.store(out + ((row + t) * 2 + direction) * H + j[None, :], h.to(out.dtype.element_ty), mask=live)
        t = ahead
        x_r = next_r
        x_z = next_z
        x_n = next_n


@triton.jit
def gru_backward(
    gates, weight, weight_t, bias, out, dout, dgates, dweight, dbias, streams, length,
    H: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Backward recurrence: gates are recomputed from the stored states, dW and db are summed in registers."""
    run = tl.program_id(1).to(tl.int64)
    direction = tl.program_id(2)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = (n < streams)[:, None]
    j = tl.arange(0, H)
    at_w = (run * 2 + direction) * 3 * H * H + j[:, None] * H + j[None, :]
    w_r = tl.load(weight + at_w)
    w_z = tl.load(weight + at_w + H * H)
    w_n = tl.load(weight + at_w + 2 * H * H)
    v_r = tl.load(weight_t + at_w)
    v_z = tl.load(weight_t + at_w + H * H)
    v_n = tl.load(weight_t + at_w + 2 * H * H)
    b = bias + (run * 2 + direction) * 4 * H + j
    b_r = tl.load(b)[None, :]
    b_z = tl.load(b + H)[None, :]
    b_n = tl.load(b + 2 * H)[None, :]
    b_x = tl.load(b + 3 * H)[None, :]
    row = (run * streams + n)[:, None] * length
    t = tl.where(direction == 0, length - 1, 0)
    back = tl.where(direction == 0, -1, 1)
    carry = tl.zeros((BLOCK, H), dtype=tl.float32)
    dw_r = tl.zeros((H, H), dtype=tl.float32)
    dw_z = tl.zeros((H, H), dtype=tl.float32)
    dw_n = tl.zeros((H, H), dtype=tl.float32)
    db_r = tl.zeros((H,), dtype=tl.float32)
    db_z = tl.zeros((H,), dtype=tl.float32)
    db_n = tl.zeros((H,), dtype=tl.float32)
    db_x = tl.zeros((H,), dtype=tl.float32)
    at = gates + ((row + t) * 2 + direction) * 3 * H + j[None, :]
    x_r = tl.load(at, mask=live, other=0.0)
    x_z = tl.load(at + H, mask=live, other=0.0)
    x_n = tl.load(at + 2 * H, mask=live, other=0.0)
    g = tl.load(dout + ((row + t) * 2 + direction) * H + j[None, :], mask=live, other=0.0)
    second = out + ((row + t + back) * 2 + direction) * H + j[None, :]
    before = tl.load(second, mask=live & (n * 0 + 1 < length)[:, None], other=0.0)
    for step in range(length):
        ahead = tl.where(step + 1 < length, t + back, t)
        at = gates + ((row + ahead) * 2 + direction) * 3 * H + j[None, :]
        next_r = tl.load(at, mask=live, other=0.0)
        next_z = tl.load(at + H, mask=live, other=0.0)
        next_n = tl.load(at + 2 * H, mask=live, other=0.0)
        next_g = tl.load(dout + ((row + ahead) * 2 + direction) * H + j[None, :], mask=live, other=0.0)
        inside = live & (n * 0 + step + 2 < length)[:, None]
        next_before = tl.load(out + ((row + ahead + back) * 2 + direction) * H + j[None, :], mask=inside, other=0.0)

        low = before.to(w_r.dtype)
        previous = before.to(tl.float32)
        r = _sigmoid(x_r.to(tl.float32) + b_r + tl.dot(low, w_r, input_precision=PRECISION))
        z = _sigmoid(x_z.to(tl.float32) + b_z + tl.dot(low, w_z, input_precision=PRECISION))
        q = b_n + tl.dot(low, w_n, input_precision=PRECISION)
        new = _tanh(x_n.to(tl.float32) + b_x + r * q)
        dh = g.to(tl.float32) + carry
        dn = dh * (1.0 - z) * (1.0 - new * new)
        dz = dh * (previous - new) * z * (1.0 - z)
        dr = dn * q * r * (1.0 - r)
        dq = dn * r
        at = dgates + ((row + t) * 2 + direction) * 3 * H + j[None, :]
        tl.store(at, dr.to(dgates.dtype.element_ty), mask=live)
        tl.store(at + H, dz.to(dgates.dtype.element_ty), mask=live)
        tl.store(at + 2 * H, dn.to(dgates.dtype.element_ty), mask=live)
        dr_low = dr.to(w_r.dtype)
        dz_low = dz.to(w_r.dtype)
        dq_low = dq.to(w_r.dtype)
        carry = dh * z + tl.dot(dr_low, v_r, input_precision=PRECISION)
        carry += tl.dot(dz_low, v_z, input_precision=PRECISION) + tl.dot(dq_low, v_n, input_precision=PRECISION)
        low_t = tl.trans(low)
        dw_r += tl.dot(low_t, dr_low, input_precision=PRECISION)
        dw_z += tl.dot(low_t, dz_low, input_precision=PRECISION)
        dw_n += tl.dot(low_t, dq_low, input_precision=PRECISION)
        db_r += tl.sum(dr, 0)
        db_z += tl.sum(dz, 0)
        db_n += tl.sum(dq, 0)
        db_x += tl.sum(dn, 0)
        t = ahead
        x_r = next_r
        x_z = next_z
        x_n = next_n
        g = next_g
        before = next_before
    part = (tl.program_id(0) * tl.num_programs(1) + run) * 2 + direction
    at_d = dweight + part * 3 * H * H + j[:, None] * H + j[None, :]
    tl.store(at_d, dw_r)
    tl.store(at_d + H * H, dw_z)
    tl.store(at_d + 2 * H * H, dw_n)
    tl.store(dbias + part * 4 * H + j, db_r)
    tl.store(dbias + part * 4 * H + H + j, db_z)
    tl.store(dbias + part * 4 * H + 2 * H + j, db_n)
    tl.store(dbias + part * 4 * H + 3 * H + j, db_x)


def tiles(rows: int, block: int) -> int:
    """How many blocks cover the rows."""
    return int(triton.cdiv(rows, block))


def padded(size: int) -> int:
    """The next power of two that a matrix unit accepts as an inner size."""
    return max(16, int(triton.next_power_of_2(size)))
