"""What a frozen model reads: frames as it saw them in training, those that miss antennas, batches read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.descriptors import cfo_descriptors
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
    """The input of a frozen model, (N, A, T, 2), and which antennas are present, (N, A)."""
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
    """Mean over the antennas present, (N, A) → (N,)."""
    mean: NDArray[np.float64] = values.mean(axis=1)
    if present.all():
        return mean
    incomplete = ~present.all(axis=1)
    mean[incomplete] = values[incomplete].mean(axis=1, where=present[incomplete])
    return mean


AHEAD = 3  # batches that are ready or being read while one is in use

Item = TypeVar("Item")
Batch = TypeVar("Batch")


def read_ahead(read: Callable[[Item], Batch], items: Iterable[Item]) -> Generator[Batch, None, None]:
    """`read(item)` of each item in turn, by a thread that is at most `AHEAD` batches in front; a single one needs none.

    An error of `read` is raised where its batch would have come. The thread ends with the generator: when that is
    exhausted, closed or dropped, what has not been begun is not read any more.
    """
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from map(read, first)
        return
    reader = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
    waiting: deque[Future[Batch]] = deque()
    try:
        for item in chain(first, rest):
            waiting.append(reader.submit(read, item))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        reader.shutdown(wait=True, cancel_futures=True)
