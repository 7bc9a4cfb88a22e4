"""Counter-based random numbers for training.

A draw is a hash of (run seed, step, place in the model, element): it does not depend on what else is trained beside
the run, on the device, or on what was drawn before. A killed training therefore has no generator state to restore,
and a run gets the same draws alone and in a stack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

ROUNDS = ((16, 0xFFFF, 0x7FEB352D), (15, 0x1FFFF, -0x7B935975))  # shift, the bits it leaves, factor


def _mix(x: Tensor) -> Tensor:
    """Two multiply–xorshift rounds on 32 bits, wrapping on overflow; the high bits are the good ones.

    The bit masks make the shift of a signed integer a logical one.
    """
    for shift, bits, factor in ROUNDS:
        x = (x ^ ((x >> shift) & bits)) * factor
    return x


def step_key(seeds: Tensor, step: Tensor) -> Tensor:
    """(S, R) int32 keys of training steps from the runs' seeds (R,) and the steps' numbers (S, 1), both int32."""
    return _mix(_mix(seeds * 0x3C6EF35F) + step * 0x61C88647)


def salt(site: int) -> int:
    """What tells one place in the model from another."""
    return (site + 1) * 0x9E3779


def site_key(key: Tensor, site: int) -> Tensor:
    """(R,) key of one place in the model."""
    return _mix(_mix(key) + salt(site))


def own_site_key(key: int, site: int) -> int:
    """`site_key` of one run. Its dozen operations would each take longer than the arithmetic of a number."""
    for added in (0, salt(site)):
        key += added
        for shift, bits, factor in ROUNDS:
            key = (key ^ ((key >> shift) & bits)) * factor
            key = (key + 2**31) % 2**32 - 2**31  # as 32 bits overflow
    return key


def drop_threshold(drop: float) -> int:
    """The value of `_bits` under which an element is dropped, with probability `drop`."""
    return round(drop * 2**31)


def signed_threshold(drop: float) -> int:
    """The same for a hash that is known to have 32 bits, as it is: a signed integer."""
    return 2 * drop_threshold(drop) - 2**31


def keep_mask(key: Tensor, site: int, shape: Sequence[int], drop: float) -> Tensor:
    """Boolean mask of `shape` = (R, …): true with probability 1 − drop, independently for every element."""
    return _bits(key, site, shape) >= drop_threshold(drop)


def keep_factor(key: Tensor, site: int, shape: Sequence[int], drop: float, dtype: torch.dtype) -> Tensor:
    """`keep_mask` for a CPU, as what to multiply with: 0, or 1/(1 − drop)."""
    factor = torch.empty(tuple(shape), dtype=dtype)
    for row, own in zip(factor.view(len(key), -1), site_key(key, site).tolist(), strict=True):
        fill_kept(row, mask_tables(own, drop, len(row)), 0)
    return factor.mul_(1 / (1 - drop))


def mask_tables(own: int, drop: float, elements: int) -> list[Tensor]:
    """What `fill_kept` needs of a mask of so many elements, whose `site_key` is `own`.

    The number of an element is 2¹⁶ block + 2⁸ row + column. The first shift leaves the bits of row and column in places
    of their own, so that the first product is a sum: of what each row, (rows, 1), and the columns of each block,
    (blocks, 256), give.
    """
    numbers = torch.arange(256, dtype=torch.int32)
    blocks = torch.arange(-(-elements // 2**16), dtype=torch.int32)[:, None]
    low = blocks ^ (own ^ (own >> 16))
    of_rows = ((blocks << 16) ^ (own & -0x10000)) | ((numbers << 8) ^ (low & 0xFF00))
    of_columns = numbers ^ (low & 0xFF)
    (_, _, factor), (shift, bits, last_factor) = ROUNDS
    rest = torch.tensor([shift, bits, last_factor, signed_threshold(drop)], dtype=torch.int32)
    return [(of_rows * factor).view(-1, 1), of_columns * factor, *rest]


def fill_kept(out: Tensor, tables: list[Tensor], first: int) -> None:
    """Elements from `first` on of one run's `keep_mask` into `out`, flat and on a CPU: 1 or 0; can be part of a script.

    Passes over memory are what dropout costs there, so a block goes through all of them while it is in the cache.
    """
    of_rows, of_columns, shift, bits, factor, threshold = tables
    hashed = torch.empty([256, 256], dtype=torch.int32)
    moved = torch.empty_like(hashed)
    done = 0
    while done < len(out):
        row, skipped = (first + done) >> 8, (first + done) & 0xFF
        block = row >> 8
        end = min(((first + len(out) + 0xFF) >> 8), (block + 1) << 8)
        x, y = hashed[: end - row], moved[: end - row]
        torch.add(of_rows[row:end], of_columns[block], out=x)
        torch.bitwise_right_shift(x, shift, out=y)
        x.bitwise_xor_(y.bitwise_and_(bits)).mul_(factor).ge_(threshold)
        size = min(len(out) - done, ((end - row) << 8) - skipped)
        out[done : done + size] = x.view(-1)[skipped : skipped + size]
        done += size


def _bits(key: Tensor, site: int, shape: Sequence[int]) -> Tensor:
    """31 random bits for each element of `shape` = (R, …): int32, not negative.

    They come from the low 32 bits of the hash, which depend on nothing but the low 32 bits of what is hashed. Whoever
    compiles this may therefore count the elements in 64 bits: Inductor does where a size is a symbol, whatever dtype
    is asked for, and a mask by the sign of such a hash would drop every other element.
    """
    element = torch.arange(math.prod(shape[1:]), dtype=torch.int32, device=key.device)
    hashed = _mix(element ^ site_key(key, site)[:, None])
    return (((hashed >> 1) & 0x7FFFFFFF) ^ 0x40000000).view(tuple(shape))


def uniform(key: Tensor, site: int, shape: Sequence[int]) -> Tensor:
    """float32 numbers of `shape` = (R, …), uniform between 0 and 1 and never either."""
    return ((_bits(key, site, shape) >> 8).float() + 0.5) * 2.0**-23


def symmetric_beta(key: Tensor, site: int, shape: Sequence[int], alpha: float) -> Tensor:
    """float32 numbers of `shape` = (R, …) from Beta(α, α); draws at `site` and `site + 1`.

    ½ (1 + T/√(2α + T²)) with T of Student's distribution with 2α degrees of freedom, T = √(2α (U^(−1/α) − 1)) cos 2πV
    (Bailey, Mathematics of Computation 62, 1994): nothing is rejected, so the amount of work does not depend on luck.
    """
    w = uniform(key, site, shape) ** (1 / alpha)
    cosine = torch.cos(2 * math.pi * uniform(key, site + 1, shape))
    return 0.5 * (1 + cosine / torch.sqrt(w / (1 - w) + cosine**2))


def permutation(key: Tensor, site: int, shape: Sequence[int]) -> Tensor:
    """A random order of the last axis for each of (R, …, B): int64 indices."""
    return torch.argsort(_bits(key, site, shape), dim=-1, stable=True)
