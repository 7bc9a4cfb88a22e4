"""A convolution inside a chain: what it reads is normalised on the way in, and what it gives is summed on the way out.

A convolution of short kernels shifts its input by a tap at a time, and shifts are what a GPU does badly. So a row here
is a group of SPAN outputs, DILATION samples apart, and the SPAN + TAPS − 1 inputs that they see; the kernel is a matrix
with the taps on its diagonals, and a product of matrices gives the outputs. Inputs are taken CHUNK at a time, a power
of two. The outputs of the first convolution are taken from its window where they are needed, see `window.py`.

A program waits for memory more than it computes. So all that a tile needs is asked for before anything waits for it (no
read is moved across a barrier), and what the next tile needs is fetched into the cache, for which no register waits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.model.stacked.kernels.counted import count_of_rows
from pisa_capc.model.stacked.kernels.shared import fetch
from pisa_capc.model.stacked.kernels.window import window, window_matrix


@triton.jit
def _rows(tile, LENGTH: tl.constexpr, DILATION: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Of the groups of a tile: their first sample, and where their frame starts."""
    GROUPS: tl.constexpr = (LENGTH + SPAN * DILATION - 1) // (SPAN * DILATION) * DILATION  # of a frame
    m = tile * BLOCK + tl.arange(0, BLOCK)
    frame = m // GROUPS
    group = m - frame * GROUPS
    block = group // DILATION
    return block * (SPAN * DILATION) + (group - block * DILATION), frame * LENGTH


