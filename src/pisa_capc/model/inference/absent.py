"""Frames that miss antennas, as a frozen model is to see them.

An antenna is absent from a frame where all its samples are exactly zero, which no receiver's noise gives, or where it
is named. In training the perturbed views lose antennas of frames whose power was made one before; so here the mean
power of the antennas that are there is one, and the absent ones are zero and masked in the model. What is derived from
the CFO comes from the antennas that are there. A frame that misses none is what `model_input` makes of it, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.descriptors import cfo_descriptors
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.model.inference.inputs import bad_frame, unit_power


def check_missing(missing: Sequence[int], antennas: int) -> None:
    """Refuse antennas that the array does not have, and all of them."""
    if unknown := [antenna for antenna in missing if not 0 <= antenna < antennas]:
        raise ConfigError(
            f"missing antenna {unknown[0]}: expected 0 to {antennas - 1}, the numbers of this array's antennas."
        )
    if len(set(missing)) == antennas:
        raise ConfigError(f"missing antennas: all {antennas} are named, and no frame has one left. Name fewer.")


def available_input(
    frames: UnlabelledFrames, missing: Sequence[int] = ()
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """What a frozen model sees of the frames, (N, A, T, 2), and which antennas are there, (N, A)."""
    iq = frames.iq
    if missing:
        iq = iq.copy()
        iq[:, list(missing)] = 0  # NaN included
    present: NDArray[np.bool_] = np.any(iq, axis=2)
    if not (some := np.any(present, axis=1)).all():
        but = f" on every antenna but the missing {', '.join(map(str, missing))}" if missing else ""
        raise bad_frame(frames, some, f"has no antenna left: it is zero in its first {frames.samples} samples{but}")
    seen = unit_power(frames, iq)
    if not present.all():
        seen *= np.sqrt(present.mean(axis=1, dtype=np.float32))[:, None, None, None]
    return seen, present


def available_descriptors(
    frames: UnlabelledFrames, descriptor: NDArray[np.float32], present: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """The descriptors (N, 4) of the frames; of a frame that misses antennas, from the CFO of those it has."""
    found = descriptor.copy()
    incomplete = np.flatnonzero(~present.all(axis=1))
    for antennas in np.unique(present[incomplete], axis=0):
        rows = incomplete[(present[incomplete] == antennas).all(axis=1)]
        found[rows] = cfo_descriptors(frames.select(rows), antennas)
    return found


def available_mean(values: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean over the antennas that are there, (N, A) → (N,)."""
    mean: NDArray[np.float64] = values.mean(axis=1)
    if present.all():
        return mean
    incomplete = ~present.all(axis=1)
    mean[incomplete] = values[incomplete].mean(axis=1, where=present[incomplete])
    return mean
