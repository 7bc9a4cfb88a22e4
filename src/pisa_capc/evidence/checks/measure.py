"""One pass over the samples: the few numbers of each frame that the checks need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.randomness import generator
from pisa_capc.data.frames import Frames, groups_of
from pisa_capc.data.store.dataset import AS_REPORTED, COMMON
from pisa_capc.evidence.checks.sounding import Sounder, choose_sounder, energy
from pisa_capc.signal.measurement.front_end import front_end_for, through

MOST = 800_000  # frames × antennas of a whole set; of more recordings fewer frames each are looked at


@dataclass(frozen=True, eq=False)
class SetSample:
    """Positions among the frames, recording by recording and in time order.

    recording: (N,) which one. third: (N,) 0, 1 or 2, of the recording. neighbour: (N,) whether it is the second of two.
    """

    position: NDArray[np.intp]
    recording: NDArray[np.int64]
    third: NDArray[np.int64]
    neighbour: NDArray[np.bool_]


def draw_sample(frames: Frames, each: int) -> SetSample:
    """Up to `each` frames of every recording: pairs of neighbours, evenly spread."""
    recordings = groups_of(frames)
    each = max(2, min(each, MOST // (frames.antennas * len(recordings))))
    parts = []
    for r, members in enumerate(recordings):
        in_time = members[np.argsort(frames.frame[members], kind="stable")]
        chosen = spread_pairs(len(members), each)
        third = np.minimum(3 * chosen // len(members), 2)
        parts.append((in_time[chosen], np.full(len(chosen), r), third, np.arange(len(chosen)) % 2 == 1))
    return SetSample(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def spread_pairs(length: int, most: int) -> NDArray[np.int64]:
    """Times of pairs (2s, 2s + 1), evenly spread over 0 … length − 1; all times where there are no more than `most`.

    >>> spread_pairs(100, 6)
    array([ 0,  1, 48, 49, 98, 99])
    """
    if length <= most:
        return np.arange(length)
    first = 2 * np.linspace(0, length // 2 - 1, most // 2).astype(np.int64)
    return np.stack([first, first + 1], axis=1).ravel()


MOST_SAMPLES = 1024  # looked at of a frame
PIECE_SAMPLES = 2**22  # complex samples in memory at once, 32 megabytes
SOME = 256  # frames by which it is decided how channels are estimated
MARKS = 6  # random projections by which copies are found
COPY = 1e-6  # 1 − |ρ|² of two antennas or frames: noise of their own would have to be 60 dB down to leave so little
AT_THE_RAIL = 1e-6  # of the largest value: equal, but for rounding
LEAST_CLIPPED = 0.01  # of the values of an antenna's frame
SPIKE = 2 / 3  # of the values in the tenth below the rail: where more are at it, no smooth distribution is

Real = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SetMeasured:
    """Of the frames of a sample that could be used, N of them; A antennas.

    usable: of the whole sample; the others hold NaN, infinity or nothing at all. power, snr_db: (N, A). mean: (N, A)
    of the samples, DC. clipped: (N,) on some antenna. copied: (N, A, A) whether two antennas' samples are
    equal up to a factor. marks: (N, 6) |⟨w, y⟩|² T A / ‖w‖²‖y‖², the same for a frame and its copies, whatever their
    level and phase. channel, offset_hz, snr_db: see `sounding`; None where it cannot be told. cfo_hz: (N, A), as
    recorded.
    """

    frames: Frames
    sample: SetSample
    usable: NDArray[np.bool_]
    about: str
    cfo_hz: Real | None
    power: Real
    mean: NDArray[np.complex128]
    clipped: NDArray[np.bool_]
    copied: NDArray[np.bool_]
    marks: Real
    channel: NDArray[np.complex64] | None = None
    offset_hz: Real | None = None
    snr_db: Real | None = None


def measure(frames: Frames, sample: SetSample, seed: int, advance: Callable[[int], None]) -> SetMeasured:
    """Read the sample piece by piece; `advance` is told how many frames were read."""
    if frames.subcarriers is not None and frames.subcarriers.front == AS_REPORTED:
        frames = through(frames, front_end_for(frames.subcarriers, COMMON))  # a packet's timing is not the room's
    frames = frames.segment(min(frames.samples, MOST_SAMPLES))
    chosen = frames.select(sample.position)
    cfo_hz = chosen.cfo_hz
    usable = np.ones(len(chosen), dtype=np.bool_)
    if cfo_hz is not None:
        usable &= np.isfinite(cfo_hz).all(axis=1)
    values_each = frames.antennas * frames.samples
    projection = generator(seed, "check", "marks").standard_normal((MARKS, values_each, 2)) @ np.array([1, 1j])
    some = chosen[np.unique(np.linspace(0, len(chosen) - 1, SOME).astype(np.int64))].iq
    sounder = choose_sounder(some[is_usable(some)], frames.sample_rate_hz, frames.domain)
    columns: dict[str, list[NDArray[np.generic]]] = {}
    size = max(1, PIECE_SAMPLES // values_each)
    for start in range(0, len(chosen), size):
        iq = chosen[start : start + size].iq
        usable[start : start + size] &= is_usable(iq)
        for name, values in describe(iq[usable[start : start + size]], projection, sounder).items():
            columns.setdefault(name, []).append(values)
        advance(len(iq))
    found: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    kept = SetSample(*(getattr(sample, name)[usable] for name in ("position", "recording", "third", "neighbour")))
    return SetMeasured(
        frames=chosen.select(usable),
        sample=kept,
        usable=usable,
        about="nothing: one antenna, and no preamble is known" if sounder is None else sounder.about,
        cfo_hz=None if cfo_hz is None else cfo_hz[usable],
        **found,
    )


def is_usable(iq: NDArray[np.complex64]) -> NDArray[np.bool_]:
    """(N,) finite, and not all zero."""
    total = energy(iq, (-1, -2))
    return np.asarray(np.isfinite(total) & (total > 0))


def describe(
    iq: NDArray[np.complex64], projection: NDArray[np.complex128], sounder: Sounder | None
) -> dict[str, NDArray[np.generic]]:
    """The columns of `SetMeasured` that come from the samples."""
    samples = iq.shape[-1]
    power = energy(iq) / samples
    marks = np.abs(iq.reshape(len(iq), projection.shape[1]) @ projection.T) ** 2
    marks *= projection.shape[1] / ((np.abs(projection) ** 2).sum(1) * energy(iq, (-1, -2))[:, None])
    found: dict[str, NDArray[np.generic]] = {
        "power": power,
        "mean": iq.mean(-1, dtype=np.complex128),
        "clipped": np.asarray(clipped(iq).any(-1)),
        "copied": copied_antennas(iq),
        "marks": marks,
    }
    if sounder is not None:
        sounding = sounder.sound(iq)
        given = {"channel": sounding.channel, "offset_hz": sounding.offset_hz, "snr_db": sounding.snr_db}
        found |= {name: values for name, values in given.items() if values is not None}
    return found


def copied_antennas(iq: NDArray[np.complex64]) -> NDArray[np.bool_]:
    """(N, A, A) |⟨y_a, y_b⟩|² ≥ (1 − 10⁻⁶) ‖y_a‖²‖y_b‖² > 0; in double precision, or rounding would decide."""
    wide = iq.astype(np.complex128)
    product = wide @ wide.conj().swapaxes(-1, -2)
    own = np.einsum("naa->na", product).real
    bound = own[:, :, None] * own[:, None, :]
    return np.asarray((np.abs(product) ** 2 >= (1 - COPY) * bound) & (bound > 0))


def clipped(iq: NDArray[np.complex64]) -> NDArray[np.bool_]:
    """(N, A) whether an antenna's values pile up at the largest.

    A converter that is driven too far repeats its last value: 1 % of I and Q or more are equal to the largest. So are
    those of a coarsely quantised tone, but fewer than lie in the tenth below it; behind a rail they are more.
    """
    values = np.abs(np.ascontiguousarray(iq).view(np.float32))
    top = values.max(-1, keepdims=True)
    rail = (values >= (1 - AT_THE_RAIL) * top).sum(-1)
    below = (values >= 0.9 * top).sum(-1) - rail
    return np.asarray((rail >= LEAST_CLIPPED * values.shape[-1]) & (rail >= SPIKE * below) & (top[..., 0] > 0))
