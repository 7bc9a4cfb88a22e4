"""Frames, the input of every stage.

A frame is one received preamble on all antennas. I/Q stays where it is (memory or a store on disk) until it is
asked for; the columns that describe the frames are small and always in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.data.geometry import ArrayGeometry, default_geometry
from pisa_capc.data.samples import check_samples
from pisa_capc.data.sources import FrameSource, JoinedSource, MemorySource, SelectedSource, groups
from pisa_capc.data.store.dataset import TIME, UNLABELLED, Subcarriers, joined_subcarriers
from pisa_capc.data.store.files import new_folder
from pisa_capc.data.store.native import CaptureSpec, Dataset, StoreSource, write_dataset
from pisa_capc.data.store.signature import check_signature

__all__ = ["MODEL_SAMPLES", "FrameSource", "Frames", "JoinedSource", "MemorySource", "UnlabelledFrames", "load"]

MODEL_SAMPLES = 320  # the segment the models of the paper see, for both waveforms


def samples_seen(asked: int, stored: int) -> int:
    """Samples that a model sees of frames of `stored` samples: as asked, or all of frames short of the paper's."""
    if asked > stored and asked != MODEL_SAMPLES:
        raise ConfigError(
            f"samples: {asked} of each frame were asked for, and the frames hold {stored}. Ask for {stored} or "
            "fewer, or use longer frames."
        )
    return min(asked, stored)


