"""Viterbi decoding of the K = 7 code, one step and one state at a time."""

from __future__ import annotations

from collections.abc import Sequence


def emitted(register: Sequence[int]) -> tuple[int, int]:
    """A and B for a register of the present bit and the six before it (133 and 171 octal)."""
    a = sum(register[d] for d in (0, 2, 3, 5, 6)) % 2
    b = sum(register[d] for d in (0, 1, 2, 3, 6)) % 2
    return a, b


def likelihood(bits: Sequence[int], soft: Sequence[float]) -> float:
    """How well the code word of some bits agrees with soft values: Σ ± s."""
    register, total = [0] * 7, 0.0
    for n, bit in enumerate(bits):
        register = [bit, *register[:6]]
        for out, value in zip(emitted(register), soft[2 * n : 2 * n + 2], strict=True):
            total += value if out else -value
    return total


def decode(soft: Sequence[float], ended: bool) -> list[int]:
    """The bits with the highest likelihood, from state zero, and back to it where `ended`."""
    best: dict[tuple[int, ...], tuple[float, list[int]]] = {(0,) * 6: (0.0, [])}
    for n in range(len(soft) // 2):
        following: dict[tuple[int, ...], tuple[float, list[int]]] = {}
        for state, (total, bits) in best.items():
            for bit in (0, 1):
                a, b = emitted((bit, *state))
                gained = total + (2 * a - 1) * soft[2 * n] + (2 * b - 1) * soft[2 * n + 1]
                after = (bit, *state[:5])
                if after not in following or gained > following[after][0]:
                    following[after] = (gained, [*bits, bit])
        best = following
    if ended:
        return best[(0,) * 6][1]
    return max(best.values())[1]
