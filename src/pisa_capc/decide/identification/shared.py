"""Do several devices send under one address: frames whose carriers are two, and whose fingerprints are two as well.

Two transmitters have two crystals. Where frames of one address come at two carriers in turn (`tracks`), either two
devices send them, or the carrier of one jumps. In the second case the fingerprint has no part in it: the strangeness
s_1 … s_n of the frames at one carrier and s'_1 … s'_m of those at the other are exchangeable, whatever the place is
like and however little the model knows. Then

    U = #{(i, j): s_i > s'_j}

has the distribution of Mann and Whitney (1947), and p is its chance of being as far from nm/2 as it is. No other frames
are needed, and no threshold but the level of the test.

Only frames from when both carriers were there are compared: a device that comes back elsewhere, with its crystal at
another temperature, is not two.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import mannwhitneyu

FEWEST = 5  # frames at each of two carriers: one measured wrongly now and then makes its frame strange as well
LOOK, NEWEST = 32, 256  # frames of an address from one look to the next, and frames that are looked at


class Shared(NamedTuple):
    """p: of one sender. frames: at the one carrier and at the other, those that were compared."""

    p: float
    frames: tuple[int, int]


def one_sender(track: Sequence[int], strange: ArrayLike) -> Shared | None:
    """The test of frames (N,) of one address in time order, by their tracks and how strange they are.

    Compared are the two tracks with most frames; None where there is one alone, or too little of the second.
    """
    common = [name for name, count in Counter(track).most_common(2) if count >= FEWEST]
    if len(common) < 2:
        return None
    own, score = np.asarray(track), np.asarray(strange, dtype=np.float64)
    both = np.arange(len(own)) >= max(int(np.argmax(own == name)) for name in common)
    one, other = (score[both & (own == name)] for name in common)
    if min(len(one), len(other)) < FEWEST:
        return None
    return Shared(float(mannwhitneyu(one, other).pvalue), (len(one), len(other)))


@dataclass(eq=False)
class Watched:
    """The same as frames come: a look at the newest after every 32, the i-th with two carriers at α / (i (i + 1)).

    These sum to α, the chance of ever finding two where there is one. looks: with two carriers, so far. found: by the
    last look.
    """

    alpha: float
    looks: int = 0
    found: bool = False
    _newest: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=NEWEST))
    _since: int = 0

    def push(self, track: int, strange: float) -> bool:
        """Whether two senders are found with the next frame that were not before."""
        self._newest.append((track, strange))
        self._since += 1
        if self._since < LOOK:
            return False
        self._since, before, result = 0, self.found, one_sender(*zip(*self._newest, strict=True))
        self.looks += result is not None
        self.found = result is not None and result.p <= self.alpha / (self.looks * (self.looks + 1))
        return self.found and not before
