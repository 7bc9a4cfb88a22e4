"""Frames: what every stage of the program reads.

A frame is one received preamble on all antennas. I/Q stays where it is (memory or a store on disk) until it is
asked for; the columns that describe the frames are small and always in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.errors import ConfigError, DataError, unknown_name
from pisa_capc.geometry import ArrayGeometry, default_geometry
from pisa_capc.sources import FrameSource, JoinedSource, MemorySource, SelectedSource, groups

__all__ = ["MODEL_SAMPLES", "FrameSource", "Frames", "JoinedSource", "MemorySource", "UnlabelledFrames"]

MODEL_SAMPLES = 320  # the segment the models of the paper see, for both waveforms


def samples_seen(asked: int, stored: int) -> int:
    """Samples that a model sees of frames of `stored` samples: as asked, or all of frames short of the paper's."""
    if asked > stored and asked != MODEL_SAMPLES:
        raise ConfigError(
            f"samples: a model was to see {asked} of each frame, and the frames hold {stored}. Ask for {stored} or "
            "fewer, or use frames that are longer."
        )
    return min(asked, stored)


@dataclass(frozen=True, eq=False, repr=False)
class UnlabelledFrames:
    """Frames whose transmitter is not known: there is no device column to read.

    source, rows: where the I/Q is and which rows of it these frames are.
    environment, capture: (N,) indices into `environments` and `captures`.
    frame: (N,) index of each frame within its capture file, the time order of the recording.
    samples: how many samples of each frame are used.
    """

    source: FrameSource
    rows: NDArray[np.int64]
    environment: NDArray[np.int64]
    capture: NDArray[np.int64]
    frame: NDArray[np.int64]
    environments: tuple[str, ...]
    captures: tuple[str, ...]
    geometry: ArrayGeometry
    sample_rate_hz: float
    carrier_hz: float
    samples: int

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        # What a source knows (who transmitted in which file) is not for printing.
        keys = ", ".join(np.unique(self.capture_key).tolist()) if len(self) else "none"
        return f"{type(self).__name__}({len(self)} frames of {self.antennas} × {self.samples} samples: {keys})"

    @property
    def antennas(self) -> int:
        return self.source.antennas

    @property
    def iq(self) -> NDArray[np.complex64]:
        """(N, A, T) complex samples; reads from disk where the frames are on disk."""
        return self.source.read_iq(self.rows, self.samples)

    @property
    def cfo_hz(self) -> NDArray[np.float64] | None:
        """(N, A) carrier frequency offset in Hz, or None where it was not recorded."""
        return self.source.read_cfo_hz(self.rows)

    @property
    def capture_key(self) -> NDArray[np.str_]:
        """(N,) label-free grouping key of the calibration, r_i: environment and capture setting, as 'E1/L1'."""
        names = np.array([[f"{e}/{c}" for c in self.captures] for e in self.environments])
        return names[self.environment, self.capture]

    @property
    def _columns(self) -> tuple[str, ...]:
        return ("rows", "environment", "capture", "frame")

    def select(self, which: ArrayLike) -> Self:
        """The frames where a mask is true, or those at the given positions. No I/Q is read."""
        index = np.asarray(which)
        if not index.size:
            index = np.empty(0, dtype=np.int64)  # an empty list would be an array of floats
        if index.dtype == bool and index.shape != (len(self),):
            raise DataError(f"select: expected a mask of {len(self)} frames, found shape {index.shape}.")
        chosen: dict[str, Any] = {name: getattr(self, name)[index] for name in self._columns}
        return replace(self, **chosen)

    def where(self, environment: Sequence[str] | str | None = None, capture: Sequence[str] | str | None = None) -> Self:
        """The frames of the named environments and captures."""
        keep = np.ones(len(self), dtype=bool)
        for kind, names, known, column in (
            ("environment", environment, self.environments, self.environment),
            ("capture", capture, self.captures, self.capture),
        ):
            if names is not None:
                names = [names] if isinstance(names, str) else names
                keep &= np.isin(column, [index_of(kind, name, known) for name in names])
        return self.select(keep)

    def segment(self, samples: int = MODEL_SAMPLES) -> Self:
        """The same frames cut to their first `samples` samples."""
        if not 1 <= samples <= self.source.samples:
            raise DataError(f"segment: frames hold {self.source.samples} samples, {samples} were asked for.")
        return replace(self, samples=samples)

    def batches(self, size: int) -> Iterator[Self]:
        """Consecutive pieces of at most `size` frames, for reading what does not fit in memory."""
        for start in range(0, len(self), size):
            yield self.select(np.arange(start, min(start + size, len(self))))


