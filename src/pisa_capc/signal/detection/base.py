"""What a detector finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.phy import Header
from pisa_capc.signal.phy.wifi import Front


@dataclass(frozen=True, eq=False)
class Detection:
    """One frame in a stream.

    start: its first preamble sample, counted from the stream's beginning. iq: (A, T) samples from there on, as
    received.
    cfo_hz, snr_db: (A,) of each antenna. quality: 0 … 1, how much of the preamble's energy the known preamble explains.
    samples: of the whole frame, where its header says it. front: what was read of a Wi-Fi frame to know that.
    turn_hz: how much faster its samples turn than its carrier does: a chirp that begins between two samples.
    """

    start: int
    iq: NDArray[np.complex64]
    cfo_hz: NDArray[np.float64]
    snr_db: NDArray[np.float64]
    quality: float
    samples: int | None = None
    header: Header = field(default_factory=Header)
    front: Front | None = None
    turn_hz: float = 0.0


class Detector(Protocol):
    """Finds frames in a stream of samples, whatever the blocks it comes in."""

    def wanted(self, received: int) -> int:
        """Further samples that it would best be given at once, after so many of a stream."""
        ...

    def push(self, block: NDArray[Any]) -> list[Detection]:
        """The frames that are complete with these (A, n) further samples; bytes, of a detector that takes them."""
        ...

    def finish(self) -> list[Detection]:
        """The frames of which the end of the stream has only a part, from their whole preamble on."""
        ...
