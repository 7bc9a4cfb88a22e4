"""The GRU's recurrence, forward and backward."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def gru_forward(
    gates, weight, bias, out, used, streams, length,
    H: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Recurrence of one direction for BLOCK streams; the state stays in registers over the whole frame.

    gates (R, N, T, 2, 3, H): x W_iᵀ. weight (R, 2, 3, H_in, H_out). out (R, N, T, 2, H).
    bias (R, 2, 4, H): of reset and update gate (input's and state's together), of the new gate's state and input.
    """
    run = tl.program_id(1).to(tl.int64)
    direction = tl.program_id(2)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    filled = tl.load(used + run)
    live = (n < filled)[:, None]
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
    for step in range(tl.where(tl.program_id(0) * BLOCK < filled, length, 0)):
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
    gates, weight, weight_t, bias, out, dout, dgates, dweight, dbias, used, streams, length, pool,
    H: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Backward recurrence: gates are recomputed from the stored states, dW and db are summed in registers.

    dout (R, N, T/pool, 2, H): of the mean over each `pool` steps.
    """
    run = tl.program_id(1).to(tl.int64)
    direction = tl.program_id(2)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    filled = tl.load(used + run)
    live = (n < filled)[:, None]
    there = (n < streams)[:, None]  # those that are not used have gradients too: zeros
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
    db_r = tl.zeros((BLOCK, H), dtype=tl.float32)
    db_z = tl.zeros((BLOCK, H), dtype=tl.float32)
    db_n = tl.zeros((BLOCK, H), dtype=tl.float32)
    db_x = tl.zeros((BLOCK, H), dtype=tl.float32)
    at = gates + ((row + t) * 2 + direction) * 3 * H + j[None, :]
    x_r = tl.load(at, mask=live, other=0.0)
    x_z = tl.load(at + H, mask=live, other=0.0)
    x_n = tl.load(at + 2 * H, mask=live, other=0.0)
    pooled = (run * streams + n)[:, None] * (length // pool)
    share = 1.0 / pool
    g = tl.load(dout + ((pooled + t // pool) * 2 + direction) * H + j[None, :], mask=live, other=0.0)
    second = out + ((row + t + back) * 2 + direction) * H + j[None, :]
    before = tl.load(second, mask=live & (n * 0 + 1 < length)[:, None], other=0.0)
    steps = tl.where(tl.program_id(0) * BLOCK < filled, length, 0)
    for step in range(steps):
        ahead = tl.where(step + 1 < length, t + back, t)
        at = gates + ((row + ahead) * 2 + direction) * 3 * H + j[None, :]
        next_r = tl.load(at, mask=live, other=0.0)
        next_z = tl.load(at + H, mask=live, other=0.0)
        next_n = tl.load(at + 2 * H, mask=live, other=0.0)
        at = dout + ((pooled + ahead // pool) * 2 + direction) * H + j[None, :]
        next_g = tl.load(at, mask=live, other=0.0)
        inside = live & (n * 0 + step + 2 < length)[:, None]
        next_before = tl.load(out + ((row + ahead + back) * 2 + direction) * H + j[None, :], mask=inside, other=0.0)

        low = before.to(w_r.dtype)
        previous = before.to(tl.float32)
        r = _sigmoid(x_r.to(tl.float32) + b_r + tl.dot(low, w_r, input_precision=PRECISION))
        z = _sigmoid(x_z.to(tl.float32) + b_z + tl.dot(low, w_z, input_precision=PRECISION))
        q = b_n + tl.dot(low, w_n, input_precision=PRECISION)
        new = _tanh(x_n.to(tl.float32) + b_x + r * q)
        dh = g.to(tl.float32) * share + carry
        dn = dh * (1.0 - z) * (1.0 - new * new)
        dz = dh * (previous - new) * z * (1.0 - z)
        dr = dn * q * r * (1.0 - r)
        dq = dn * r
        at = dgates + ((row + t) * 2 + direction) * 3 * H + j[None, :]
        tl.store(at, dr.to(dgates.dtype.element_ty), mask=there)
        tl.store(at + H, dz.to(dgates.dtype.element_ty), mask=there)
        tl.store(at + 2 * H, dn.to(dgates.dtype.element_ty), mask=there)
        dr_low = dr.to(w_r.dtype)
        dz_low = dz.to(w_r.dtype)
        dq_low = dq.to(w_r.dtype)
        carry = dh * z + tl.dot(dr_low, v_r, input_precision=PRECISION)
        carry += tl.dot(dz_low, v_z, input_precision=PRECISION) + tl.dot(dq_low, v_n, input_precision=PRECISION)
        low_t = tl.trans(low)
        dw_r += tl.dot(low_t, dr_low, input_precision=PRECISION)
        dw_z += tl.dot(low_t, dz_low, input_precision=PRECISION)
        dw_n += tl.dot(low_t, dq_low, input_precision=PRECISION)
        db_r += dr
        db_z += dz
        db_n += dq
        db_x += dn
        t = ahead
        x_r = next_r
        x_z = next_z
        x_n = next_n
        g = next_g
        before = next_before
    for step in range(steps, length):
        at = dgates + ((row + step) * 2 + direction) * 3 * H + j[None, :]
        for gate in tl.static_range(3):
            tl.store(at + gate * H, tl.zeros((BLOCK, H), dtype=dgates.dtype.element_ty), mask=there)
    part = (tl.program_id(0) * tl.num_programs(1) + run) * 2 + direction
    at_d = dweight + part * 3 * H * H + j[:, None] * H + j[None, :]
    tl.store(at_d, dw_r)
    tl.store(at_d + H * H, dw_z)
    tl.store(at_d + 2 * H * H, dw_n)
    tl.store(dbias + part * 4 * H + j, tl.sum(db_r, 0))
    tl.store(dbias + part * 4 * H + H + j, tl.sum(db_z, 0))
    tl.store(dbias + part * 4 * H + 2 * H + j, tl.sum(db_n, 0))
    tl.store(dbias + part * 4 * H + 3 * H + j, tl.sum(db_x, 0))