@dataclass(frozen=True, eq=False, repr=False)
class Frames(UnlabelledFrames):
    """Frames with their transmitter: device is (N,), indices into `devices`.

    >>> import numpy as np
    >>> from pisa_capc import Frames
    >>> frames = Frames.from_arrays(np.ones((6, 4, 320)), device=list("aabbcc"))
    >>> len(frames), frames.antennas, frames.devices
    (6, 4, ('a', 'b', 'c'))
    >>> frames.select(frames.device == 1).iq.shape
    (2, 4, 320)
    """

    device: NDArray[np.int64]
    devices: tuple[str, ...]

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*super()._columns, "device")

    def unlabelled(self) -> UnlabelledFrames:
        """The same frames without a device column."""
        return UnlabelledFrames(
            self.source,
            self.rows,
            self.environment,
            self.capture,
            self.frame,
            self.environments,
            self.captures,
            self.geometry,
            self.sample_rate_hz,
            self.carrier_hz,
            self.samples,
        )

    @classmethod
    def from_arrays(
        cls,
        iq: ArrayLike,
        device: ArrayLike,
        environment: ArrayLike | str = "E1",
        capture: ArrayLike | str = "L1",
        frame: ArrayLike | None = None,
        cfo_hz: ArrayLike | None = None,
        geometry: ArrayGeometry | None = None,
        sample_rate_hz: float = 20e6,
        carrier_hz: float = 5.825e9,
    ) -> Frames:
        """Frames from arrays in memory: iq (N, A, T) complex; device, environment and capture are names.

        `frame` defaults to counting the frames of each environment–device–capture group in the given order.
        """
        x = np.ascontiguousarray(iq, dtype=np.complex64)
        if x.ndim != 3:
            raise DataError(f"iq: expected (frames, antennas, samples), found shape {x.shape}.")
        n = len(x)
        columns = {}
        for name, value in (("device", device), ("environment", environment), ("capture", capture)):
            column = np.asarray(value).astype(str)
            column = np.broadcast_to(column, n) if column.ndim == 0 else column
            if column.shape != (n,):
                raise DataError(f"{name}: expected {n} values, one per frame, found shape {column.shape}.")
            columns[name] = np.unique(column, return_inverse=True)
        cfo = None if cfo_hz is None else np.asarray(cfo_hz, dtype=np.float64)
        if cfo is not None and cfo.shape != x.shape[:2]:
            raise DataError(f"cfo_hz: expected {x.shape[:2]} (frames, antennas), found {cfo.shape}.")
        geometry = geometry or default_geometry(x.shape[1])
        if geometry.antennas != x.shape[1]:
            raise DataError(f"geometry: describes {geometry.antennas} antennas, the frames have {x.shape[1]}.")
        check_samples(x, cfo, "iq")
        index = {name: inverse.astype(np.int64) for name, (_, inverse) in columns.items()}
        names = {name: tuple(str(v) for v in values) for name, (values, _) in columns.items()}
        recording = (index["environment"] * len(names["device"]) + index["device"]) * len(names["capture"])
        recording += index["capture"]
        time = _count_within(recording) if frame is None else np.asarray(frame, dtype=np.int64)
        if time.shape != (n,):
            raise DataError(f"frame: expected {n} values, one per frame, found shape {time.shape}.")
        return cls(
            source=MemorySource(x, cfo, recording, time),
            rows=np.arange(n),
            environment=index["environment"],
            capture=index["capture"],
            frame=time,
            environments=names["environment"],
            captures=names["capture"],
            geometry=geometry,
            sample_rate_hz=float(sample_rate_hz),
            carrier_hz=float(carrier_hz),
            samples=x.shape[2],
            device=index["device"],
            devices=names["device"],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Frames]) -> Frames:
        """Frames of several sets as one; nothing is read or copied but the columns.

        The sets must share antennas, geometry, rates and segment length; names are united.
        """
        if not parts:
            raise DataError("concatenate: no frames given.")
        first = parts[0]
        for i, part in enumerate(parts[1:], 1):
            for name in ("geometry", "sample_rate_hz", "carrier_hz", "samples"):
                if getattr(part, name) != getattr(first, name):
                    raise DataError(
                        f"concatenate: part {i} has {name} {getattr(part, name)}, part 0 has {getattr(first, name)}."
                    )
        names: dict[str, Any] = {
            kind: tuple(sorted(set().union(*(getattr(part, kind) for part in parts))))
            for kind in ("devices", "environments", "captures")
        }

        def united(column: str, kind: str) -> NDArray[np.int64]:
            known = {name: i for i, name in enumerate(names[kind])}
            maps = [np.array([known[name] for name in getattr(part, kind)], dtype=np.int64) for part in parts]
            return np.concatenate([m[getattr(part, column)] for m, part in zip(maps, parts, strict=True)])

        sizes = np.array([len(part) for part in parts])
        source = JoinedSource(
            tuple(SelectedSource(part.source, part.rows) for part in parts),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        )
        return replace(
            first,
            source=source,
            rows=np.arange(sizes.sum()),
            environment=united("environment", "environments"),
            capture=united("capture", "captures"),
            device=united("device", "devices"),
            frame=np.concatenate([part.frame for part in parts]),
            **names,
        )


def groups_of(frames: Frames) -> list[NDArray[np.intp]]:
    """The positions of each environment–device–capture group: the frames that were recorded together."""
    shape = (len(frames.environments), len(frames.devices), len(frames.captures))
    return groups(np.ravel_multi_index((frames.environment, frames.device, frames.capture), shape).astype(np.int64))


def group_name(frames: Frames, i: int) -> tuple[str, str, str]:
    """Environment, device and capture of frame i."""
    return (
        frames.environments[frames.environment[i]],
        frames.devices[frames.device[i]],
        frames.captures[frames.capture[i]],
    )


def index_of(kind: str, name: str, known: Sequence[str]) -> int:
    """Position of `name` among `known`, or an error that names the nearest."""
    if name not in known:
        raise DataError(unknown_name(kind, name, known))
    return list(known).index(name)


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
    # Multiplied in double precision and rounded once, as whoever has only the scale will do.
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


def _count_within(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each element, how many earlier elements share its group."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    position = np.arange(len(group)) - np.repeat(starts, np.diff(np.r_[starts, len(group)]))
    out = np.empty(len(group), dtype=np.int64)
    out[order] = position
    return out
