"""What a model sees of frames: I/Q at unit mean power, as reals; frames that no model can use are named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.data.samples import normalise_power, power_scale


def model_input(frames: UnlabelledFrames) -> NDArray[np.float32]:
    """What a model sees: I/Q at unit mean power as reals, (N, A, T, 2)."""
    return unit_power(frames, frames.iq)


def unit_power(frames: UnlabelledFrames, iq: NDArray[np.complex64]) -> NDArray[np.float32]:
    """As `model_input`, of I/Q that was read already."""
    with _naming_bad_frames(frames, iq):
        iq = normalise_power(iq)
    return iq.view(np.float32).reshape(*iq.shape, 2)


def input_scale(frames: UnlabelledFrames) -> NDArray[np.float64]:
    """(N,) what `model_input` multiplies the I/Q of each frame with."""
    iq = frames.iq
    with _naming_bad_frames(frames, iq):
        return power_scale(iq)


@contextmanager
def _naming_bad_frames(frames: UnlabelledFrames, iq: NDArray[np.complex64]) -> Iterator[None]:
    if not np.isfinite(iq.view(np.float32)).all():
        raise bad_frame(frames, np.isfinite(iq).all(axis=(1, 2)), "holds NaN or infinite samples")
    try:
        yield
    except DataError as error:
        raise bad_frame(frames, iq.any(axis=(1, 2)), f"is zero in its first {frames.samples} samples") from error


def bad_frame(frames: UnlabelledFrames, good: ArrayLike, what: str) -> DataError:
    i = int(np.argmin(good))  # the first that is not
    names = [frames.environments[frames.environment[i]], frames.captures[frames.capture[i]]]
    if isinstance(frames, Frames):  # frames of a target do not say whose they are
        names.insert(1, frames.devices[frames.device[i]])
    return DataError(f"frame {frames.frame[i]} of {'/'.join(names)} {what}. Make or import the set without it.")
