"""A convolution inside a chain: what it reads is normalised on the way in, and what it gives is summed on the way out.

A convolution of short kernels shifts its input by a tap at a time, and shifts are what a GPU does badly. So a row here
is a group of SPAN outputs, DILATION samples apart, and the WINDOW = SPAN + TAPS − 1 inputs that they see; the kernel is
a (WINDOW·C, SPAN·C) matrix with the taps on its diagonals, a third of it zeros. A row is read once, and one product of
matrices gives its outputs. WINDOW has to be a power of two: kernels of 3 taps give 2 outputs, of 5 taps 4.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _rows(tile, frames, LENGTH: tl.constexpr, DILATION: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Of the groups of a tile: their first sample, where their frame starts, and which there are."""
    GROUPS: tl.constexpr = (LENGTH + SPAN * DILATION - 1) // (SPAN * DILATION) * DILATION  # of a frame
    m = tile * BLOCK + tl.arange(0, BLOCK)
    frame = m // GROUPS
    group = m - frame * GROUPS
    block = group // DILATION
    return block * (SPAN * DILATION) + (group - block * DILATION), frame * LENGTH, m < frames * GROUPS


@triton.jit
def _columns(first, frame, live, LENGTH: tl.constexpr, STEP: tl.constexpr, BEFORE: tl.constexpr, C: tl.constexpr,
             COUNT: tl.constexpr):  # fmt: skip
    """Where the COUNT samples of each group are, STEP apart, from BEFORE samples before its first; which are inside."""
    k = tl.arange(0, COUNT * C)
    ahead = (k // C) * STEP - BEFORE
    t = first[:, None] + ahead[None, :]
    at = ((frame + first) * C)[:, None] + (ahead * C + k % C)[None, :]
    return at, live[:, None] & (t >= 0) & (t < LENGTH)


@triton.jit
def _matrix(weight, run, C: tl.constexpr, TAPS: tl.constexpr, SPAN: tl.constexpr, WINDOW: tl.constexpr,
            BACK: tl.constexpr):  # fmt: skip
    """The kernel (R, C_out, C_in, TAPS) of a run as (WINDOW·C, SPAN·C); BACK: that of the gradient of what it read."""
    k = tl.arange(0, WINDOW * C)[:, None]
    n = tl.arange(0, SPAN * C)[None, :]
    if BACK:
        tap = n // C - k // C + TAPS - 1
        channels = (k % C) * C + n % C
    else:
        tap = k // C - n // C
        channels = (n % C) * C + k % C
    return tl.load(weight + (run * C * C + channels) * TAPS + tap, mask=(tap >= 0) & (tap < TAPS), other=0.0)


@triton.jit
def _each_channel(total, C: tl.constexpr, SPAN: tl.constexpr):
    """Sums over the rows and the samples of a group: (BLOCK, SPAN·C) → (C,)."""
    return tl.sum(tl.reshape(tl.sum(total, 0), (SPAN, C)), 0)


@triton.jit
def chain_convolve(
    x, scale, shift, skip, weight, y, kept, partial, frames,
    LENGTH: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr, SPAN: tl.constexpr,
    WITH_SKIP: tl.constexpr, KEEP: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y = conv(z) with z = ReLU(scale·x + shift + skip), zero outside a frame; KEEP: writes z.

    SUMS: Σy and Σy² of each channel, over the tiles of a program.
    """
    run = tl.program_id(1).to(tl.int64)
    WINDOW: tl.constexpr = SPAN + TAPS - 1
    BEFORE: tl.constexpr = TAPS // 2 * DILATION
    GROUPS: tl.constexpr = (LENGTH + SPAN * DILATION - 1) // (SPAN * DILATION) * DILATION
    base = run * frames * (LENGTH * C)
    k = tl.arange(0, WINDOW * C)
    gain = tl.load(scale + run * C + k % C)[None, :]
    offset = tl.load(shift + run * C + k % C)[None, :]
    b = _matrix(weight, run, C, TAPS, SPAN, WINDOW, False).to(x.dtype.element_ty)
    total = tl.zeros((BLOCK, SPAN * C), dtype=tl.float32)
    squares = tl.zeros((BLOCK, SPAN * C), dtype=tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(frames * GROUPS, BLOCK), tl.num_programs(0)):
        first, frame, live = _rows(tile, frames, LENGTH, DILATION, SPAN, BLOCK)
        at, inside = _columns(first, frame, live, LENGTH, DILATION, BEFORE, C, WINDOW)
        z = tl.load(x + base + at, mask=inside, other=0.0).to(tl.float32) * gain + offset
        if WITH_SKIP:
            z += tl.load(skip + base + at, mask=inside, other=0.0).to(tl.float32)
        z = tl.where(inside, tl.maximum(z, 0.0), 0.0).to(x.dtype.element_ty)
        if KEEP:
            own = (k >= TAPS // 2 * C) & (k < (TAPS // 2 + SPAN) * C)
            tl.store(kept + base + at, z, mask=inside & own[None, :])
        out = tl.dot(z, b, input_precision=PRECISION)
        at, inside = _columns(first, frame, live, LENGTH, DILATION, 0, C, SPAN)
        tl.store(y + base + at, out.to(y.dtype.element_ty), mask=inside)
        if SUMS:
            out = tl.where(inside, out, 0.0)
            total += out
            squares += out * out
    if SUMS:
        at = partial + (run * tl.num_programs(0) + tl.program_id(0)) * 2 * C + tl.arange(0, C)
        tl.store(at, _each_channel(total, C, SPAN))
        tl.store(at + C, _each_channel(squares, C, SPAN))


@triton.jit
def chain_gradient(
    u, y, coefficient, weight, before, scale, shift, kept, added, du, partial, dweight, frames,
    LENGTH: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr, SPAN: tl.constexpr,
    KEPT: tl.constexpr, ADDED: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Through a convolution, from the gradient u before its ReLU to du, that before the ReLU of the one before it.

    dy = a·u + b·y + c, with which du = (convᵀ(dy) + added) where z > 0, the gradient of the kernel, and Σdu and
    Σdu·before of each channel, over the tiles of a program. z, what the convolution read, is `kept` where KEPT, or
    else ReLU(scale·before + shift).
    """
    run = tl.program_id(1).to(tl.int64)
    WINDOW: tl.constexpr = SPAN + TAPS - 1
    BEFORE: tl.constexpr = TAPS // 2 * DILATION
    GROUPS: tl.constexpr = (LENGTH + SPAN * DILATION - 1) // (SPAN * DILATION) * DILATION
    base = run * frames * (LENGTH * C)
    k = tl.arange(0, WINDOW * C)
    n = tl.arange(0, SPAN * C)
    a = tl.load(coefficient + run * 3 * C + k % C)[None, :]
    b = tl.load(coefficient + run * 3 * C + C + k % C)[None, :]
    c = tl.load(coefficient + run * 3 * C + 2 * C + k % C)[None, :]
    gain = tl.load(scale + run * C + n % C)[None, :]
    offset = tl.load(shift + run * C + n % C)[None, :]
    back = _matrix(weight, run, C, TAPS, SPAN, WINDOW, True).to(u.dtype.element_ty)
    total = tl.zeros((BLOCK, SPAN * C), dtype=tl.float32)
    along = tl.zeros((BLOCK, SPAN * C), dtype=tl.float32)
    dw = tl.zeros((SPAN * C, WINDOW * C), dtype=tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(frames * GROUPS, BLOCK), tl.num_programs(0)):
        first, frame, live = _rows(tile, frames, LENGTH, DILATION, SPAN, BLOCK)
        at, inside = _columns(first, frame, live, LENGTH, DILATION, BEFORE, C, WINDOW)
        dy = a * tl.load(u + base + at, mask=inside, other=0.0).to(tl.float32) + c
        dy += b * tl.load(y + base + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.where(inside, dy, 0.0).to(u.dtype.element_ty)
        at, inside = _columns(first, frame, live, LENGTH, DILATION, 0, C, SPAN)
        raw = tl.load(before + base + at, mask=inside, other=0.0).to(tl.float32)
        if KEPT:
            z = tl.load(kept + base + at, mask=inside, other=0.0)
        else:
            z = tl.where(inside, tl.maximum(raw * gain + offset, 0.0), 0.0).to(u.dtype.element_ty)
        dw = tl.dot(tl.trans(z), dy, dw, input_precision=PRECISION)
        g = tl.dot(dy, back, input_precision=PRECISION)
        if ADDED:
            g += tl.load(added + base + at, mask=inside, other=0.0).to(tl.float32)
        g = tl.where(z > 0, g, 0.0)
        tl.store(du + base + at, g.to(du.dtype.element_ty), mask=inside)
        total += g
        along += g * raw
    program = run * tl.num_programs(0) + tl.program_id(0)
    at = partial + program * 2 * C + tl.arange(0, C)
    tl.store(at, _each_channel(total, C, SPAN))
    tl.store(at + C, _each_channel(along, C, SPAN))
    # Each tap's gradient stands SPAN times in dw: sample s of what was read, sample s − tap + TAPS − 1 of the window.
    blocks = tl.reshape(dw, (SPAN, C, WINDOW, C))
    s = tl.arange(0, SPAN)[:, None, None, None]
    j = tl.arange(0, WINDOW)[None, None, :, None]
    ci = tl.arange(0, C)[:, None]
    co = tl.arange(0, C)[None, :]
    for tap in tl.static_range(TAPS):
        own = tl.sum(tl.sum(tl.where(s - j + TAPS - 1 == tap, blocks, 0.0), 2), 0)
        tl.store(dweight + ((program * C + co) * C + ci) * TAPS + tap, own)
