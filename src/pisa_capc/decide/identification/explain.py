"""Why a frame is, or is not, from a device: its measurements beside those of the device, in readable form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.methods.closed_form import FlawsInClosedForm
from pisa_capc.signal.measurement.quantities import Quantity, quantities

Real = NDArray[np.floating[Any]]
Readings = dict[str, Quantity]


class Explainer:
    """Explains the decisions of a model that measures flaws; for any other model there is nothing to say.

    devices: by name, what the frames of each are like, in any place.
    """

    def __init__(self, trained: TrainedModel) -> None:
        network = getattr(trained.model, "network", trained.model)  # behind another engine
        self._network = network if isinstance(network, FlawsInClosedForm) else None
        self.devices: dict[str, Readings] = {}
        if self._network is not None:
            self._backend = self._network.backend
            spread = self._backend.frame + self._backend.place
            for number, device in self._backend.devices.items():
                self.devices[trained.devices[int(number)]] = self._readings(device.mean, device.error + spread)

    @property
    def quantities(self) -> dict[str, str]:
        """Names and units."""
        return {name: one.unit for name, one in next(iter(self.devices.values()), {}).items()}

    def measured(self, embedding: Real, error: Real | None) -> Readings:
        """Measurements of the frames of one sender together, (N, D) with errors (N, D, D); {} for nothing."""
        if self._network is None or error is None:
            return {}
        good = np.isfinite(error).all(axis=(1, 2))
        if not good.any():
            return {}
        value, own = self._network.in_own_units(embedding[good], error[good])
        together = self._backend.evidence(value, own).pooled(np.zeros(len(value), dtype=np.int64))
        assert together.own is not None, "pooling gives an error"
        return self._readings(together.value[0], together.own[0])

    def reason(self, embedding: Real, error: Real | None, device: str, beside: str | None = None) -> str | None:
        """The quantity in which frames of one sender and a device differ most, by their intervals.

        beside: another device; then the quantity in which the two devices differ most, with both. That says why frames
        are of the one and not of the other.

        >>> explainer.reason(embedding, error, "door-7")                                        # doctest: +SKIP
        'image rejection 38.9 ± 0.4 dB; door-7 has 29.4 ± 0.6 dB'
        """
        if device not in self.devices or not (own := self.measured(embedding, error)):
            return None
        one, other = self.devices[device], own if beside is None else self.devices.get(beside, own)
        name = max(own, key=lambda name: _apart(one[name], other[name]))
        also = f", {beside} has {other[name]}" if other is not own else ""
        return f"{name} {own[name]}; {device} has {one[name]}{also}"

    def _readings(self, value: Real, covariance: Real) -> Readings:
        assert self._network is not None
        return {one.name: one for one in quantities(*self._network.by_name(value, covariance))}


def _apart(one: Quantity, other: Quantity) -> float:
    """How far apart two values are by their intervals; those that nothing bounds come last."""
    half, off = math.hypot(one.high - one.low, other.high - other.low) / 2, abs(one.value - other.value)
    if one.unit == "°":
        off = min(off, abs(360 - off))
    return off / half if math.isfinite(half) and half > 0 else -1.0
