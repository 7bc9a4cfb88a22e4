"""Multi-head self-attention of short sequences, forward and backward."""

from __future__ import annotations

import triton
import triton.language as tl


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