@dataclass(frozen=True, eq=False, repr=False)
class UnlabelledFrames:
    """Frames whose transmitter is not known: there is no device column to read.

    source, rows: where the I/Q is and which rows of it these frames are.
    environment, capture: (N,) indices into `environments` and `captures`.
    frame: (N,) index of each frame within its capture file, the time order of the recording.
    samples: how many samples of each frame are used.
    domain, subcarriers: what they are, see `Dataset`.
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
    domain: str = field(default=TIME, kw_only=True)
    subcarriers: Subcarriers | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        # What a source knows (who transmitted in which file) is not for printing.
        keys = ", ".join(np.unique(self.capture_key).tolist()) if len(self) else "none"
        return f"{type(self).__name__}({len(self)} frames of {self.antennas} × {self.samples} samples: {keys})"

    def _repr_html_(self) -> str:
        """For notebooks: frames by environment and capture."""
        keys, counts = np.unique(self.capture_key, return_counts=True)
        rows = "".join(
            f"<tr><td>{escape(k)}</td><td>{n:,}</td></tr>" for k, n in zip(keys.tolist(), counts, strict=True)
        )
        about = f"{type(self).__name__}: {len(self):,} frames of {self.antennas} antennas × {self.samples} samples"
        return f"<table><caption>{about}</caption><tr><th>capture</th><th>frames</th></tr>{rows}</table>"

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

    def __getitem__(self, which: int | slice | ArrayLike) -> Self:
        """Frames by number, slice, mask or positions; one number gives a selection of one frame. No I/Q is read."""
        if isinstance(which, slice):
            return self.select(np.arange(len(self))[which])
        index = np.asarray(which)
        if index.ndim == 0 and index.dtype.kind in "iu" and not -len(self) <= index < len(self):
            raise IndexError(f"frame {index}: there are {len(self)} frames, 0 to {len(self) - 1}.")
        return self.select(np.atleast_1d(index))

    def where(self, environment: Sequence[str] | str | None = None, capture: Sequence[str] | str | None = None) -> Self:
        """The frames of the named environments and captures."""
        return self.select(self._named("environment", environment) & self._named("capture", capture))

    def _named(self, kind: str, names: Sequence[str] | str | None) -> NDArray[np.bool_]:
        """(N,) mask of the frames whose column `kind` has one of these names; all of them without names."""
        if names is None:
            return np.ones(len(self), dtype=bool)
        known, wanted = getattr(self, f"{kind}s"), [names] if isinstance(names, str) else names
        for name in wanted:
            if name not in known and name in getattr(self, "devices", ()):  # folders read as others than they are
                raise DataError(
                    f"{unknown_name(kind, name, known)} {name} is a device of these frames. If it is one of their "
                    f"{kind}s, import them again, with --pattern to say what their folders are."
                )
        chosen = [index_of(kind, name, known) for name in wanted]
        found: NDArray[np.bool_] = np.isin(getattr(self, kind), chosen)
        return found

    @classmethod
    def from_arrays(
        cls,
        iq: ArrayLike,
        environment: ArrayLike | str = "E1",
        capture: ArrayLike | str = "L1",
        frame: ArrayLike | None = None,
        cfo_hz: ArrayLike | None = None,
        geometry: ArrayGeometry | None = None,
        sample_rate_hz: float = 20e6,
        carrier_hz: float = 5.825e9,
        axes: str | None = None,
    ) -> UnlabelledFrames:
        """Frames of unknown origin from arrays in memory: iq (N, A, T) complex; environment and capture are names.

        `frame` defaults to counting the frames of each environment and capture in the given order. axes: order of those
        of `iq`, as "nTA"; more antennas than samples need it, or the array's geometry.
        """
        names = {"environment": environment, "capture": capture}
        return cls(
            **_from_arrays(_ordered(iq, axes, geometry), names, frame, cfo_hz, geometry, sample_rate_hz, carrier_hz)
        )

    def segment(self, samples: int = MODEL_SAMPLES) -> Self:
        """The same frames cut to their first `samples` samples."""
        if not 1 <= samples <= self.source.samples:
            raise DataError(f"segment: frames hold {self.source.samples} samples, {samples} were asked for.")
        return replace(self, samples=samples)

    def batches(self, size: int) -> Iterator[Self]:
        """Consecutive pieces of at most `size` frames, for sets that do not fit in memory."""
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

    def where(
        self,
        environment: Sequence[str] | str | None = None,
        capture: Sequence[str] | str | None = None,
        device: Sequence[str] | str | None = None,
    ) -> Self:
        """The frames of the named environments, captures and devices."""
        keep = self._named("environment", environment) & self._named("capture", capture)
        return self.select(keep & self._named("device", device))

    def unlabelled(self) -> UnlabelledFrames:
        """The same frames without a device column."""
        return UnlabelledFrames(**{f.name: getattr(self, f.name) for f in fields(UnlabelledFrames)})

    @classmethod
    def from_arrays(  # type: ignore[override]
        cls,
        iq: ArrayLike,
        device: ArrayLike | str,
        environment: ArrayLike | str = "E1",
        capture: ArrayLike | str = "L1",
        frame: ArrayLike | None = None,
        cfo_hz: ArrayLike | None = None,
        geometry: ArrayGeometry | None = None,
        sample_rate_hz: float = 20e6,
        carrier_hz: float = 5.825e9,
        axes: str | None = None,
    ) -> Frames:
        """Frames from arrays in memory: iq (N, A, T) complex; device, environment and capture are names.

        `frame` defaults to counting the frames of each environment–device–capture group in the given order. axes: order
        of those of `iq`, as "nTA"; more antennas than samples need it, or the array's geometry.
        """
        names = {"environment": environment, "device": device, "capture": capture}
        return cls(
            **_from_arrays(_ordered(iq, axes, geometry), names, frame, cfo_hz, geometry, sample_rate_hz, carrier_hz)
        )

    def recordings(self) -> Iterator[tuple[CaptureSpec, Frames]]:
        """The frames of one environment, device and capture after the other, in time order."""
        for members in groups_of(self):
            in_time = members[np.argsort(self.frame[members], kind="stable")]
            yield CaptureSpec(*group_name(self, int(members[0])), len(members)), self.select(in_time)

    def save(self, folder: str | Path) -> None:
        """Write the frames as a dataset into a new folder; `load` reads it. Frames are renumbered in time order."""
        new_folder(Path(folder))
        captures = tuple(spec for spec, _ in self.recordings())
        made = {"command": "Frames.save"}
        rates = self.sample_rate_hz, self.carrier_hz
        numbered = None if self.subcarriers is None else self.subcarriers.first(self.samples)
        dataset = Dataset(self.geometry, *rates, self.samples, captures, made, self.domain, numbered)
        write_dataset(folder, dataset, ((spec, own.iq, own.cfo_hz) for spec, own in self.recordings()))

    @classmethod
    def concatenate(cls, parts: Sequence[Frames]) -> Frames:
        """Frames of several sets as one; nothing is read or copied but the columns.

        The sets must share antennas, geometry, rates and segment length; names are united.
        """
        if not parts:
            raise DataError("concatenate: no frames given.")
        first = parts[0]
        subcarriers = first.subcarriers
        for i, part in enumerate(parts[1:], 1):
            for name in ("geometry", "sample_rate_hz", "carrier_hz", "samples", "domain"):
                if getattr(part, name) != getattr(first, name):
                    raise DataError(
                        f"concatenate: part {i} has {name} {getattr(part, name)}, part 0 has {getattr(first, name)}."
                    )
            subcarriers = joined_subcarriers(subcarriers, part.subcarriers, "concatenate")
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
            subcarriers=subcarriers,
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


def check_labelled(frames: Frames) -> None:
    """Refuse unlabelled frames where labels are needed."""
    if UNLABELLED in frames.devices:
        raise DataError(
            f"the dataset holds frames that are {UNLABELLED}: their devices are unknown, so nothing can be trained "
            "or scored on them. Embed them (`pisa embed`), or label them when they are detected or imported."
        )


def load(folder: str | Path) -> Frames:
    """Open a dataset; I/Q stays on disk until it is read.

    >>> frames = pisa_capc.load("wifi")              # doctest: +SKIP
    >>> frames.where(environment=["E1"]).iq.shape    # doctest: +SKIP
    (25600, 4, 320)
    """
    folder = Path(folder)
    dataset = Dataset.read(folder)
    check_signature(folder)
    if missing := dataset.missing(folder):
        raise DataError(
            f"{folder}: {len(missing)} of {len(dataset.captures)} captures are missing, first {missing[0].path}. "
            "Run the command that made the dataset again: it writes what is missing."
        )
    if not dataset.captures:
        raise DataError(f"{folder}: dataset.json lists no captures.")
    columns: dict[str, NDArray[np.int64]] = {}
    names: dict[str, tuple[str, ...]] = {}
    sizes = [c.frames for c in dataset.captures]
    for kind in ("environment", "device", "capture"):
        values, inverse = np.unique([getattr(c, kind) for c in dataset.captures], return_inverse=True)
        names[f"{kind}s"] = tuple(str(v) for v in values)
        columns[kind] = np.repeat(inverse.astype(np.int64), sizes)
    return Frames(
        source=StoreSource(folder, dataset),
        rows=np.arange(sum(sizes)),
        frame=np.concatenate([np.arange(n) for n in sizes]),
        geometry=dataset.geometry,
        sample_rate_hz=dataset.sample_rate_hz,
        carrier_hz=dataset.carrier_hz,
        samples=dataset.samples,
        domain=dataset.domain,
        subcarriers=dataset.subcarriers,
        **columns,  # type: ignore[arg-type]
        **names,  # type: ignore[arg-type]
    )


def _ordered(iq: ArrayLike, axes: str | None, geometry: ArrayGeometry | None) -> NDArray[np.complex64]:
    """I/Q as (frames, antennas, samples); an order that is likely another one needs a word of consent."""
    x = np.asarray(iq)
    if x.ndim != 3:
        raise DataError(f"iq: expected (frames, antennas, samples), found shape {x.shape}.")
    if axes is None and geometry is None and x.shape[1] > x.shape[2]:
        raise DataError(
            f"iq {x.shape}: {x.shape[1]} antennas and {x.shape[2]} samples, more antennas than samples. Give the order "
            'of the axes: axes="nTA", or axes="nAT" where it is so.'
        )
    if axes is not None and sorted(axes) != ["A", "T", "n"]:
        raise ConfigError(f"axes {axes!r}: expected the letters n, T and A once each, as nTA.")
    order = [(axes or "nAT").index(letter) for letter in "nAT"]
    return np.ascontiguousarray(x.transpose(order), dtype=np.complex64)


def _from_arrays(
    x: NDArray[np.complex64],
    given: dict[str, ArrayLike | str],
    frame: ArrayLike | None,
    cfo_hz: ArrayLike | None,
    geometry: ArrayGeometry | None,
    sample_rate_hz: float,
    carrier_hz: float,
) -> dict[str, Any]:
    """The fields of frames in memory; `given`: names of the frames by kind."""
    n = len(x)
    columns: dict[str, NDArray[np.int64]] = {}
    names: dict[str, tuple[str, ...]] = {}
    recording = np.zeros(n, dtype=np.int64)
    for kind, value in given.items():
        column = np.asarray(value).astype(str)
        column = np.broadcast_to(column, n) if column.ndim == 0 else column
        if column.shape != (n,):
            raise DataError(f"{kind}: expected {n} values, one per frame, found shape {column.shape}.")
        values, inverse = np.unique(column, return_inverse=True)
        columns[kind], names[f"{kind}s"] = inverse.astype(np.int64), tuple(str(v) for v in values)
        recording = recording * len(values) + inverse
    cfo = None if cfo_hz is None else np.asarray(cfo_hz, dtype=np.float64)
    if cfo is not None and cfo.shape != x.shape[:2]:
        raise DataError(f"cfo_hz: expected {x.shape[:2]} (frames, antennas), found {cfo.shape}.")
    geometry = geometry or default_geometry(x.shape[1])
    if geometry.antennas != x.shape[1]:
        raise DataError(f"geometry: describes {geometry.antennas} antennas, the frames have {x.shape[1]}.")
    check_samples(x, cfo, "iq")
    time = _count_within(recording) if frame is None else np.asarray(frame, dtype=np.int64)
    if time.shape != (n,):
        raise DataError(f"frame: expected {n} values, one per frame, found shape {time.shape}.")
    return {
        "source": MemorySource(x, cfo, recording, time),
        "rows": np.arange(n),
        "frame": time,
        "geometry": geometry,
        "sample_rate_hz": float(sample_rate_hz),
        "carrier_hz": float(carrier_hz),
        "samples": x.shape[2],
        **columns,
        **names,
    }


def _count_within(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each element, how many earlier elements share its group."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    position = np.arange(len(group)) - np.repeat(starts, np.diff(np.r_[starts, len(group)]))
    out = np.empty(len(group), dtype=np.int64)
    out[order] = position
    return out
