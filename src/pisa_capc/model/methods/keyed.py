"""On-off keyed frames in closed form: devices by their pulses, where no waveform is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.model.methods.closed_form import KEYED, ClosedForm
from pisa_capc.signal.measurement.keyed import FEWEST, QUANTITIES, KeyedEstimator

LOOKED_AT = 32  # frames of a source, by which it is told whether frames are keyed
MOST = 0.9  # part of them that must be

Real = NDArray[np.floating[Any]]


def keyed_estimator(waveform: str, sample_rate_hz: float) -> KeyedEstimator:
    """As a setting names it.

    >>> keyed_estimator("keyed:without=offset", 250e3).names
    ('chirp', 'bend', 'pulse', 'short', 'long')
    """
    _, colon, text = waveform.partition(":")
    key, _, names = text.partition("=")
    if colon and (key != "without" or not names):
        raise ConfigError(
            f"waveform {waveform!r}: expected {KEYED}, or what it leaves out, as {KEYED}:without=offset; there are "
            f"{', '.join(QUANTITIES)}."
        )
    return KeyedEstimator(sample_rate_hz, tuple(filter(None, names.split("+"))))


def share_keyed(frames: UnlabelledFrames, estimator: KeyedEstimator) -> float:
    """Part of some frames, evenly spread, whose pulses can be measured."""
    rows = np.unique(np.linspace(0, len(frames) - 1, LOOKED_AT).astype(int))
    found = [estimator.measure(frames.select(rows[k : k + 1]).iq).pulses[0] for k in range(len(rows))]
    return float(np.mean(np.array(found) > 0))


def check_keyed(frames: UnlabelledFrames, estimator: KeyedEstimator) -> None:
    """Refuse frames that do not hold pulses with silence between them."""
    share = share_keyed(frames, estimator)
    if share < MOST:
        raise DataError(
            f"closed form: no preamble is known at {frames.sample_rate_hz:g} samples/s, and {1 - share:.0%} of the "
            f"frames do not hold {FEWEST} on-off keyed pulses that it could measure. Cut frames that hold whole "
            "messages (`pisa import iq --waveform burst:gap=…,max=…`), name their waveform, or train another "
            "method."
        )


class KeyedInClosedForm(ClosedForm):
    """Of on-off keyed frames: offset, chirp and timing of the pulses (`signal.measurement.keyed`).

    unit: (d,) what a measurement is divided by, so that hertz and seconds can stand in one covariance: the
    standard deviation of a device's frames.
    """

    measures = "on-off keyed pulses"
    keeps_offset = True
    unit: torch.Tensor

    def __init__(self, estimator: KeyedEstimator, classes: int, runs: int = 1) -> None:
        super().__init__(len(estimator.names), classes, runs)
        self.estimator = estimator
        self.register_buffer("unit", torch.ones(len(estimator.names), dtype=torch.float64))

    def measured(self, iq: NDArray[np.complexfloating[Any, Any]], there: Any = None) -> tuple[Real, Real]:
        found = self.estimator.measure(iq, there)
        unit = self.unit.cpu().numpy()
        return found.value / unit, found.covariance / np.multiply.outer(unit, unit)

    @property
    def can_measure(self) -> bool:
        return bool((self.unit > 0).all() and self.unit.isfinite().all())

    def fit(self, frames: Frames) -> None:
        self.unit.fill_(1)
        value, _, good = self._all_measured(frames)
        value, group = value[good], np.unique(frames.device[good], return_inverse=True)[1]
        means = np.stack([value[group == k].mean(axis=0) for k in range(group.max(initial=-1) + 1)])
        spread = np.sqrt(np.mean((value - means[group]) ** 2, axis=0))
        self.unit.copy_(torch.from_numpy(np.maximum(spread, 1e-6 * np.abs(means).max(axis=0))))
        super().fit(frames)
