"""What launches have in common: how many programs, the types they compute in, dropout, and the sum of their shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from pisa_capc.model.stacked.noise import salt, signed_threshold
from pisa_capc.model.stacked.precision import product_dtype

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import Dropout

ROWS = 128  # rows of a tile; a tile of 128 × 32 channels fills a warp group without spilling
MULTIPROCESSORS = 132  # of a Hopper GPU
PROGRAMS = 8 * MULTIPROCESSORS
REGISTERS = 128  # of a thread, where more programs at a time are worth a few spilled values


def precision(x: Tensor) -> str:
    """How the products of tensors of this type are computed.

    Those of float32 in three parts, which keeps all but its last bits: as they are ("ieee"), they could not have the
    matrix units.
    """
    return "tf32x3" if x.dtype == torch.float32 else "tf32"


def programs(count: int, runs: int, each: int) -> int:
    """How many programs share the tiles of a run, where each multiprocessor has room for `each` of them."""
    return max(1, min(count, MULTIPROCESSORS * each // runs))


def fetches(x: Tensor) -> bool:
    """Whether kernels may fetch what they read next: by an instruction of NVIDIA's."""
    return x.is_cuda and torch.version.hip is None


def low_precision(x: Tensor) -> Tensor:
    """x in the type that autocast chose, or as it is."""
    return x.to(product_dtype(x)).contiguous()


class Drop(NamedTuple):
    """A dropout as the kernels take it: its place, the signed hash below which elements go, what makes up for it."""

    salt: int
    threshold: int
    inflate: float

    @classmethod
    def of(cls, dropout: Dropout) -> Drop:
        drop = dropout.probability if dropout.training else 0.0
        return cls(salt(dropout.site), signed_threshold(drop), 1 / (1 - drop))


def drop_key(x: Tensor, *dropouts: Dropout) -> tuple[Tensor, bool]:
    """The key of the dropouts, and whether any is at work."""
    key = next((d.key for d in dropouts if d.training and d.probability), None)
    return (x.new_zeros(1, dtype=torch.int32), False) if key is None else (key, True)


def summed(partial: Tensor, *parameters: Tensor) -> list[Tensor]:
    """The gradients of the parameters from the programs' shares (programs, all elements)."""
    pieces = partial.sum(0).split([p.numel() for p in parameters])
    return [piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)]
