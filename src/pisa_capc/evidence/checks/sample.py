"""Which frames are looked at: some of each recording, two neighbours at a time, from its beginning to its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.frames import Frames, groups_of

MOST = 800_000  # frames × antennas of a whole set; of more recordings fewer frames each are looked at


@dataclass(frozen=True, eq=False)
class Sample:
    """Positions among the frames, recording by recording and in time order.

    recording: (N,) which one. third: (N,) 0, 1 or 2, of the recording. neighbour: (N,) whether it is the second of two.
    """

    position: NDArray[np.intp]
    recording: NDArray[np.int64]
    third: NDArray[np.int64]
    neighbour: NDArray[np.bool_]


def draw_sample(frames: Frames, each: int) -> Sample:
    """Up to `each` frames of every recording: pairs of neighbours, evenly spread."""
    recordings = groups_of(frames)
    each = max(2, min(each, MOST // (frames.antennas * len(recordings))))
    parts = []
    for r, members in enumerate(recordings):
        in_time = members[np.argsort(frames.frame[members], kind="stable")]
        chosen = spread_pairs(len(members), each)
        third = np.minimum(3 * chosen // len(members), 2)
        parts.append((in_time[chosen], np.full(len(chosen), r), third, np.arange(len(chosen)) % 2 == 1))
    return Sample(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def spread_pairs(length: int, most: int) -> NDArray[np.int64]:
    """Times of pairs (2s, 2s + 1), evenly spread over 0 … length − 1; all times where there are no more than `most`.

    >>> spread_pairs(100, 6)
    array([ 0,  1, 48, 49, 98, 99])
    """
    if length <= most:
        return np.arange(length)
    first = 2 * np.linspace(0, length // 2 - 1, most // 2).astype(np.int64)
    return np.stack([first, first + 1], axis=1).ravel()
