"""Stacked convolution and the gradient of its weights."""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.model.stacked.kernels.counted import count_of_rows


@triton.jit
def convolve(
    x, weight, y, partial, counts, used,
    rows, length,
    CIN: tl.constexpr, COUT: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr,
    GATHER: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y[m] = Σ_j x[m + (j − TAPS/2)·DILATION] W[j], zero outside a frame; parts of Σ count·y and Σ count·y².

    GATHER > 0 folds taps and channels into one padded inner axis of that size, for inputs with few channels.
    """
    run = tl.program_id(1).to(tl.int64)
    co = tl.arange(0, COUT)
    filled = tl.load(used + run) * length
    x += run * rows * CIN
    y += run * rows * COUT
    weight += run * TAPS * CIN * COUT
    s1 = tl.zeros((BLOCK, COUT), dtype=tl.float32)
    s2 = tl.zeros((BLOCK, COUT), dtype=tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(filled, BLOCK), tl.num_programs(0)):
        m = tile * BLOCK + tl.arange(0, BLOCK)
        t = m % length
        live = m < filled
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
        tl.store(y + m[:, None] * COUT + co[None, :], total.to(y.dtype.element_ty), mask=live[:, None])
        count = count_of_rows(counts, run, rows, length, m, live)[:, None]
        total = tl.where(live[:, None], total, 0.0)
        s1 += count * total
        s2 += count * total * total
    at_partial = partial + (run * tl.num_programs(0) + tl.program_id(0)) * 2 * COUT
    tl.store(at_partial + co, tl.sum(s1, 0))
    tl.store(at_partial + COUT + co, tl.sum(s2, 0))


@triton.jit
def weight_gradient(
    x, dy, y, coefficient, partial, counts, used,
    rows, length, rows_per_split,
    CIN: tl.constexpr, COUT: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr,
    GATHER: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Partial dW[j] = Σ_m x[m + shift_j]ᵀ dy[m] over one split of the rows; one tap per program unless GATHER.

    NORM: dy holds u, from which a·(u + count·(slope·y + constant)) is made here.
    """
    tap = tl.program_id(0)
    split = tl.program_id(1)
    run = tl.program_id(2).to(tl.int64)
    co = tl.arange(0, COUT)
    x += run * rows * CIN
    dy += run * rows * COUT
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, tl.load(used + run) * length)
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
        if NORM:
            k = coefficient + run * 3 * COUT + co
            raw = tl.load(y + run * rows * COUT + m[:, None] * COUT + co[None, :], mask=live[:, None], other=0.0)
            full = tl.load(k + COUT)[None, :] * raw.to(tl.float32) + tl.load(k + 2 * COUT)[None, :]
            full *= count_of_rows(counts, run, rows, length, m, live)[:, None]
            full = tl.load(k)[None, :] * (b.to(tl.float32) + full)
            b = tl.where(live[:, None], full, 0.0).to(dy.dtype.element_ty)
        total = tl.dot(a, b, total, input_precision=PRECISION)
    SIZE: tl.constexpr = TAPS * CIN
    row = inner if GATHER > 0 else tap * CIN + inner
    out = partial + ((run * tl.num_programs(1) + split) * SIZE + row[:, None]) * COUT + co[None, :]
    tl.store(out, total, mask=(row < SIZE)[:, None])
