"""The first convolution of a chain, whose outputs need not be written: it has so few inputs that whoever needs them
takes them from there again.

What a program reads is a window, the samples that some outputs see, channel by channel: they lie side by side. Batch
statistics of the outputs follow from the second moments of windows, and so does much of the weights' gradient.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pisa_capc.model.stacked.kernels.counted import count_of_rows


@triton.jit
def window(x, base, first, frame, rows, ahead, LENGTH: tl.constexpr, INPUTS: tl.constexpr, SAMPLES: tl.constexpr,
           PADDED: tl.constexpr):  # fmt: skip
    """So many samples of each frame from `ahead` behind its sample `first` on; zero outside it, and where padded."""
    k = tl.arange(0, PADDED)
    t = first[:, None] + ahead + (k // INPUTS)[None, :]
    inside = (t >= 0) & (t < LENGTH) & (k < SAMPLES * INPUTS)[None, :] & (frame < rows)[:, None]
    return tl.load(x + base + ((frame + first + ahead) * INPUTS)[:, None] + k[None, :], mask=inside, other=0.0)


@triton.jit
def window_matrix(weight, run, INPUTS: tl.constexpr, TAPS: tl.constexpr, C: tl.constexpr, OUTPUTS: tl.constexpr,
                  PADDED: tl.constexpr):  # fmt: skip
    """The kernel (R, C, INPUTS, TAPS) of a run as (PADDED, OUTPUTS·C), from a window to so many samples of outputs."""
    k = tl.arange(0, PADDED)[:, None]
    n = tl.arange(0, OUTPUTS * C)[None, :]
    tap = k // INPUTS - n // C
    at = ((run * C + n % C) * INPUTS + k % INPUTS) * TAPS + tap
    return tl.load(weight + at, mask=(tap >= 0) & (tap < TAPS), other=0.0)


@triton.jit
def window_moments(
    x, partial, counts, used, frames,
    LENGTH: tl.constexpr, INPUTS: tl.constexpr, TAPS: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Parts of Σ count·w wᵀ over the windows w of all outputs, behind whose INPUTS·TAPS numbers stands a one."""
    run = tl.program_id(1).to(tl.int64)
    base = run * frames * LENGTH * INPUTS
    rows = tl.load(used + run) * LENGTH
    SIZE: tl.constexpr = INPUTS * TAPS
    k = tl.arange(0, PADDED)
    total = tl.zeros((PADDED, PADDED), dtype=tl.float32)
    for start in range(tl.program_id(0) * BLOCK, rows, tl.num_programs(0) * BLOCK):
        m = start + tl.arange(0, BLOCK)
        frame = m // LENGTH * LENGTH
        w = window(x, base, m - frame, frame, rows, -(TAPS // 2), LENGTH, INPUTS, TAPS, PADDED)
        w = tl.where((k == SIZE)[None, :] & (m < rows)[:, None], 1.0, w).to(w.dtype)
        count = count_of_rows(counts, run, frames * LENGTH, LENGTH, m, m < rows)
        counted = (w * count[:, None]).to(w.dtype)
        total += tl.dot(tl.trans(counted), w, input_precision=PRECISION)
    part = (run * tl.num_programs(0) + tl.program_id(0)) * PADDED
    tl.store(partial + (part + k[:, None]) * PADDED + k[None, :], total)


@triton.jit
def window_apply(
    x, weight, scale, shift, out, used, frames,
    LENGTH: tl.constexpr, INPUTS: tl.constexpr, TAPS: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out = ReLU(scale·conv(x) + shift) of frames that are used."""
    run = tl.program_id(1).to(tl.int64)
    rows = tl.load(used + run) * LENGTH
    c = tl.arange(0, C)
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    frame = m // LENGTH * LENGTH
    base = run * frames * LENGTH
    w = window(x, base * INPUTS, m - frame, frame, rows, -(TAPS // 2), LENGTH, INPUTS, TAPS, PADDED)
    matrix = window_matrix(weight, run, INPUTS, TAPS, C, 1, PADDED).to(w.dtype)
    y = tl.dot(w, matrix, input_precision=PRECISION)
    z = tl.maximum(y * tl.load(scale + run * C + c)[None, :] + tl.load(shift + run * C + c)[None, :], 0.0)
    tl.store(out + (base + m)[:, None] * C + c[None, :], z.to(out.dtype.element_ty), mask=(m < rows)[:, None])


@triton.jit
def _order(run, INPUTS: tl.constexpr, TAPS: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr):
    """Where the numbers of a run's kernel (R, C, INPUTS, TAPS) are, in the order of a window: (C, PADDED)."""
    k = tl.arange(0, PADDED)[None, :]
    c = tl.arange(0, C)[:, None]
    return ((run * C + c) * INPUTS + k % INPUTS) * TAPS + k // INPUTS, k < INPUTS * TAPS


@triton.jit
def _outputs(x, moments, weight, run, INPUTS: tl.constexpr, TAPS: tl.constexpr, C: tl.constexpr,
             PADDED: tl.constexpr):  # fmt: skip
    """Of y = conv(x) from the moments (R, PADDED, PADDED): the kernel in the order of a window, Σ count·y wᵀ, and
    Σ count·w as a row. The type of x is that in which the products are taken."""
    k = tl.arange(0, PADDED)
    at, there = _order(run, INPUTS, TAPS, C, PADDED)
    kernel = tl.load(weight + at, mask=there, other=0.0).to(x.dtype.element_ty).to(tl.float32)
    square = tl.load(moments + (run * PADDED + k[:, None]) * PADDED + k[None, :])
    total = tl.load(moments + (run * PADDED + INPUTS * TAPS) * PADDED + k)[None, :]
    return kernel, tl.dot(kernel, square, input_precision="ieee"), total


@triton.jit
def window_sums(
    x, moments, weight, sums, INPUTS: tl.constexpr, TAPS: tl.constexpr, C: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """Σ count·y and Σ count·y² of each channel of y = conv(x)."""
    run = tl.program_id(0)
    c = tl.arange(0, C)
    kernel, along, total = _outputs(x, moments, weight, run, INPUTS, TAPS, C, PADDED)
    tl.store(sums + run * 2 * C + c, tl.sum(kernel * total, 1))
    tl.store(sums + (run * 2 + 1) * C + c, tl.sum(along * kernel, 1))


@triton.jit
def window_gradient(
    x, seen, moments, weight, coefficient, dweight, INPUTS: tl.constexpr, TAPS: tl.constexpr, C: tl.constexpr,
    SPAN: tl.constexpr, SEEN: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """The gradient of the kernel, Σ dy wᵀ with dy = a·(u + count·(slope·y + constant)).

    seen: Σ u wᵀ of SPAN outputs and the window of SEEN numbers that they see together, (R, SPAN·C, SEEN).
    """
    run = tl.program_id(0)
    k = tl.arange(0, PADDED)
    c = tl.arange(0, C)
    at, there = _order(run, INPUTS, TAPS, C, PADDED)
    _, along, total = _outputs(x, moments, weight, run, INPUTS, TAPS, C, PADDED)
    a = tl.load(coefficient + run * 3 * C + c)[:, None]
    slope = tl.load(coefficient + (run * 3 + 1) * C + c)[:, None]
    constant = tl.load(coefficient + (run * 3 + 2) * C + c)[:, None]
    g = slope * along + constant * total
    for s in tl.static_range(SPAN):
        own = ((run * SPAN + s) * C + c[:, None]) * SEEN + s * INPUTS + k[None, :]
        g += tl.load(seen + own, mask=there, other=0.0)
    tl.store(dweight + at, a * g, mask=there)
