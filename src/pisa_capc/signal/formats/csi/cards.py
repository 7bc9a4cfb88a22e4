"""What a card's module gives, so that `plan` need not know which card it is."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.formats.base import CsiOptions

Bytes = bytes | mmap.mmap


class Kind(NamedTuple):
    """What all frames of a dataset share.

    chains: receive chains by number, one antenna each. carrier_hz: None where the card does not say. layout: which
    subcarriers, where the bandwidth does not say.
    """

    chains: tuple[int, ...]
    bandwidth_mhz: int
    carrier_hz: float | None = None
    layout: str = ""


class FoundPacket(NamedTuple):
    """A frame: where its records begin in the file, one or one per antenna. sender: its address, six bytes or none."""

    places: tuple[int, ...]
    kind: Kind
    sender: bytes = b""


class BadPacket(NamedTuple):
    """A packet that cannot be used, where it begins, and why."""

    place: int
    why: str


class CsiCard:
    """One layout of channel state.

    `walk` checks every length and number of a packet; `read` may then trust what `walk` has found.
    """

    title: ClassVar[str]
    suffix: ClassVar[str]

    def __init__(self, how: CsiOptions) -> None:
        self.how = how

    def recognises(self, data: Bytes) -> bool:
        """Whether a file begins as this card's files do."""
        raise NotImplementedError

    def walk(self, data: Bytes) -> Iterator[FoundPacket | BadPacket]:
        """The frames of a file in their order, and what is wrong with packets that are none."""
        raise NotImplementedError

    def subcarriers(self, kind: Kind) -> NDArray[np.int64]:
        """(K,) numbers of the subcarriers that frames of this kind hold, ascending; 0 is the carrier."""
        raise NotImplementedError

    def read(self, data: Bytes, places: NDArray[np.int64], kind: Kind) -> NDArray[np.complex64]:
        """(n, A, K) channel state of frames that `walk` found; places (n, records)."""
        raise NotImplementedError


def both_sides(above: range) -> NDArray[np.int64]:
    """Subcarrier numbers from those above the carrier: as many below it."""
    numbers = np.asarray(above)
    return np.concatenate([-numbers[::-1], numbers])
