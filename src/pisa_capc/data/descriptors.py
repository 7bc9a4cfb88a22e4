"""The acquisition-dynamics descriptor d ∈ R⁴ of each frame: how its recording's CFO varies around it.

With c[t, a] the CFO in Hz of frame t on antenna a of one recording, and the trailing window
W(t) = {max(0, t − 31), …, t},

    d₁(t) = std_a c[t, a]                                     current inter-antenna spread
    d₂(t) = mean_{u ∈ W(t)} std_a c[u, a]                     local inter-antenna spread
    d₃(t) = mean_a std_{u ∈ W(t)} c[u, a]                     local temporal spread
    d₄(t) = mean_a std_{u−1, u ∈ W(t)} (c[u, a] − c[u−1, a])  local first-difference spread

with the population standard deviation (a single value spreads 0; where W holds no difference, d₄ = 0). Each is then
clipped at 200 kHz, divided by 1 kHz and compressed by log(1 + ·). The window never looks ahead, so a stream gives the
same numbers; and it is of the recording, not of the selection: leaving frames out changes no other frame's descriptor.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import UnlabelledFrames

WINDOW = 32  # frames
CLIP_HZ = 200e3
SCALE_HZ = 1e3
NAMES = ("inter-antenna", "local inter-antenna", "local temporal", "local first difference")

_BLOCK = 4096  # windows held in memory at a time


def cfo_descriptors(frames: UnlabelledFrames, antennas: NDArray[np.bool_] | None = None) -> NDArray[np.float32] | None:
    """(N, 4) descriptors of the frames, or None where no CFO was recorded.

    antennas: (A,) those whose CFO counts; by default all.
    """
    out = np.empty((len(frames), 4), dtype=np.float32)
    for trace in frames.source.cfo_traces(frames.rows):
        if trace.cfo_hz is None:
            return None
        cfo_hz = trace.cfo_hz if antennas is None else trace.cfo_hz[:, antennas]
        out[trace.where] = descriptors_of_trace(cfo_hz)[trace.position]
    return out


def descriptors_of_trace(cfo_hz: ArrayLike, window: int = WINDOW) -> NDArray[np.float64]:
    """(n, 4) descriptors of one recording's CFO (n, A) in Hz, in time order.

    >>> descriptors_of_trace([[0.0, 2000.0], [0.0, 2000.0]]).round(4)  # two antennas 2 kHz apart, steady
    array([[0.6931, 0.6931, 0.    , 0.    ],
           [0.6931, 0.6931, 0.    , 0.    ]])
    """
    c = np.asarray(cfo_hz, dtype=np.float64)
    if c.ndim != 2:
        raise DataError(f"CFO trace: expected (frames, antennas) in Hz, found shape {c.shape}.")
    found = np.empty((len(c), 4))
    short = min(window - 1, len(c))
    found[:short] = _compress(_first_spreads(c[:short]))
    for start in range(short, len(c), _BLOCK):
        found[start : start + _BLOCK] = _compress(_spreads(c[start - window + 1 : start + _BLOCK], window))
    return found


def newest_descriptor(cfo_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """(…, 4) descriptor of the last frame of windows, whose CFO is (…, n, A) in Hz."""
    across, antennas = _std(cfo_hz, -1), cfo_hz.shape[-1]
    over_time = _std(cfo_hz, -2).sum(axis=-1) / antennas
    changes = cfo_hz[..., 1:, :] - cfo_hz[..., :-1, :]
    steps = _std(changes, -2).sum(axis=-1) / antennas if changes.shape[-2] else np.zeros_like(over_time)
    mean_across = across.sum(axis=-1) / across.shape[-1]
    return _compress(np.stack([across[..., -1], mean_across, over_time, steps], axis=-1))


def _std(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """As `np.std`, to the bit; of a few numbers that takes twice as long."""
    count = values.shape[axis]
    off = values - values.sum(axis=axis, keepdims=True) / count
    return np.asarray(np.sqrt((off * off).sum(axis=axis) / count))


def _spreads(cfo_hz: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """(n − window + 1, 4) spreads d₁…d₄ in Hz of every whole window of a trace (n, A)."""
    across = cfo_hz.std(axis=1)
    out = np.zeros((len(cfo_hz) - window + 1, 4))
    out[:, 0] = across[window - 1 :]
    out[:, 1] = sliding_window_view(across, window).mean(axis=-1)
    out[:, 2] = sliding_window_view(cfo_hz, window, axis=0).std(axis=-1).mean(axis=1)
    if window > 1:
        steps = np.diff(cfo_hz, axis=0)
        out[:, 3] = sliding_window_view(steps, window - 1, axis=0).std(axis=-1).mean(axis=1)
    return out


def _first_spreads(cfo_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, 4) spreads d₁…d₄ in Hz of the first frames of a trace, (n, A), whose windows begin with the trace."""
    across = cfo_hz.std(axis=1)
    out = np.zeros((len(cfo_hz), 4))
    out[:, 0] = across
    out[:, 1] = np.cumsum(across) / np.arange(1, len(across) + 1)
    out[:, 2] = _std_so_far(cfo_hz).mean(axis=1)
    out[1:, 3] = _std_so_far(np.diff(cfo_hz, axis=0)).mean(axis=1)
    return out


def _std_so_far(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, A) standard deviation of rows 0 … t of `values` (n, A), for every t."""
    so_far = np.tri(len(values))[:, :, None]
    count = np.arange(1, len(values) + 1)[:, None]
    off = so_far * (values - (np.cumsum(values, axis=0) / count)[:, None])
    return np.asarray(np.sqrt((off * off).sum(axis=1) / count))


def _compress(spread_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log1p(np.minimum(spread_hz, CLIP_HZ) / SCALE_HZ)
