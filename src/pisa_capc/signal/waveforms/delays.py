"""A known waveform behind every short channel: its delayed copies, and the space that they span.

Every estimate of a preamble's channel is made in this space: the measurement of flaws, the sounding of rooms
in `check`, the search for a preamble in `methods`, the informed receiver in `limit`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Complex = NDArray[np.complexfloating[Any, Any]]


def delayed_copies(x: Complex, samples: int, before: int, after: int) -> Complex:
    """(…, before + 1 + after, samples) x[n − l] of l = −before … after; x (…, S) is silent outside what is given.

    >>> delayed_copies(np.array([1, 2, 3]), samples=3, before=1, after=1)
    array([[2, 3, 0],
           [1, 2, 3],
           [0, 1, 2]])
    """
    known = x[..., : samples + before]
    edges = [(0, 0)] * (x.ndim - 1) + [(after, samples + before - known.shape[-1])]
    return sliding_window_view(np.pad(known, edges), samples, axis=-1)[..., ::-1, :]


def orthonormal(columns: Complex, tolerance: float) -> Complex:
    """(T, r) a basis of (T, L) columns, without what is below `tolerance` of their largest singular value."""
    vectors, values, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(vectors[:, values > tolerance * values[0]])
