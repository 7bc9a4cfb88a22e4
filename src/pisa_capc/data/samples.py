"""I/Q arrays (frames, antennas, samples): checks, and scaling to unit power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError


def power_scale(iq: NDArray[np.complex64]) -> NDArray[np.float64]:
    """(N,) what brings each frame to unit mean power, over all its antennas and samples: 1 / sqrt(mean |x|²)."""
    power: NDArray[np.float64] = np.mean(iq.real**2 + iq.imag**2, axis=(-2, -1), dtype=np.float64)
    if not (power > 0).all():
        bad = np.flatnonzero(~(power > 0))
        raise DataError(f"frame {bad[0]} has zero power ({len(bad)} such frames): remove it before normalising.")
    return 1 / np.sqrt(power)


def normalise_power(iq: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """Unit mean power of each frame; see `power_scale`."""
    parts = np.ascontiguousarray(iq).view(np.float32)
    # Multiplied in double precision and rounded once, as where only the scale is kept.
    scaled = np.empty_like(parts)
    np.multiply(parts, power_scale(iq)[:, None, None], out=scaled, dtype=np.float64, casting="same_kind")
    return scaled.view(np.complex64)


def check_samples(
    iq: NDArray[np.complexfloating[Any, Any]],
    cfo_hz: NDArray[np.floating[Any]] | None,
    where: str,
    first_frame: int = 0,
    place: Callable[[int], str] | None = None,
) -> None:
    """Refuse NaN, infinity and zero-power frames, naming the first frame; `where` starts the message.

    first_frame: the number of frame 0, where `iq` is a piece of a capture. place: where the user's file has a frame.
    """

    def name(bad: NDArray[np.bool_]) -> str:
        first = first_frame + int(np.flatnonzero(bad)[0])
        return f"frame {first}" if place is None else f"frame {first} ({place(first)})"

    parts = np.ascontiguousarray(iq).view(iq.real.dtype).reshape(len(iq), 2 * iq.shape[1] * iq.shape[2])
    power = np.einsum("nk,nk->n", parts, parts)
    if not np.isfinite(power).all():
        bad = name(~np.isfinite(power))
        raise DataError(f"{where}: {bad} holds NaN or infinite samples; expected finite I/Q. Remove the frame.")
    if not (power > 0).all():
        raise DataError(f"{where}: {name(power == 0)} has zero power; expected a received signal. Remove the frame.")
    if cfo_hz is not None and not np.isfinite(cfo_hz).all():
        bad = name(~np.isfinite(cfo_hz).all(axis=1))
        raise DataError(f"{where}: the CFO of {bad} is NaN or infinite; expected Hz. Repair or leave out the CFO.")
