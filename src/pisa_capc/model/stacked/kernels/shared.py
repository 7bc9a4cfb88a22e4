"""What kernels have in common: reads ahead of time, and a Transformer layer's dropout and layer normalisation."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fetch(values, first, end, COUNT: tl.constexpr):
    """Have COUNT numbers from `first` on come into the cache, of those before `end`. Only for NVIDIA's GPUs."""
    LINE: tl.constexpr = 512 // values.dtype.element_ty.primitive_bitwidth  # numbers of 64 bytes
    at = values + tl.minimum(first + tl.arange(0, COUNT // LINE) * LINE, end - 1)
    code: tl.constexpr = "prefetch.global.L2 [$1]; mov.b32 $0, 0;"  # something has to be given
    tl.inline_asm_elementwise(code, "=r,l", [at.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def _mix(x):
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    return (x ^ ((x >> 15) & 0x1FFFF)) * -0x7B935975


@triton.jit
def kept(key, run, salt, element, threshold):
    """`noise.keep_mask` for these elements of a run; salt: which place in the model, see `noise.salt`.

    The cast takes the low 32 bits of the hash, however wide the elements were counted.
    """
    return _mix(element ^ _mix(_mix(tl.load(key + run)) + salt)).to(tl.int32) >= threshold


@triton.jit
def layer_norm(r, eps, WIDTH: tl.constexpr):
    """(r − mean)/σ of each row, and 1/σ."""
    centred = r - (tl.sum(r, 1) / WIDTH)[:, None]
    rstd = tl.rsqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    return centred * rstd[:, None], rstd


@triton.jit
def layer_norm_gradient(dnormed, normed, rstd, WIDTH: tl.constexpr):
    """dr of `layer_norm` from the gradient of its first result."""
    mean = tl.sum(dnormed, 1) / WIDTH
    along = tl.sum(dnormed * normed, 1) / WIDTH
    return (dnormed - mean[:, None] - normed * along[:, None]) * rstd[:, None]


@triton.jit
def end_gradient(
    dout, normed, rstd, key, dx, gain, run, rows, m, salt, threshold, inflate,
    WIDTH: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Rows m back through LN(x + dropout(y)), the end of both halves of a layer: the residual's share goes to dx.

    Returns dy and what the rows add to the gradients of gamma and beta.
    """
    c = tl.arange(0, WIDTH)
    live = (m < rows)[:, None]
    at = (run * rows + m)[:, None] * WIDTH + c[None, :]
    unit = tl.load(normed + at, mask=live, other=0.0).to(tl.float32)
    g = tl.load(dout + at, mask=live, other=0.0).to(tl.float32)
    dy = layer_norm_gradient(g * gain, unit, tl.load(rstd + run * rows + m, mask=m < rows, other=0.0), WIDTH)
    tl.store(dx + at, dy.to(dx.dtype.element_ty), mask=live)
    if DROP:
        keep = kept(key, run, salt, m[:, None] * WIDTH + c[None, :], threshold)
        dy = tl.where(keep, dy * inflate, 0.0)
    return dy, tl.sum(g * unit, 0), tl.sum(g, 0)
