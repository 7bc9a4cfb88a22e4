r"""Which frames of a stream belong together, from the frames themselves.

A capture shifts the embeddings of its frames. Whether the newest frames are still of the same capture is asked cell by
cell, so that a change of transmitter is not taken for a change of place. A cell holds the frames that the classifier
gives the same class and, where it is known, that have about the same carrier frequency offset. With m_k the mean of the
n_k newest unit-length embeddings of cell k, and M_k, N_k those of the group so far,

    t_k = ‖m_k − M_k‖² / (σ² (1/n_k + 1/N_k + ρ)),      σ² = Σ_k N_k (1 − ‖M_k‖²) / Σ_k N_k

is about one or less while nothing changes; ρ is the drift, in parts of the variance σ² within cells, that a capture may
have. The group has ended when the *median* of t over the cells exceeds a threshold: one transmitter that moves changes
a cell or two, a capture changes most. The frames since the likeliest change are then compared with every remembered
group in the same way; the nearest one below the threshold is reopened, otherwise a group is begun.

There is no verdict, and the group goes on, unless the newest frames are of several transmitters: a window of one that
the group holds few frames of says nothing about the others. Several are three frequency offsets among the cells
compared. Without offsets they are three classes, none with more than half of the frames, whose frames alternate: the
mean square successive difference, which is 2σ² where neighbours have nothing in common [1]_, falls below 0.9 of that
where transmitters speak one after the other and are slow to change.

Frames join their group's statistics when they leave the window, and are therefore assigned with the frames after them
in view. Where the frames' numbers within their recordings are known, a change is only looked for where one falls.

The defaults were chosen on the simulated environments E2 and E3 alone, each with scores of a model trained on the other
one, as streams whose devices alternate, or speak one after the other, so that the groups found agree well with the
captures in the first kind of stream and little is found in the second (`make study-streams ARGS=--choose`, record
`results/studies/streams-choose.json`, on one of the sets used). The target E1 was not looked at.

.. [1] J. von Neumann. Distribution of the ratio of the mean square successive difference to the variance. Annals of
   Mathematical Statistics 12(4), 1941.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration.vectors import unit_rows

BLOCK = 16  # frames between two looks: what is found depends on the frames alone, not on how they are handed over
_LEAST_NEW, _LEAST_KNOWN = 3, 8  # frames of a cell in the window and in the group, below which it is not compared
_LARGEST_SHARE, _LEAST_SUCCESSIVE = 0.5, 0.9  # of a window of several transmitters, where offsets are not known
_CELLS_PER_CLASS = 8  # by frequency offset
_CENTRE_STEP = 0.02  # how fast a cell's centre follows its frames' offset
_CANDIDATES = 16  # moments at which a change may have been, when there was one

Settled = tuple[int, int]  # a group's number, and how many of the oldest undecided frames belong to it
_COUNTERS = ("seen", "pending", "slot", "opened", "last_frame")


@dataclass(frozen=True)
class GroupSettings:
    """How groups are found; the module says what the values mean and how they were chosen."""

    window: int = 192  # newest frames, that are compared with the group
    threshold: float = 1.25  # of the median of t, without frequency offsets
    cfo_threshold: float = 2.0  # the same with them: cells are purer
    tolerance: float = 0.1  # ρ
    transmitters: int = 3  # that the frames compared must be of, for a verdict
    memory: int = 512  # frames of a cell after which older ones fade
    groups: int = 8  # remembered; the one unused for longest is forgotten first
    cfo_radius_hz: float = 4000.0  # an offset further than this from a class's cells begins a cell

    def __post_init__(self) -> None:
        least = {"window": 2 * BLOCK, "transmitters": 1, "memory": 1, "groups": 2}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least {value}.")
        for name in ("threshold", "cfo_threshold", "tolerance", "cfo_radius_hz"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)}; expected a positive number.")


class GroupFinder:
    """Finds the groups of a stream of frames, at a constant cost per frame and with a constant memory.

    Groups are numbered 0, 1, … in the order in which they are first seen; a reopened group keeps its number.
    """

    def __init__(
        self, classes: int, features: int, with_cfo: bool = False, settings: GroupSettings | None = None
    ) -> None:
        self.settings = settings or GroupSettings()
        self.with_cfo = with_cfo
        self._threshold = self.settings.cfo_threshold if with_cfo else self.settings.threshold
        self._transmitters = min(self.settings.transmitters, classes)
        slots, cells = self.settings.groups, classes * (_CELLS_PER_CLASS if with_cfo else 1)
        room = self.settings.window + BLOCK
        self.seen = 0
        self.pending = 0  # frames whose group is not settled yet
        self.slot = 0  # of the current group
        self.opened = 1
        self.last_frame = -1
        self.arrays: dict[str, NDArray[Any]] = {
            "mean": np.zeros((slots, cells, features)),
            "count": np.zeros((slots, cells)),
            "number": np.array([0] + [-1] * (slots - 1)),  # of the group in a slot
            "used": np.zeros(slots, dtype=np.int64),  # when a slot's group was current last
            "centre_hz": np.full((classes, cells // classes), np.inf),
            "unit": np.zeros((room, features)),
            "cell": np.zeros(room, dtype=np.int64),
            "candidate": np.zeros(room, dtype=bool),
        }

    @property
    def current(self) -> int:
        """The number of the group that the newest frames are taken to be of."""
        return int(self.arrays["number"][self.slot])

    @property
    def room(self) -> int:
        """Frames until the next look; `push` takes at most this many."""
        return BLOCK - self.seen % BLOCK

    @property
    def several(self) -> bool:
        """Whether the newest frames look like several transmitters in turn, as far as can be told."""
        _, new = self._cell_sums(0, self.pending)
        if self.with_cfo:
            return self._senders(new >= _LEAST_NEW) >= self._transmitters
        return self._alternate(0, new)

    def push(
        self,
        unit: NDArray[np.float64],
        decision: NDArray[np.int64],
        cfo_hz: NDArray[np.float64] | None = None,
        frame: NDArray[np.int64] | None = None,
    ) -> list[Settled]:
        """Take the next n ≤ `room` frames: unit-length embeddings (n, D), classes (n,), offsets and numbers (n,).

        Returns what is settled now about the oldest undecided frames, oldest first.
        """
        state, n = self.arrays, len(unit)
        here = slice(self.pending, self.pending + n)
        state["unit"][here] = unit
        state["cell"][here] = decision if cfo_hz is None else list(map(self._cfo_cell, decision, cfo_hz))
        if frame is None:
            state["candidate"][here] = np.arange(self.seen, self.seen + n) % BLOCK == 0
        else:
            state["candidate"][here] = np.diff(frame, prepend=self.last_frame) < 0
            self.last_frame = int(frame[-1])
        self.seen += n
        self.pending += n
        if self.seen % BLOCK:
            return []
        settled = self._look()
        if (excess := self.pending - self.settings.window) > 0:
            settled.append(self._settle(excess))
        return settled

    def _cfo_cell(self, decision: int, cfo_hz: float) -> int:
        centre = self.arrays["centre_hz"][decision]
        distance = np.abs(centre - cfo_hz)
        nearest = int(distance.argmin())
        if distance[nearest] > self.settings.cfo_radius_hz and np.isinf(centre[-1]):
            nearest = int(np.isinf(centre).argmax())
            centre[nearest] = cfo_hz
        centre[nearest] += _CENTRE_STEP * (cfo_hz - centre[nearest])
        return int(decision) * _CELLS_PER_CLASS + nearest

    def _look(self) -> list[Settled]:
        """Ask whether the group has ended; where it has, settle the frames before and choose the group after."""
        self.arrays["used"][self.slot] = self.seen
        change = self._change()
        if change is None:
            return []
        settled = [self._settle(change)] if change else []
        medians, _ = self._compare(0, slice(None))
        medians[self.slot] = np.nan
        if np.nanmin(medians, initial=np.inf) <= self._threshold:
            self.slot = int(np.nanargmin(medians))
        else:
            self._open()
        return settled

    def _change(self) -> int | None:
        """Where among the undecided frames the current group ended, if it did at least half a window ago."""
        here = slice(self.slot, self.slot + 1)
        starts: list[int] = np.flatnonzero(self.arrays["candidate"][: self.pending]).tolist()
        latest = self.pending - self.settings.window // 2
        if not starts or starts[0] > latest or not self._compare(starts[0], here)[0][0] > self._threshold:
            return None
        likeliest = max(starts[:: -(-len(starts) // _CANDIDATES)], key=lambda start: self._compare(start, here)[1])
        return likeliest if likeliest <= latest else None

    def _compare(self, start: int, slots: slice) -> tuple[NDArray[np.float64], float]:
        """The undecided frames from `start` against groups: medians of t, NaN without a verdict.

        And the evidence that the first of the groups had ended by then: the sum of t − 1 at ρ = 0.
        """
        total, new = self._cell_sums(start, self.pending)
        mean, known = self.arrays["mean"][slots], self.arrays["count"][slots]
        compared = (new >= _LEAST_NEW) & (known >= _LEAST_KNOWN)
        n, big_n = np.maximum(new, 1), np.maximum(known, 1)
        within = (known * (1 - np.square(mean).sum(axis=-1))).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)
        apart = np.square(total / n[:, None] - mean).sum(axis=-1) / np.maximum(within, 1e-9)[:, None]
        t = apart / (1 / n + 1 / big_n + self.settings.tolerance)
        several = self.with_cfo or self._alternate(start, new)
        medians = [
            np.median(of[cells]) if several and self._senders(cells) >= self._transmitters else np.nan
            for of, cells in zip(t, compared, strict=True)
        ]
        return np.array(medians), float((apart[0] / (1 / n + 1 / big_n[0]) - 1)[compared[0]].sum())

    def _alternate(self, start: int, new: NDArray[np.float64]) -> bool:
        """Whether the undecided frames from `start` look like several transmitters in turn, `new` (K,) by class."""
        unit = self.arrays["unit"][start : self.pending]
        mean = unit.mean(axis=0)
        successive = 1 - float(np.einsum("nd,nd->", unit[1:], unit[:-1])) / (len(unit) - 1)
        return new.max() <= _LARGEST_SHARE * len(unit) and successive >= _LEAST_SUCCESSIVE * (1 - float(mean @ mean))

    def _senders(self, cells: NDArray[np.bool_]) -> int:
        """How many transmitters these cells are of, at least."""
        if not self.with_cfo or not cells.any():
            return int(cells.sum())
        centres = np.sort(self.arrays["centre_hz"].reshape(-1)[cells])
        return 1 + int((np.diff(centres) > self.settings.cfo_radius_hz).sum())

    def _cell_sums(self, start: int, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums (K, D) and numbers (K,) of the undecided frames from `start` to `stop`, by cell."""
        cells = self.arrays["cell"][start:stop]
        member = (np.arange(self.arrays["count"].shape[1])[:, None] == cells).astype(np.float64)
        return member @ self.arrays["unit"][start:stop], member.sum(axis=1)

    def _settle(self, frames: int) -> Settled:
        """Count the oldest undecided frames to the current group."""
        state = self.arrays
        total, n = self._cell_sums(0, frames)
        mean, count = state["mean"][self.slot], state["count"][self.slot]
        count += n
        mean += (total - n[:, None] * mean) / np.maximum(count, 1)[:, None]
        np.minimum(count, self.settings.memory, out=count)
        self.pending -= frames
        for name in ("unit", "cell", "candidate"):
            state[name][: self.pending] = state[name][frames : frames + self.pending]
        return self.current, frames

    def _open(self) -> None:
        """Begin a group in a free slot, or in that of the group unused for longest."""
        state = self.arrays
        slot = int(np.where(state["number"] < 0, -1, state["used"]).argmin())
        state["mean"][slot], state["count"][slot] = 0.0, 0.0
        state["number"][slot], state["used"][slot] = self.opened, self.seen
        self.slot, self.opened = slot, self.opened + 1

    def counters(self) -> dict[str, int]:
        """What changes besides `arrays`."""
        return {name: getattr(self, name) for name in _COUNTERS}

    def resume(self, arrays: dict[str, NDArray[Any]], counters: dict[str, int]) -> None:
        """Go on from the `arrays` and `counters` of another finder of the same settings."""
        self.arrays = {name: arrays[name].copy() for name in self.arrays}
        for name in _COUNTERS:
            setattr(self, name, int(counters[name]))


