"""802.11 frames in a stream: a fast screen for the L-STF, then the whole preamble where the screen says so.

chunk        samples that are held, and a stretch of them, decoded or not
background   what is between the frames, where it is louder, and the filter against carriers and DC
screen       where an L-STF may be
preamble     first sample, frequency offsets, signal-to-noise ratios, how well it fits
detector     a stream in chunks, and the frames that are still coming in
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.detection.base import Detector, FoundFrame
from pisa_capc.signal.detection.finders import Finder, register_finder
from pisa_capc.signal.detection.wifi.detector import AHEAD, LONGEST, WifiDetector
from pisa_capc.signal.phy.wifi import rebuild, receive
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding

__all__ = ["WifiDetector", "WifiFinder", "with_headers"]


def with_headers(found: Sequence[FoundFrame], *, header_only: bool = False) -> list[FoundFrame]:
    """The same frames with what they say of themselves; header_only: no further than their addresses."""
    known = [one.front for one in found]
    headers = receive([one.iq for one in found], [one.cfo_hz for one in found], header_only=header_only, known=known)
    return [replace(one, header=header) for one, header in zip(found, headers, strict=True)]


@register_finder("wifi")
class WifiFinder(Finder):
    """Samples are decoded no further than they must be; a long recording is shared among processes."""

    takes_bytes = in_parts = True
    ahead, longest = AHEAD, LONGEST

    def detector(
        self, about: About, encoding: Encoding | None = None, first: int = 0, end: int | None = None
    ) -> Detector:
        return WifiDetector(about.antennas, encoding=encoding, first=first, end=end)

    def with_headers(self, found: Sequence[FoundFrame], addresses_only: bool = False) -> list[FoundFrame]:
        return with_headers(found, header_only=addresses_only)

    def sent(self, found: Sequence[FoundFrame], about: About) -> list[NDArray[np.complex128] | None]:
        return rebuild([one.iq for one in found], [one.cfo_hz for one in found])
