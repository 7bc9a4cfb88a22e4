"""Why a frame is, or is not, from a device: its measurements beside those of the device, in readable form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.methods.closed_form import FlawsInClosedForm
from pisa_capc.signal.measurement.fit import SUSPECTED
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
        self._names = trained.devices
        if self._network is not None:
            self._backend = self._network.backend
            spread = self._backend.frame + self._backend.place
            for number, device in self._backend.devices.items():
                self.devices[trained.devices[int(number)]] = self._readings(device.mean, device.error + spread)

    @property
    def flaws(self) -> tuple[str, ...]:
        """Those that are measured and are an identity."""
        return () if self._network is None else self._network.identity

    def regions(self) -> dict[str, tuple[Real, Real]]:
        """Of each device the mean (2J,) of its flaws, real parts first, and its covariance in any place (2J, 2J)."""
        if self._network is None:
            return {}
        known = self._backend.devices.items()
        return {self._names[int(number)]: (own.mean, own.error + self._backend.place) for number, own in known}

    def values(self, embedding: Real, error: Real) -> tuple[Real, Real]:
        """(N, 2J) flaws of frames as measured, and their errors (N, 2J, 2J)."""
        assert self._network is not None
        return self._network.in_own_units(embedding, error)

    def nearest(self, device: str) -> tuple[str, str] | None:
        """The device that frames of one are most easily taken for, and the quantity that separates the two best."""
        own, others = self.regions(), [name for name in self.devices if name != device]
        if not others:
            return None
        mean, spread = own[device]

        def apart(name: str) -> float:
            off = own[name][0] - mean
            return float(off @ np.linalg.solve(spread + own[name][1] + self._backend.frame, off))

        other = min(others, key=apart)
        one, two = self.devices[device], self.devices[other]
        name = max(one, key=lambda name: _apart(one[name], two[name]))
        return other, f"{name}: {one[name]}; {other} has {two[name]}"

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

    def reason(
        self,
        embedding: Real,
        error: Real | None,
        device: str,
        beside: str | None = None,
        fit: float | None = None,
    ) -> str | None:
        """The quantity in which frames of one sender and a device differ most, by their intervals.

        beside: another device; then the quantity in which the two devices differ most, with both. That says why frames
        are of the one and not of the other. fit: of a single frame; one that does not fit is named.

        >>> explainer.reason(embedding, error, "door-7")                                        # doctest: +SKIP
        'image rejection 38.9 ± 0.4 dB; door-7 has 29.4 ± 0.6 dB'
        """
        if device not in self.devices or not (own := self.measured(embedding, error)):
            return None
        one, other = self.devices[device], own if beside is None else self.devices.get(beside, own)
        name = max(own, key=lambda name: _apart(one[name], other[name]))
        also = f", {beside} has {other[name]}" if other is not own else ""
        misfit = "" if fit is None or not fit < SUSPECTED else f"; does not fit the waveform (p {fit:.1g})"
        return f"{name} {own[name]}; {device} has {one[name]}{also}{misfit}"

    def _readings(self, value: Real, covariance: Real) -> Readings:
        assert self._network is not None
        return {one.name: one for one in quantities(*self._network.by_name(value, covariance))}


def _apart(one: Quantity, other: Quantity) -> float:
    """How far apart two values are by their intervals; those that nothing bounds come last."""
    half, off = math.hypot(one.high - one.low, other.high - other.low) / 2, abs(one.value - other.value)
    if one.unit == "°":
        off = min(off, abs(360 - off))
    return off / half if math.isfinite(half) and half > 0 else -1.0