def find_groups(
    embedding: NDArray[Any],
    logits: NDArray[Any],
    cfo_hz: NDArray[Any] | None = None,
    frame: NDArray[Any] | None = None,
    settings: GroupSettings | None = None,
) -> NDArray[np.int64]:
    """(N,) group numbers of frames in the order in which they were received.

    `cfo_hz` (N,) and `frame` (N,), the frames' numbers within their recordings, are used where they are known. Numbers
    that never fall are those of a receiver that counts on, and say nothing.
    """
    for name, values in (("cfo_hz", cfo_hz), ("frame", frame)):
        if values is not None:
            check_column(name, values, len(logits))
    if frame is not None:
        frame = frame.astype(np.int64)  # differences of unsigned numbers never fall
        frame = None if (np.diff(frame) >= 0).all() else frame
    finder = GroupFinder(logits.shape[1], embedding.shape[1], cfo_hz is not None, settings)
    group = np.empty(len(logits), dtype=np.int64)
    start = done = 0
    while start < len(logits):
        part = slice(start, start := start + finder.room)
        known = (None if values is None else values[part] for values in (cfo_hz, frame))
        for number, count in finder.push(unit_rows(embedding[part]), logits[part].argmax(axis=1), *known):
            group[done : (done := done + count)] = number
    group[done:] = finder.current
    return group


def check_column(name: str, values: NDArray[Any], frames: int) -> None:
    """Refuse what is not one finite number per frame."""
    if values.dtype.kind not in "iuf" or values.shape != (frames,) or not np.isfinite(values).all():
        raise DataError(
            f"{name} is {values.dtype} {values.shape}; expected one finite number per frame, ({frames},). "
            "Remove it to find groups without it."
        )
