"""Soft Viterbi decoding of the K = 7 code (133, 171 octal; 17.3.5.6), many sequences at once.

A sequence whose signs an encoder could have sent as they are needs no search: no other one is as likely. Of the rest,
sequences of any lengths are cut into windows of one length that overlap, and all windows walk through the trellis side
by side: the survivors of this code merge well within the overlap, so the windows agree with one long decoder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

WINDOW = 768  # bits that one window decides
OVERLAP = 96  # bits that it sees on either side; 14 constraint lengths, enough for the code punctured to 5/6
_SIDE = 8  # bits on either side where one window sees a whole sequence: the six of the register, and two more
_MEAN = 32.0  # what the mean size of a sequence's soft values becomes as an integer
_CERTAIN = 255  # the largest soft value, and that of a bit that is known
_LEVEL = 32  # steps after which metrics are brought back to zero: what 32 steps add and their spread fit in 16 bits
_TOGETHER = 512  # windows that fit in a processor's cache
_METRICS = 1 << 16  # that do, too: those of several steps, where windows are few
_GENERATORS = 0b1101101, 0b1001111  # 133 and 171 octal from right to left: bit d is the input d steps ago
_LOST = 64  # the state of a sequence that no encoder sends


def _emitted() -> NDArray[np.int64]:
    """(128,) which of the four pairs (A, B), as 2 A + B, states 0 … 31 emit on a zero, then on a one; then 32 … 63.

    Both generators have the oldest bit, so states that differ in it alone emit opposite pairs.
    """
    register = np.concatenate([2 * np.arange(32), 2 * np.arange(32) + 1])
    a, b = ([bin(r & mask).count("1") & 1 for r in register] for mask in _GENERATORS)
    low = 2 * np.array(a) + np.array(b)
    return np.concatenate([low, 3 - low])


_EMITTED = _emitted()


def decode(soft: Sequence[NDArray[np.float32]], ended: Sequence[bool]) -> list[NDArray[np.uint8]]:
    """(n,) bits of each (2 n,) soft sequence A₁B₁A₂B₂…, positive for one, zero for unknown.

    All begin in state zero; those that are `ended` also end there.
    """
    found = [_as_sent(sequence, end) for sequence, end in zip(soft, ended, strict=True)]
    unsure = [i for i, bits in enumerate(found) if bits is None]
    searched = dict(zip(unsure, _search([soft[i] for i in unsure], [ended[i] for i in unsure]), strict=True))
    return [searched[i] if bits is None else bits for i, bits in enumerate(found)]


def _inverse() -> tuple[int, int]:
    """(P, Q), polynomials over GF(2) with bit d for D^d, with P g_A + Q g_B = 1: what makes bits of signs again.

    The smallest there are; a code without them would turn a few wrong signs into endlessly many wrong bits.
    """
    return next((p, q) for p, q in np.ndindex(64, 64) if _product(p, _GENERATORS[0]) ^ _product(q, _GENERATORS[1]) == 1)


def _product(taps: int, sequence: int) -> int:
    """Of two polynomials over GF(2); quick where the first has few terms, however long the second is."""
    out = 0
    while taps:
        lowest = taps & -taps
        out ^= sequence << lowest.bit_length() - 1
        taps ^= lowest
    return out


_INVERSE = _inverse()


def _followed() -> bytes:
    """The state 2 j + b that each of 64 comes to when it sends signs A, B, at 9 · state + 3 A + B.

    A sign is 0 for a negative value, 1 for an unknown one, 2 for a positive one. The state is _LOST where it cannot
    send them, or both are unknown.
    """
    table = bytearray([_LOST]) * (9 * (_LOST + 1))
    for state, bit in np.ndindex(64, 2):
        register = 2 * state + bit
        a, b = (2 * (bin(register & mask).count("1") & 1) for mask in _GENERATORS)
        for signs in (3 * a + b, 3 * a + 1, 3 + b):
            table[9 * state + signs] = register % 64
    return bytes(table)


_FOLLOWED = _followed()


def _as_sent(soft: NDArray[np.float32], ended: bool) -> NDArray[np.uint8] | None:
    """(n,) bits of (2 n,) soft values whose signs are a code sequence as they are; None where they are not."""
    if np.count_nonzero(soft) < len(soft):
        return _walked(soft, ended)
    # All signs are known: polynomials tell the bits at once, and whether they give these signs.
    n = len(soft) // 2
    a, b = (
        int.from_bytes(row.tobytes(), "little")
        for row in np.packbits(soft.reshape(n, 2).T > 0, axis=1, bitorder="little")
    )
    whole = (1 << n) - 1
    bits = (_product(_INVERSE[0], a) ^ _product(_INVERSE[1], b)) & whole
    sent = (_product(taps, bits) & whole for taps in _GENERATORS)
    if (a, b) != tuple(sent) or (ended and bits >> max(n - 6, 0)):
        return None
    octets = np.frombuffer(bits.to_bytes(-(-n // 8), "little"), dtype=np.uint8)
    return np.unpackbits(octets, count=n, bitorder="little")


def _walked(soft: NDArray[np.float32], ended: bool) -> NDArray[np.uint8] | None:
    """The same where some signs are unknown: every bit changes both, so one of them that is known tells the bit."""
    signs = np.sign(soft).astype(np.int8) + 1
    state, states = 0, bytearray()
    for pair in (3 * signs[::2] + signs[1::2]).tobytes():
        state = _FOLLOWED[9 * state + pair]
        states.append(state)
    if state == _LOST or (ended and state):
        return None
    return np.frombuffer(states, dtype=np.uint8) & np.uint8(1)


def _search(soft: Sequence[NDArray[np.float32]], ended: Sequence[bool]) -> list[NDArray[np.uint8]]:
    """As `decode`, by the trellis."""
    if not soft:
        return []
    alike: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for i, (sequence, end) in enumerate(zip(soft, ended, strict=True)):
        alike[len(sequence) // 2, end].append(i)
    longest = max(1, *(n for n, _ in alike))
    size, side = (longest, _SIDE) if longest <= WINDOW else (WINDOW, OVERLAP)
    windows = [_windows(np.stack([soft[i] for i in of]), end, size, side) for (_, end), of in alike.items()]
    together = np.concatenate(windows)
    walked = [_walk(together[i : i + _TOGETHER]) for i in range(0, len(together), _TOGETHER)]
    bits = np.concatenate(walked)[:, side : side + size]
    decoded: dict[int, NDArray[np.uint8]] = {}
    for ((n, _), of), own in zip(alike.items(), np.split(bits, np.cumsum([len(w) for w in windows])[:-1]), strict=True):
        decoded.update(zip(of, own.reshape(len(of), -1)[:, :n], strict=True))
    return [decoded[i] for i in range(len(soft))]


def _windows(soft: NDArray[np.float32], ended: bool, size: int, side: int) -> NDArray[np.int16]:
    """(F W, side + size + side, 2) overlapping windows of (F, 2 n) sequences, at least one of each.

    Before their beginning, and after their end where that is known, stand the zeros that the encoder in state zero
    would send for zeros.
    """
    n = soft.shape[1] // 2
    count = max(-(-n // size), 1)
    padded = np.zeros((len(soft), count * size + 2 * side, 2), dtype=np.int16)
    padded[:, :side] = -_CERTAIN
    if ended:
        padded[:, side + n :] = -_CERTAIN
    mean = np.abs(soft).sum(axis=1, dtype=np.float64, keepdims=True) / max(soft.shape[1], 1)
    scaled = soft * (_MEAN / np.maximum(mean, 1e-30)).astype(np.float32)
    padded[:, side : side + n] = np.clip(np.rint(scaled), -_CERTAIN, _CERTAIN).reshape(len(soft), n, 2)
    cut = sliding_window_view(padded, size + 2 * side, axis=1)[:, ::size]
    return cut.swapaxes(2, 3).reshape(-1, size + 2 * side, 2)


def _walk(windows: NDArray[np.int16]) -> NDArray[np.uint8]:
    """(W, n) bits of (W, n, 2) soft values, from unknown states to the best one.

    What does not depend on the step before is computed for several steps at once: with few windows, a step costs as
    much as the calls it takes.
    """
    count, steps, _ = windows.shape
    a, b = windows.transpose(2, 1, 0)
    pairs = np.stack([-a - b, b - a, a - b, a + b], axis=1)  # (n, 4, W)
    metric = np.zeros((32, 2, count), dtype=np.int16)  # of state 2 j + b
    before, after = metric.reshape(2, 1, 32, count), metric.swapaxes(0, 1)
    from_high = np.empty((steps, 2, 32, count), dtype=bool)
    at_once = _steps_at_once(count)
    for first in range(0, steps, at_once):
        # Bit b leads from j and from j + 32 to 2 j + b.
        reached = pairs[first : first + at_once].take(_EMITTED, axis=1).reshape(-1, 2, 2, 32, count)
        for both, low, high in zip(reached, reached[:, 0], reached[:, 1], strict=True):
            both += before
            np.maximum(low, high, out=after)
        np.greater(reached[:, 1], reached[:, 0], out=from_high[first : first + at_once])
        if first % _LEVEL == 0:
            metric -= metric.max(axis=(0, 1))
    return _trace(from_high, metric.reshape(64, count).argmax(axis=0))


def _steps_at_once(count: int) -> int:
    """A divisor of `_LEVEL`."""
    return 1 << max(0, min(_LEVEL, _METRICS // (128 * count)).bit_length() - 1)


def _trace(from_high: NDArray[np.bool_], state: NDArray[np.int64]) -> NDArray[np.uint8]:
    """(W, n) bits along the survivors that end in these states.

    State 2 j + b of window w is at place (32 b + j) W + w of a step; the one before it is j, or j + 32.
    """
    steps, count = len(from_high), len(state)
    window, j = np.arange(count), np.arange(64)[:, None] % 32
    low = ((32 * (j & 1) + (j >> 1)) * count + window).reshape(-1)  # the place of state j
    place = np.empty((steps + 1, count), dtype=np.intp)
    place[steps] = (32 * (state & 1) + (state >> 1)) * count + window
    high = np.empty(count, dtype=bool)
    decisions = from_high.reshape(steps, 64 * count)
    for chosen, here, there in zip(decisions[::-1], place[:0:-1], place[-2::-1], strict=True):
        low.take(here, out=there, mode="clip")
        chosen.take(here, out=high, mode="clip")
        there += 16 * count * high
    return (place[1:] >= 32 * count).astype(np.uint8).T
