"""A frame to look at: its samples, its spectrum, and where it lies among the devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.model.inference import SourceStatistics

SAMPLES = 640  # of I and Q that are shown one by one
ENVELOPE = 400  # points of a whole frame
BINS = 128  # of a spectrum
FLOOR_DB = -120.0


@dataclass(frozen=True, eq=False)
class PlaneProjection:
    """The two directions in which the source's embeddings differ most: z → (z − mean) axes.

    mean: (D,). axes: (D, 2). devices: (C, 2) where the mean of each device is. bank: (B, 2) some of its frames.
    explained: share of the variance that is seen.
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    devices: NDArray[np.float64]
    bank: NDArray[np.float64]
    explained: float

    def of(self, embedding: NDArray[np.floating[Any]]) -> tuple[float, float]:
        x, y = (np.asarray(embedding, dtype=np.float64) - self.mean) @ self.axes
        return float(x), float(y)


def projection(statistics: SourceStatistics) -> PlaneProjection | None:
    """By the principal components of the bank, or of the devices' means; None where the model has neither."""
    means, bank = statistics.class_mean, statistics.bank
    if means is None:
        return None
    z = np.asarray(means if bank is None else bank, dtype=np.float64)
    centre = z.mean(axis=0)
    _, spread, directions = np.linalg.svd(z - centre, full_matrices=False)
    if len(directions) < 2:
        return None
    axes, energy = directions[:2].T, spread**2
    explained = float(energy[:2].sum() / energy.sum()) if energy.sum() > 0 else 1.0
    some = np.empty((0, 2)) if bank is None else (z - centre) @ axes
    return PlaneProjection(centre, axes, (np.asarray(means, dtype=np.float64) - centre) @ axes, some, explained)


def waveform(iq: NDArray[np.complex64]) -> dict[str, Any]:
    """I and Q (A, n) of the beginning; of all of it the magnitude, the largest in each of `ENVELOPE` parts."""
    scale = float(np.abs(iq).max(initial=0.0)) or 1.0
    first = iq[:, :SAMPLES] / scale
    edges = np.unique(np.linspace(0, iq.shape[1], ENVELOPE + 1).astype(int))[:-1]
    envelope = np.maximum.reduceat(np.abs(iq) / scale, edges, axis=1)
    return {"i": _plain(first.real, 4), "q": _plain(first.imag, 4), "envelope": _plain(envelope, 4), "scale": scale}


def spectrum_db(iq: NDArray[np.complex64]) -> list[list[float]]:
    """(A, BINS) power by frequency, the lowest first, in dB below the strongest: Welch's mean of Hann windows."""
    length = min(BINS, iq.shape[1])
    pieces = np.lib.stride_tricks.sliding_window_view(iq, length, axis=1)[:, :: length // 2 or 1]
    power = (np.abs(np.fft.fft(pieces * np.hanning(length), axis=2)) ** 2).mean(axis=1)
    power = np.fft.fftshift(power, axes=1)
    return _plain(np.maximum(10 * np.log10(power / (power.max() or 1.0) + 1e-30), FLOOR_DB), 2)


def _plain(values: NDArray[np.floating[Any]], digits: int) -> list[list[float]]:
    return [[round(float(value), digits) for value in row] for row in np.nan_to_num(values)]
