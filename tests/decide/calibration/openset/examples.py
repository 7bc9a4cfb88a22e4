"""A source of a few classes, its statistics, and frames of the same classes and of none of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration import SourceStatistics
from pisa_capc.model.gaussian import fit_backend
from pisa_capc.model.inference.statistics import openset_statistics


class Scored(NamedTuple):
    embedding: np.ndarray  # (N, D)
    logits: np.ndarray  # (N, C)
    label: np.ndarray  # (N,) −1 for unknown
    carrier_hz: np.ndarray  # (N,)


class World:
    """Classes around random centres; unknown frames lie in directions of their own."""

    def __init__(self, classes: int = 4, features: int = 6, seed: int = 0, spread: float = 1.0) -> None:
        self._draw = generator(seed, "openset-example")
        self.weight = 2 * self._draw.normal(size=(classes, features))
        self.bias = self._draw.normal(size=classes)
        self._strange = 2 * self._draw.normal(size=(3, features))
        self._spread = spread
        self._carriers = generator(seed, "openset-carriers")
        self._known_hz, self._strange_hz = (1e3 * self._carriers.normal(size=n) for n in (classes, 3))

    def known(self, count: int) -> Scored:
        return self._around(self.weight, self._known_hz, count)

    def unknown(self, count: int) -> Scored:
        return self._around(self._strange, self._strange_hz, count)._replace(label=np.full(count, -1))

    def _around(self, centres: np.ndarray, carriers_hz: np.ndarray, count: int) -> Scored:
        label = np.arange(count) % len(centres)
        z = centres[label] + self._spread * self._draw.normal(size=(count, centres.shape[1]))
        carrier_hz = carriers_hz[label] + 100 * self._carriers.normal(size=count)
        return Scored(z, z @ self.weight.T / 4 + self.bias, label, carrier_hz)

    def source(self, train: int = 400, validation: int = 200) -> SourceStatistics:
        seen, held_out = self.known(train), self.known(validation)
        frames = (seen.embedding, seen.label, held_out.embedding, held_out.logits, held_out.label)
        carriers = seen.carrier_hz, held_out.carrier_hz
        found = openset_statistics(*frames, *(_where(part.label) for part in (seen, held_out)), *carriers)
        place = _where(seen.label) @ [2, 1]
        backend = fit_backend(seen.embedding, None, seen.label, place, [str(k) for k in range(len(self.weight))])
        return SourceStatistics(
            weight=self.weight / 4,
            bias=self.bias,
            device_mean=np.stack([device.mean for device in backend.devices.values()]),
            device_error=np.stack([device.error for device in backend.devices.values()]),
            frame_spread=backend.frame,
            place_spread=backend.place,
            **{name: value.numpy() for name, value in found.items()},
        )


def _where(label: np.ndarray) -> np.ndarray:
    """Frames of every class in turn in four captures of two places."""
    turn = np.zeros(len(label), dtype=np.int64)
    for k in np.unique(label):
        turn[label == k] = np.arange((label == k).sum())
    return np.column_stack([turn % 2, turn // 2 % 2])
