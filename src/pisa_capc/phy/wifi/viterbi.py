"""Soft Viterbi decoding of the K = 7 code (133, 171 octal; 17.3.5.6), many sequences at once.

Sequences of any lengths are cut into windows of one length that overlap, and all windows walk through the trellis side
by side: the survivors of this code merge well within the overlap, so the windows agree with one long decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WINDOW = 768  # bits that one window decides
OVERLAP = 96  # bits that it sees on either side; 14 constraint lengths, enough for the code punctured to 5/6
_SIDE = 8  # bits on either side where one window sees a whole sequence: the six of the register, and two more
_CERTAIN = 100.0  # soft value of a bit that is known, in units of the mean size of the received ones
_TOGETHER = 256  # windows that fit in a processor's cache


def _expected() -> NDArray[np.int64]:
    """(32,) which of the four pairs (A, B), as 2 A + B, state j emits on a zero; bit d of a register is delay d."""
    register = 2 * np.arange(32)
    parity = np.array([[bin(r & mask).count("1") & 1 for r in register] for mask in (0b1101101, 0b1001111)])
    return 2 * parity[0] + parity[1]


_EXPECTED = _expected()


def decode(soft: Sequence[NDArray[np.float32]], ended: Sequence[bool]) -> list[NDArray[np.uint8]]:
    """(n,) bits of each (2 n,) soft sequence A₁B₁A₂B₂…, positive for one, zero for unknown.

    All begin in state zero; those that are `ended` also end there.
    """
    lengths = [len(s) // 2 for s in soft]
    longest = max(lengths, default=0)
    size, side = (longest, _SIDE) if longest <= WINDOW else (WINDOW, OVERLAP)
    if longest == 0:
        return [np.zeros(0, dtype=np.uint8) for _ in soft]
    windows = np.concatenate([_windows(s, end, size, side) for s, end in zip(soft, ended, strict=True)])
    parts = [_walk(windows[i : i + _TOGETHER]) for i in range(0, len(windows), _TOGETHER)]
    bits = np.concatenate(parts)[:, side : side + size]
    counts = [-(-n // size) for n in lengths]
    firsts = np.concatenate([[0], np.cumsum(counts)])
    return [bits[f : f + c].reshape(-1)[:n] for f, c, n in zip(firsts, counts, lengths, strict=False)]


def _windows(soft: NDArray[np.float32], ended: bool, size: int, side: int) -> NDArray[np.float32]:
    """(W, side + size + side, 2) overlapping windows of one sequence.

    Before its beginning, and after its end where that is known, stand the zeros that the encoder in state zero would
    send for zeros.
    """
    n = len(soft) // 2
    count = -(-n // size)
    padded = np.zeros((count * size + 2 * side, 2), dtype=np.float32)
    padded[:side] = -_CERTAIN
    if ended:
        padded[side + n :] = -_CERTAIN
    padded[side : side + n] = soft.reshape(n, 2) / max(float(np.abs(soft).mean()), np.finfo(np.float32).tiny)
    views = np.lib.stride_tricks.sliding_window_view(padded, size + 2 * side, axis=0)[::size]
    return views[:count].transpose(0, 2, 1)


def _walk(windows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """(W, n) bits of (W, n, 2) soft values, from unknown states to the best one."""
    count, steps, _ = windows.shape
    a, b = windows.transpose(2, 1, 0)
    branches = np.ascontiguousarray(np.stack([-a - b, b - a, a - b, a + b], axis=1))  # (n, 4, W)
    metric, following = np.zeros((2, 64, count), dtype=np.float32)
    from_high = np.empty((steps, 2, 32, count), dtype=bool)
    branch, low, high = np.empty((3, 32, count), dtype=np.float32)
    for n in range(steps):
        # States 2j and 2j + 1 are reached from j and from j + 32, whose outputs on either bit are opposite.
        np.take(branches[n], _EXPECTED, axis=0, out=branch, mode="clip")
        for bit, (plus, minus) in enumerate(((np.add, np.subtract), (np.subtract, np.add))):
            plus(metric[:32], branch, out=low)
            minus(metric[32:], branch, out=high)
            np.greater(high, low, out=from_high[n, bit])
            np.maximum(low, high, out=following[bit::2])
        metric, following = following, metric
    return _trace(from_high.reshape(steps, 64 * count), metric.argmax(axis=0))


def _trace(from_high: NDArray[np.bool_], state: NDArray[np.int64]) -> NDArray[np.uint8]:
    """(W, n) bits along the survivors that end in these states."""
    steps, count = len(from_high), len(state)
    bits = np.empty((steps, count), dtype=np.uint8)
    window = np.arange(count)
    for n in range(steps - 1, -1, -1):
        bit, before = state & 1, state >> 1
        bits[n] = bit
        state = before + 32 * from_high[n, (32 * bit + before) * count + window]
    return bits.T