@triton.jit
def _inputs(first, frame, rows, part, LENGTH: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr,
            DILATION: tl.constexpr, SPAN: tl.constexpr, CHUNK: tl.constexpr, WHOLE: tl.constexpr):  # fmt: skip
    """Where a chunk of the inputs of each group is, (BLOCK, CHUNK·C), and which of them there are."""
    k = tl.arange(0, CHUNK * C)
    ahead = (part * CHUNK + k // C - TAPS // 2) * DILATION
    t = first[:, None] + ahead[None, :]
    inside = (t >= 0) & (t < LENGTH)
    if (SPAN + TAPS - 1) % CHUNK != 0:
        inside &= (part * CHUNK + k // C < SPAN + TAPS - 1)[None, :]
    if not WHOLE:
        inside &= (frame < rows)[:, None]
    return ((frame + first) * C)[:, None] + (ahead * C + k % C)[None, :], inside


@triton.jit
def _outputs(first, frame, rows, LENGTH: tl.constexpr, C: tl.constexpr, DILATION: tl.constexpr, SPAN: tl.constexpr,
             BLOCK: tl.constexpr, WHOLE: tl.constexpr):  # fmt: skip
    """Where the outputs of each group are, (BLOCK, SPAN·C), and which of them there are."""
    n = tl.arange(0, SPAN * C)
    ahead = n // C * DILATION
    if WHOLE:
        inside = tl.full((BLOCK, SPAN * C), True, tl.int1)
    else:
        inside = (frame < rows)[:, None] & (first[:, None] + ahead[None, :] < LENGTH)
    return ((frame + first) * C)[:, None] + (ahead * C + n % C)[None, :], inside


@triton.jit
def _matrix(weight, run, part, C: tl.constexpr, TAPS: tl.constexpr, SPAN: tl.constexpr, CHUNK: tl.constexpr,
            BACK: tl.constexpr):  # fmt: skip
    """The kernel (R, C_out, C_in, TAPS) of a run as (CHUNK·C, SPAN·C); BACK: that of the gradient of what it read."""
    k = tl.arange(0, CHUNK * C)[:, None]
    n = tl.arange(0, SPAN * C)[None, :]
    tap = part * CHUNK + k // C - n // C
    if BACK:
        tap = TAPS - 1 - tap
        channels = (k % C) * C + n % C
    else:
        channels = (n % C) * C + k % C
    return tl.load(weight + (run * C * C + channels) * TAPS + tap, mask=(tap >= 0) & (tap < TAPS), other=0.0)


@triton.jit
def _own_sums(values, C: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of (BLOCK, SPAN·C) over what one thread holds of a channel, as a product of matrices gives it."""
    return tl.sum(tl.sum(tl.reshape(values, (BLOCK // 16, 2, 8, SPAN, C)), 3), 1)


@triton.jit
def _each_channel(own):
    """The sums of each channel from those of `_own_sums`."""
    return tl.sum(tl.sum(own, 0), 0)


@triton.jit
def _fetch(values, run, tile, frames, LENGTH: tl.constexpr, C: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Have the outputs of a tile come into the cache."""
    size = frames * LENGTH * C
    fetch(values + run * size, tile * (BLOCK * SPAN * C), size, BLOCK * SPAN * C)


@triton.jit
def _normed(values, gain, offset, C: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """gain·values + offset of (BLOCK, SPAN·C), as a product of matrices gives it: a thread needs few channels."""
    normed = tl.reshape(values, (BLOCK, SPAN, C)) * gain[None, None, :] + offset[None, None, :]
    return tl.reshape(normed, (BLOCK, SPAN * C))


@triton.jit
def chain_convolve(
    x, scale, shift, skip, weight, y, kept, partial, counts, used, first_weight, frames,
    LENGTH: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr, SPAN: tl.constexpr,
    CHUNK: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr, NORM: tl.constexpr, WITH_SKIP: tl.constexpr,
    KEEP: tl.constexpr, INPUTS: tl.constexpr, FIRST_TAPS: tl.constexpr, SEEN: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr, FETCH: tl.constexpr,
):  # fmt: skip
    """y = conv(z) with z = ReLU(scale·x + shift + skip) where NORM, else z = x; zero outside a frame.

    INPUTS > 0: instead of x, the first convolution of x, which has so many channels. SEEN: numbers of its window.
    KEEP: writes z. FETCH: see `fetch`. Σ count·y and Σ count·y² of each channel are summed over the tiles of a program.
    """
    run = tl.program_id(1).to(tl.int64)
    GROUPS: tl.constexpr = (LENGTH + SPAN * DILATION - 1) // (SPAN * DILATION) * DILATION
    base = run * frames * LENGTH * C
    filled = tl.load(used + run)  # frames that are used
    rows = filled * LENGTH
    k = tl.arange(0, CHUNK * C)
    if INPUTS > 0:
        gain = tl.load(scale + run * C + tl.arange(0, C))
        offset = tl.load(shift + run * C + tl.arange(0, C))
    elif NORM:
        gain = tl.load(scale + run * C + k % C)[None, :]
        offset = tl.load(shift + run * C + k % C)[None, :]
    matrices = ()
    for part in tl.static_range(PARTS):
        matrix = _matrix(weight, run, part, C, TAPS, SPAN, CHUNK, False)
        matrices += (matrix.to(x.dtype.element_ty),)  # type: ignore[assignment]
    if INPUTS > 0:
        first_matrix = window_matrix(first_weight, run, INPUTS, FIRST_TAPS, C, CHUNK, SEEN).to(x.dtype.element_ty)
        first_base = run * frames * LENGTH * INPUTS
    total = tl.zeros((BLOCK // 16, 8, C), dtype=tl.float32)
    squares = tl.zeros((BLOCK // 16, 8, C), dtype=tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(filled * GROUPS, BLOCK), tl.num_programs(0)):
        first, frame = _rows(tile, LENGTH, DILATION, SPAN, BLOCK)
        out = tl.zeros((BLOCK, SPAN * C), dtype=tl.float32)
        count = count_of_rows(counts, run, frames * LENGTH, LENGTH, frame, frame < rows)[:, None]
        if FETCH:
            coming = tile + tl.num_programs(0)
            if INPUTS == 0:
                _fetch(x, run, coming, frames, LENGTH, C, SPAN, BLOCK)
            if WITH_SKIP:
                _fetch(skip, run, coming, frames, LENGTH, C, SPAN, BLOCK)
        for part in tl.static_range(PARTS):
            at, inside = _inputs(first, frame, rows, part, LENGTH, C, TAPS, DILATION, SPAN, CHUNK, WHOLE)
            if NORM:
                if INPUTS > 0:
                    ahead = part * CHUNK - TAPS // 2 - FIRST_TAPS // 2
                    w = window(x, first_base, first, frame, rows, ahead, LENGTH, INPUTS, FIRST_TAPS + CHUNK - 1, SEEN)
                    raw = tl.dot(w, first_matrix, input_precision=PRECISION)
                    z = _normed(raw, gain, offset, C, CHUNK, BLOCK)
                else:
                    z = tl.load(x + base + at, mask=inside).to(tl.float32) * gain + offset
                if WITH_SKIP:
                    z += tl.load(skip + base + at, mask=inside).to(tl.float32)
                z = tl.where(inside, tl.maximum(z, 0.0), 0.0).to(x.dtype.element_ty)
            else:
                z = tl.load(x + base + at, mask=inside, other=0.0)
            if KEEP:
                own = k // C + part * CHUNK
                own = (own >= TAPS // 2) & (own < TAPS // 2 + SPAN)
                tl.store(kept + base + at, z, mask=inside & own[None, :])
            out = tl.dot(z, matrices[part], out, input_precision=PRECISION)
        at, inside = _outputs(first, frame, rows, LENGTH, C, DILATION, SPAN, BLOCK, WHOLE)
        tl.store(y + base + at, out.to(y.dtype.element_ty), mask=inside)
        out = tl.where(inside, out, 0.0)
        total += _own_sums(count * out, C, SPAN, BLOCK)
        squares += _own_sums(count * out * out, C, SPAN, BLOCK)
    at = partial + (run * tl.num_programs(0) + tl.program_id(0)) * 2 * C + tl.arange(0, C)
    tl.store(at, _each_channel(total))
    tl.store(at + C, _each_channel(squares))


@triton.jit
def chain_gradient(
    u, y, coefficient, weight, before, scale, shift, kept, added, du, partial, dweight, counts, used,
    first_weight, frames,
    LENGTH: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr, SPAN: tl.constexpr,
    CHUNK: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr, NORM: tl.constexpr, KEPT: tl.constexpr,
    ADDED: tl.constexpr, INPUT: tl.constexpr, WEIGHT: tl.constexpr, INPUTS: tl.constexpr, FIRST_TAPS: tl.constexpr,
    SEEN: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr, FETCH: tl.constexpr,
):  # fmt: skip
    """Through a convolution, from the gradient u before its ReLU to du, that before the ReLU of the one before it.

    The gradient of y is a·(u + count·(slope·y + constant)) where NORM, of which a is left to the kernel, or else what
    u holds.
    INPUT: du, which is convᵀ(dy) + added where z > 0, and Σdu and Σdu·before of each channel. WEIGHT: the gradient of
    the kernel from one chunk of dy, with PARTS = 1. Both sum over the tiles of a program. z, what the convolution read,
    is `kept` where KEPT, or else ReLU(scale·before + shift).
    INPUTS > 0: instead of `before`, the first convolution of it, which has so many channels. Then nobody needs du, and
    its place is for parts of Σ du wᵀ with the windows of SEEN numbers, see `window_gradient`. FETCH: see `fetch`.
    """
    run = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2)
    GROUPS: tl.constexpr = (LENGTH + SPAN * DILATION - 1) // (SPAN * DILATION) * DILATION
    base = run * frames * LENGTH * C
    filled = tl.load(used + run)  # frames that are used
    rows = filled * LENGTH
    k = tl.arange(0, CHUNK * C)
    n = tl.arange(0, SPAN * C)
    a = coefficient + run * 3 * C
    if NORM:
        slope = tl.load(a + C + k % C)[None, :]
        constant = tl.load(a + 2 * C + k % C)[None, :]
    if INPUTS > 0:
        gain = tl.load(scale + run * C + tl.arange(0, C))
        offset = tl.load(shift + run * C + tl.arange(0, C))
    elif not KEPT:
        gain = tl.load(scale + run * C + n % C)[None, :]
        offset = tl.load(shift + run * C + n % C)[None, :]
    if INPUT:
        matrices = ()
        for part in tl.static_range(PARTS):
            matrix = _matrix(weight, run, part, C, TAPS, SPAN, CHUNK, True)
            if NORM:
                matrix *= tl.load(a + k % C)[:, None]
            matrices += (matrix.to(u.dtype.element_ty),)  # type: ignore[assignment]
        total = tl.zeros((BLOCK // 16, 8, C), dtype=tl.float32)
        along = tl.zeros((BLOCK // 16, 8, C), dtype=tl.float32)
    if WEIGHT:
        dw = tl.zeros((SPAN * C, CHUNK * C), dtype=tl.float32)
    if INPUTS > 0:
        first_matrix = window_matrix(first_weight, run, INPUTS, FIRST_TAPS, C, SPAN, SEEN).to(u.dtype.element_ty)
        first_base = run * frames * LENGTH * INPUTS
        along_window = tl.zeros((SPAN * C, SEEN), dtype=tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(filled * GROUPS, BLOCK), tl.num_programs(0)):
        first, frame = _rows(tile, LENGTH, DILATION, SPAN, BLOCK)
        here, there = _outputs(first, frame, rows, LENGTH, C, DILATION, SPAN, BLOCK, WHOLE)
        if INPUT:
            g = tl.zeros((BLOCK, SPAN * C), dtype=tl.float32)
        for part in tl.static_range(PARTS):
            at, inside = _inputs(first, frame, rows, chunk + part, LENGTH, C, TAPS, DILATION, SPAN, CHUNK, WHOLE)
            if NORM:
                count = count_of_rows(counts, run, frames * LENGTH, LENGTH, frame, frame < rows)[:, None]
                given = tl.load(y + base + at, mask=inside)
                dy = tl.load(u + base + at, mask=inside)
            else:
                dy = tl.load(u + base + at, mask=inside, other=0.0)
            if part == 0:
                if INPUTS > 0:
                    w = window(
                        before, first_base, first, frame, rows, -(FIRST_TAPS // 2), LENGTH, INPUTS,
                        FIRST_TAPS + SPAN - 1, SEEN,
                    )  # fmt: skip
                else:
                    own = tl.load(before + base + here, mask=there, other=0.0)
                if KEPT:
                    z = tl.load(kept + base + here, mask=there, other=0.0)
                if ADDED:
                    more = tl.load(added + base + here, mask=there, other=0.0)
                if FETCH:
                    coming = tile + tl.num_programs(0)
                    _fetch(u, run, coming, frames, LENGTH, C, SPAN, BLOCK)
                    if NORM:
                        _fetch(y, run, coming, frames, LENGTH, C, SPAN, BLOCK)
                    if INPUTS == 0 and (INPUT or not KEPT):
                        _fetch(before, run, coming, frames, LENGTH, C, SPAN, BLOCK)
                    if KEPT:
                        _fetch(kept, run, coming, frames, LENGTH, C, SPAN, BLOCK)
                    if ADDED:
                        _fetch(added, run, coming, frames, LENGTH, C, SPAN, BLOCK)
            if NORM:
                dy = count * (given.to(tl.float32) * slope + constant) + dy.to(tl.float32)
                dy = tl.where(inside, dy, 0.0).to(u.dtype.element_ty)
            if part == 0:
                raw = tl.dot(w, first_matrix, input_precision=PRECISION) if INPUTS > 0 else own.to(tl.float32)
                if not KEPT:
                    z = _normed(raw, gain, offset, C, SPAN, BLOCK) if INPUTS > 0 else raw * gain + offset
                    z = tl.where(there, tl.maximum(z, 0.0), 0.0).to(u.dtype.element_ty)
            if WEIGHT:
                dw = tl.dot(tl.trans(z), dy, dw, input_precision=PRECISION)
            if INPUT:
                g = tl.dot(dy, matrices[part], g, input_precision=PRECISION)
        if INPUT:
            if ADDED:
                g += more.to(tl.float32)
            g = tl.where(z > 0, g, 0.0)
            if INPUTS > 0:
                low = tl.trans(g.to(w.dtype))
                along_window = tl.dot(low, w, along_window, input_precision=PRECISION)
            else:
                tl.store(du + base + here, g.to(du.dtype.element_ty), mask=there)
            total += _own_sums(g, C, SPAN, BLOCK)
            along += _own_sums(g * raw, C, SPAN, BLOCK)
    program = run * tl.num_programs(0) + tl.program_id(0)
    if INPUT:
        at = partial + program * 2 * C + tl.arange(0, C)
        tl.store(at, _each_channel(total))
        tl.store(at + C, _each_channel(along))
        if INPUTS > 0:
            at = du + (program * SPAN * C + n[:, None]) * SEEN + tl.arange(0, SEEN)[None, :]
            tl.store(at, along_window)
    if WEIGHT:
        # A tap's gradient stands in dw wherever sample s of what was read is TAPS − 1 − tap before that of dy.
        blocks = tl.reshape(dw, (SPAN, C, CHUNK, C))
        s = tl.arange(0, SPAN)[:, None, None, None]
        j = chunk * CHUNK + tl.arange(0, CHUNK)[None, None, :, None]
        ci = tl.arange(0, C)[:, None]
        co = tl.arange(0, C)[None, :]
        out = dweight + (((program * tl.num_programs(2) + chunk) * C + co) * C + ci) * TAPS
        for tap in tl.static_range(TAPS):
            own = tl.sum(tl.sum(tl.where(j - s == TAPS - 1 - tap, blocks, 0.0), 2), 0)
            if NORM:
                own *= tl.load(a + co)
            tl.store(out + tap, own)
