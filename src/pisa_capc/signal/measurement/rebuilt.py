"""Frames that say what they are: each is measured against the whole waveform that its own bits make.

Where a waveform tells what a frame sent (`Waveform.rebuilt`), x is not the preamble alone. What is known grows from
there to the frame's end, and the error bars shrink with its root. A frame whose bits cannot be decided is not measured.
Frames of the same bits share an estimator.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.randomness import generator
from pisa_capc.signal.measurement.estimator import FlawEstimator, Measurement
from pisa_capc.signal.waveforms import Waveform

Complex = NDArray[np.complexfloating[Any, Any]]
KEPT = 256  # estimators of bits that were seen lately


class RebuiltEstimator(FlawEstimator):
    """`FlawEstimator` with an x for each frame. What is not measured of it (flaws, samples) is that of a typical frame.

    The residuals of frames with different bits have nothing in common: all is noise, and `sender` changes nothing.
    """

    own_x = True

    def __init__(self, waveform: Waveform, samples: int | None = None) -> None:
        super().__init__(waveform, samples, sent=typical(waveform, samples))
        self._stored = samples
        self._known: OrderedDict[bytes, FlawEstimator | None] = OrderedDict()

    def measure(
        self, iq: Complex, mask: NDArray[np.bool_] | None = None, sender: NDArray[np.int64] | None = None
    ) -> Measurement:
        """Measure frames (N, A, T or more), see `FlawEstimator.measure`."""
        there = np.broadcast_to(True if mask is None else mask, iq.shape[:2])
        heard = np.where((there & np.isfinite(iq).all(-1))[..., None], iq, 0)[..., : self._stored]
        alike: dict[int, tuple[FlawEstimator, list[int]]] = {}
        order = []
        for n, sent in enumerate(self.waveform.rebuilt(heard)):
            estimator = None if sent is None else self._estimator(sent)
            if estimator is not None:
                alike.setdefault(id(estimator), (estimator, []))[1].append(n)
        parts = []
        for estimator, rows in alike.values():
            parts.append(estimator.measure(iq[rows], there[rows]))
            order += rows
        unknown = np.setdiff1d(np.arange(len(iq)), order)
        parts.append(super().measure(iq[unknown], np.zeros((len(unknown), iq.shape[1]), dtype=bool)))
        return parts[0].joined(parts[1:]).select(np.argsort([*order, *unknown.tolist()]))

    def constants(self) -> dict[str, Tensor]:
        raise ConfigError(
            f"{self.waveform.title}: what a frame is measured against follows from its bits, so it is no fixed graph. "
            "Use the model itself, or train it on the preamble alone."
        )

    def _estimator(self, sent: Complex) -> FlawEstimator | None:
        """Of what a frame sent; None where that does not show all of the flaws."""
        key = sent.tobytes()
        if key not in self._known:
            found = FlawEstimator(self.waveform, self._stored, self.flaws, sent)
            self._known[key] = found if found.flaws == self.flaws else None
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]


def typical(waveform: Waveform, samples: int | None) -> NDArray[np.complex128] | None:
    """What a frame sends, with random content; None where too few samples of it are stored to tell."""
    draw = cache(lambda purpose: generator(0, "typical", waveform.name, purpose))
    return waveform.rebuilt(waveform.frames(1, draw)[:, None, :samples])[0]


def estimator_of(waveform: Waveform, samples: int | None = None) -> FlawEstimator:
    """What measures frames of a waveform, stored with `samples` samples, by all that is known of what they sent."""
    if waveform.rebuilds and typical(waveform, samples) is not None:
        return RebuiltEstimator(waveform, samples)
    return FlawEstimator(waveform, samples)
