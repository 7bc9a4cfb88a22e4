"""The Gaussian back-end by one large Gaussian over all values of all frames: no sums, no pooling, no iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

Array = NDArray[Any]


def joint(error: Array, place: Sequence[int], frame_spread: Array, place_spread: Array) -> Array:
    """(N d, N d) covariance of N frames of one device about its mean: S + R_n each, and P between those of a place."""
    frames, size = len(error), len(frame_spread)
    whole = np.zeros((frames * size, frames * size))
    for n in range(frames):
        for m in range(frames):
            block = place_spread * (place[n] == place[m]) + (frame_spread + error[n]) * (n == m)
            whole[n * size : (n + 1) * size, m * size : (m + 1) * size] = block
    return whole


def device_from(value: Array, error: Array, place: Sequence[int], frame_spread: Array, place_spread: Array) -> Any:
    """Mean of a device and its covariance: generalised least squares over all values at once."""
    size = value.shape[1]
    weight = np.linalg.inv(joint(error, place, frame_spread, place_spread))
    design = np.tile(np.eye(size), (len(value), 1))
    covariance = np.linalg.inv(design.T @ weight @ design)
    return covariance @ design.T @ weight @ value.ravel(), covariance


def log_likelihood(value: Array, mean: Array, uncertain: Array, error: Array, frame: Array, place: Array) -> float:
    """Of all frames (N, d) of one sender in one place, together."""
    frames = len(value)
    covariance = joint(error, [0] * frames, frame, place) + np.kron(np.ones((frames, frames)), uncertain)
    return float(multivariate_normal.logpdf(value.ravel(), np.tile(mean, frames), covariance))
