r"""U-CAPC on a stream without capture identifiers: every frame is decided when it arrives.

`GroupFinder` says which group the newest frames are of. Of every group a sample of its frames is kept, uniform over the
group's frames until there are `memory` of them and fading beyond (reservoir sampling [1]_ [2]_), and every `refresh`
frames U-CAPC is run on the current group's sample and its frames still undecided. In between its prototypes p and class
potentials g stand still, and a frame is decided by them as in `frozen`:

    s = ℓ + λ_p zᵀp / τ_p,      π = softmax(s / ε + g).

A group's first `warmup` frames are decided by their logits alone: a balanced transport of fewer frames than that says
little. Classes are balanced, where the settings say so, only while the newest frames look like several transmitters in
turn (`GroupFinder.several`): of one that speaks for long, a balanced transport would give most frames away. A group
that is reopened goes on with the sample, prototypes and potentials it had.

A stream with `source` statistics is calibrated by `Careful` instead of U-CAPC, which selects its panel again at every
run; never for even shares while one transmitter sends for long. Such a stream also has an alarm (`alarm`): if frames
become less confident than those learnt from, the group is forgotten and learnt again. `Decisions.alarm` tells when; as
long as nothing changes that is once in `alarm.FRAMES` frames.

A stream with a `lag` runs U-CAPC in a thread of its own, and decides by what that gives so many frames after those it
was given, be it ready long before or waited for: decisions do not depend on the speed of the machine.

A stream with a `rejection` sets frames of unknown devices aside: nothing is learnt from them.

Work per frame and memory are constant: the state is a fixed set of arrays, and U-CAPC runs on at most `sample` frames
and a window. Decisions do not feed back: what is learnt depends on the frames and their order alone, not on how many
are handed over at a time.

The defaults were chosen with those of `grouping`, on the same source streams. That balance waits for several
transmitters was added when a first run on E1, devices one after the other, had shown the loss without it; it was judged
on E2 and E3, where it prevents the same loss.

.. [1] J. S. Vitter. Random sampling with a reservoir. ACM Transactions on Mathematical Software 11(1), 1985.
.. [2] C. C. Aggarwal. On biased reservoir sampling in the presence of stream evolution. VLDB 2006.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.config import from_mapping
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.randomness import generator
from pisa_capc.data.protocol import DROPPED
from pisa_capc.data.store.pair import check_shapes, described, write_pair
from pisa_capc.decide.calibration import alarm
from pisa_capc.decide.calibration.base import Calibrator, calibration_of, settings_of
from pisa_capc.decide.calibration.careful import Careful, used
from pisa_capc.decide.calibration.grouping import BLOCK, GroupFinder, GroupSettings
from pisa_capc.decide.calibration.learning import Decisions, Learner, Learnt, among
from pisa_capc.decide.calibration.openset.reject import Rejection
from pisa_capc.decide.calibration.policy import usual
from pisa_capc.decide.calibration.ucapc import UCAPC
from pisa_capc.decide.calibration.vectors import softmax, unit_rows
from pisa_capc.model.inference.statistics import SourceStatistics

NAME, SCHEMA, MADE_BY = "stream", 1, "`OnlineCalibrator.save`"


@dataclass(frozen=True)
class Online:
    """How a stream is calibrated."""

    calibration: Calibrator | None = None  # any; `careful` or, if the source is not known, U-CAPC. Groups are found
    finder: GroupSettings = field(default_factory=GroupSettings)
    sample: int = 512  # frames kept of a group
    memory: int = 16384  # frames of a group after which older ones fade
    warmup: int = 64  # frames of a group that are decided by their logits alone
    refresh: int = 256  # frames from one run of U-CAPC to the next
    lag: int = 0  # frames from a run to the first that it decides; it goes on in the background meanwhile

    def __post_init__(self) -> None:
        if self.lag < 0 or self.lag % BLOCK:
            raise ConfigError(f"lag is {self.lag}; expected a multiple of {BLOCK}, or 0.")
        for name in ("sample", "memory", "warmup", "refresh"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 1.")
        if self.memory < self.sample:
            raise ConfigError(f"memory is {self.memory}; expected at least the sample's size, {self.sample}.")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str) -> Online:
        """Settings by name, those of the calibration with its `method`; without one it is U-CAPC."""
        own = values.get("calibration")
        calibration = None if own is None else calibration_of({"method": "ucapc", **own}, f"{where}.calibration")
        others = {name: value for name, value in values.items() if name != "calibration"}
        return replace(from_mapping(cls, others, where), calibration=calibration)


class _Coming(NamedTuple):
    """What is being learnt of a group from so many of its frames, and the frame of the stream that it decides first."""

    at: int
    number: int
    frames: int
    learnt: Future[Learnt]

    def __deepcopy__(self, memo: object) -> _Coming:
        return self  # nothing in it will be another


@cache
def _background(process: int) -> ThreadPoolExecutor:
    """Of this process: a fork has what its parent had, but not the thread in it."""
    return ThreadPoolExecutor(1, thread_name_prefix="calibration")


class OnlineCalibrator:
    """Calibrates frames one at a time or a few at a time, in the order in which they are received.

    >>> stream = OnlineCalibrator(classes=10, features=64)                  # doctest: +SKIP
    >>> stream.push(embedding, logits).prediction                           # doctest: +SKIP
    """

    def __init__(
        self,
        classes: int,
        features: int,
        with_cfo: bool = False,
        settings: Online | None = None,
        source: SourceStatistics | None = None,
    ) -> None:
        settings = settings or Online()
        chosen = settings.calibration or (Careful() if source else UCAPC())
        self.settings, self.source = replace(settings, calibration=chosen), source
        self.rejection: Rejection | None = None  # not part of what is saved
        self.classes, self.features = classes, features
        self.finder = GroupFinder(classes, features, with_cfo, self.settings.finder)
        known = source or SourceStatistics()
        self._learner = Learner(classes, features, chosen, known, source is not None)
        if not chosen.freezes:  # what it misses of the source is said before a frame has come
            chosen.calibrate(np.zeros((1, features)), np.zeros((1, classes)), source=known)
        slots, room = self.settings.finder.groups, self.settings.finder.window + BLOCK
        self._arrays: dict[str, NDArray[Any]] = {
            "number": np.full(slots, -1),  # of the group that the rest of a slot belongs to
            "taken": np.zeros(slots, dtype=np.int64),  # frames offered to the sample so far
            "fitted": np.zeros(slots, dtype=np.int64),  # the group's frames at the last run of U-CAPC; zero before
            "prototypes": np.zeros((slots, classes, features)),
            "balanced": np.zeros(slots, dtype=bool),  # whether classes were balanced in it
            "potentials": np.zeros((slots, classes)),
            "sample_unit": np.zeros((slots, self.settings.sample, features)),
            "sample_logits": np.zeros((slots, self.settings.sample, classes)),
            "pending_unit": np.zeros((room, features)),
            "pending_logits": np.zeros((room, classes)),
        }
        self._coming: _Coming | None = None
        self._kept = ["unit", "logits"]  # of a frame
        if source is not None:
            self._kept.append("norm")
            self._arrays |= {
                "sample_norm": np.zeros((slots, self.settings.sample)),
                "pending_norm": np.zeros(room),
                "doubt": np.zeros(slots),  # bound of the alarm
                "evidence": np.zeros((slots, len(alarm.BETS))),
            }

    @classmethod
    def usual(
        cls, classes: int, features: int, with_cfo: bool, settings: Online, source: SourceStatistics
    ) -> OnlineCalibrator:
        """A stream by the calibration of the settings, or else by what `policy.usual` gives for this source."""
        settings, known = usual_stream(settings, source)
        return cls(classes, features, with_cfo, settings, source=known)

    @property
    def by(self) -> str:
        """What calibrates."""
        return self._learner.calibration.title

    @property
    def nbytes(self) -> int:
        """Memory of the state, which never grows."""
        return sum(values.nbytes for part in (self._arrays, self.finder.arrays) for values in part.values())

    def push(
        self,
        embedding: ArrayLike,
        logits: ArrayLike,
        cfo_hz: ArrayLike | None = None,
        frame: ArrayLike | None = None,
        error: NDArray[Any] | None = None,
    ) -> Decisions:
        """Decide the next frames, embedding (n, D) and logits (n, C), or the next one, (D,) and (C,).

        `cfo_hz` (n,) is the carrier frequency offset, which a stream made `with_cfo` needs. `frame` (n,) are numbers
        within recordings: give them only if they fall where a recording begins. `error` (n, D, D) of the embedding is
        for a rejection that looks at it.
        """
        z, scores = self._rows("embedding", embedding, self.features), self._rows("logits", logits, self.classes)
        if len(z) != len(scores):
            raise DataError(f"embedding has {len(z)} frames and logits {len(scores)}; both need one row per frame.")
        if (cfo_hz is not None) != self.finder.with_cfo:
            raise DataError(
                "this stream was made with_cfo: give cfo_hz with every frame."
                if self.finder.with_cfo
                else "this stream was made without cfo_hz. Make it with OnlineCalibrator(…, with_cfo=True)."
            )
        offset = _column("cfo_hz", cfo_hz, len(z), np.float64)
        number = _column("frame", frame, len(z), np.int64)
        if self.rejection is None:
            return self._push(z, scores, offset, number)
        unlike = self.rejection.unlike(z, scores, offset, error)
        known = unlike <= self.rejection.limit
        given = (None if values is None else values[known] for values in (z, scores, offset, number))
        return among(self._push(*given), known, scores, unlike)  # type: ignore[arg-type]

    def _push(
        self,
        z: NDArray[np.float64],
        scores: NDArray[np.float64],
        offset: NDArray[Any] | None,
        number: NDArray[Any] | None,
    ) -> Decisions:
        """Decide frames that are not set aside, and learn from them."""
        unit, norm, start = unit_rows(z), np.linalg.norm(z, axis=1), 0
        parts: list[Decisions] = []
        while start < len(z) or not parts:
            part = slice(start, start := start + self.finder.room)
            self._renew()
            parts.append(self._decide(unit[part], scores[part]))
            if len(unit[part]):
                given = {"unit": unit[part], "logits": scores[part], "norm": norm[part]}
                self._watch(parts[-1])
                self._learn(given, *(c if c is None else c[part] for c in (offset, number)))
        return parts[0] if len(parts) == 1 else Decisions.joined(parts)

    def _rows(self, name: str, values: ArrayLike, columns: int) -> NDArray[np.float64]:
        rows = np.asarray(values, dtype=np.float64)
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[1] != columns:
            raise DataError(f"{name} has shape {np.shape(values)}; expected (n, {columns}) or ({columns},).")
        if not np.isfinite(rows).all():
            raise DataError(f"{name} holds NaN or infinity; every value must be finite. Leave such frames out.")
        return rows

    def _decide(self, unit: NDArray[np.float64], logits: NDArray[np.float64]) -> Decisions:
        state, slot = self._arrays, self.finder.slot
        score = exponent = logits
        # A slot that was just given to a new group may still hold what the forgotten one had.
        if state["fitted"][slot] and state["number"][slot] == self.finder.current:
            potentials = state["potentials"][slot] if state["balanced"][slot] else None
            score, exponent = self._learner.scored(unit, logits, state["prototypes"][slot], potentials)
        probability = softmax(exponent)
        # Where all classes are equally likely the scores decide, as in `Recorder`.
        level = np.ptp(probability, axis=1) < 1e-9
        prediction = np.where(level, score.argmax(axis=1), probability.argmax(axis=1))
        group, quiet = np.full(len(unit), self.finder.current), np.zeros(len(unit), dtype=bool)
        return Decisions(probability, score, prediction, group, quiet)

    def _watch(self, decided: Decisions) -> None:
        """Bet against what was learnt of the group; where that was wrong it is forgotten."""
        state, slot = self._arrays, self.finder.slot
        if self.source is None or not state["fitted"][slot] or state["number"][slot] != self.finder.current:
            return
        found = alarm.evidence(state["evidence"][slot], float(state["doubt"][slot]), decided.probability)
        state["evidence"][slot] = found[-1]
        if (over := alarm.raised(found)).any():
            decided.alarm[over.argmax()] = True
            state["taken"][slot] = state["fitted"][slot] = 0
            state["evidence"][slot] = 0.0
            if self._coming is not None and self._coming.number == self.finder.current:
                self._coming = None

    def _learn(
        self,
        given: dict[str, NDArray[np.float64]],
        cfo_hz: NDArray[np.float64] | None,
        frame: NDArray[np.int64] | None,
    ) -> None:
        state, unit, logits = self._arrays, given["unit"], given["logits"]
        here = slice(self.finder.pending, self.finder.pending + len(unit))
        for name in self._kept:
            state[f"pending_{name}"][here] = given[name]
        for number, frames in self.finder.push(unit, logits.argmax(axis=1), cfo_hz, frame):
            self._sample(self._slot(number), frames)
            for name in self._kept:
                pending = state[f"pending_{name}"]
                pending[:-frames] = pending[frames:]
        slot = self._slot(self.finder.current)
        frames, fitted = int(state["taken"][slot]) + self.finder.pending, int(state["fitted"][slot])
        due = min(fitted, self.settings.refresh)  # a young group is fitted whenever it has doubled
        enough = frames >= self.settings.warmup and frames - fitted >= due
        if self.finder.seen % BLOCK == 0 and enough and self._coming is None:
            self._refresh(slot, frames)

    def _slot(self, number: int) -> int:
        """The slot of a group, emptied if another group had it before."""
        state = self._arrays
        slot = int((self.finder.arrays["number"] == number).argmax())
        if state["number"][slot] != number:
            state["number"][slot] = number
            state["taken"][slot] = state["fitted"][slot] = 0
            if self.source is not None:
                state["evidence"][slot] = 0.0
        return slot

    def _sample(self, slot: int, frames: int) -> None:
        """Offer the oldest undecided frames to the sample of their group."""
        state, size = self._arrays, self.settings.sample
        number, taken = int(state["number"][slot]), int(state["taken"][slot])
        order = np.arange(taken, taken + frames)
        draw = generator(0, "online-sample", number, taken).random(frames)
        place = np.where(order < size, order, (draw * np.minimum(order + 1, self.settings.memory)).astype(np.int64))
        kept = place < size
        for name in self._kept:
            state[f"sample_{name}"][slot, place[kept]] = state[f"pending_{name}"][:frames][kept]
        state["taken"][slot] += frames

    def _refresh(self, slot: int, frames: int) -> None:
        """Run U-CAPC on the sample of the current group and its undecided frames."""
        state, pending = self._arrays, self.finder.pending
        size = min(int(state["taken"][slot]), self.settings.sample)
        frames_of = {
            name: np.concatenate((state[f"sample_{name}"][slot, :size], state[f"pending_{name}"][:pending]))
            for name in self._kept
        }
        given = self.finder.several, frames_of
        if not self.settings.lag:
            self._hold(slot, frames, self._learner.learn(*given))
            return
        begun = _background(os.getpid()).submit(self._learner.learn, *given)
        self._coming = _Coming(self.finder.seen + self.settings.lag, self.finder.current, frames, begun)

    def _renew(self) -> None:
        """Decide by what the last run gave, from the frame on that it is for; unless its group is forgotten."""
        coming = self._coming
        if coming is None or self.finder.seen < coming.at:
            return
        self._coming = None
        slots = np.flatnonzero(self.finder.arrays["number"] == coming.number)
        if len(slots) and self._arrays["number"][slots[0]] == coming.number:
            self._hold(int(slots[0]), coming.frames, coming.learnt.result())

    def _hold(self, slot: int, frames: int, learnt: Learnt) -> None:
        for name, value in learnt._asdict().items():
            if name in self._arrays:  # only a stream that knows its source has an alarm
                self._arrays[name][slot] = value
        self._arrays["fitted"][slot] = frames

    def save(self, folder: str | Path) -> None:
        """Write `stream.safetensors` and `stream.json`; a stream that is loaded goes on as if it had not stopped."""
        arrays = {f"calibrator.{k}": v for k, v in self._arrays.items()}
        arrays |= {f"finder.{k}": v for k, v in self.finder.arrays.items()}
        arrays |= {} if self.source is None else {f"source.{k}": v for k, v in self.source.known().items()}
        about = {
            "kind": "online U-CAPC",
            "classes": self.classes,
            "features": self.features,
            "with_cfo": self.finder.with_cfo,
            "settings": asdict(self.settings) | {"calibration": self._calibration()},
            "counters": self.finder.counters(),
        }
        if self._coming is not None:
            at, number, frames, begun = self._coming
            learnt = begun.result()
            arrays |= {f"coming.{name}": getattr(learnt, name) for name in ("prototypes", "potentials")}
            about["coming"] = [at, number, frames, learnt.balanced, learnt.doubt]
        write_pair(Path(folder), NAME, SCHEMA, arrays, about)

    def _calibration(self) -> dict[str, Any]:
        """In the file: as earlier versions have it, if they can."""
        chosen = self._learner.calibration
        return asdict(chosen) if type(chosen) is UCAPC and self.source is None else settings_of(chosen)

    @classmethod
    def load(cls, folder: str | Path) -> OnlineCalibrator:
        """Read what `save` wrote; refuse what does not fit, saying why."""
        with described(Path(folder), NAME, SCHEMA, "a stream's state", MADE_BY) as (arrays, about):
            given = dict(about["settings"])
            own = given.get("calibration", {})
            arrays = {name: values for name, values in arrays.items() if name != "source.guard"}
            known = SourceStatistics.from_arrays(arrays, "source.")
            source = known if known.known() else None
            if about.get("guard") is not None or own.get("method") in DROPPED:
                own = settings_of(usual(known).calibration)
                gone = "an earlier version calibrated this stream under its guard, which is gone"
                warnings.warn(f"{folder}: {gone}. It goes on by {own['method']}.", stacklevel=2)
                given["calibration"] = own
            settings = Online.from_mapping(given, "settings")
            if "method" not in own and source:
                settings = replace(settings, calibration=None)  # earlier versions had one each, and did not name it
            stream = cls(about["classes"], about["features"], about["with_cfo"], settings, source)
            own = {f"calibrator.{k}": v.shape for k, v in stream._arrays.items()}
            own |= {f"source.{k}": v.shape for k, v in known.known().items()}
            if about.get("coming") is not None:
                shape = stream.classes, stream.features
                own |= {"coming.prototypes": shape, "coming.potentials": shape[:1]}
            check_shapes(Path(folder), arrays, own | {f"finder.{k}": v.shape for k, v in stream.finder.arrays.items()})
            stream._arrays = {name: arrays[f"calibrator.{name}"].copy() for name in stream._arrays}
            found = {name: arrays[f"finder.{name}"] for name in stream.finder.arrays}
            stream.finder.resume(found, about["counters"])
            if about.get("coming") is not None:
                at, number, frames, balanced, doubt = about["coming"]
                prototypes, potentials = (arrays[f"coming.{name}"].copy() for name in ("prototypes", "potentials"))
                done = Future[Learnt]()
                done.set_result(Learnt(prototypes, bool(balanced), potentials, float(doubt)))
                stream._coming = _Coming(int(at), int(number), int(frames), done)
        return stream


def usual_stream(settings: Online, source: SourceStatistics) -> tuple[Online, SourceStatistics | None]:
    """The settings of a stream, by what is usual with this source if they name no calibration, and what it is to know
    of the source."""
    chosen = settings.calibration or usual(source).calibration
    known = None if isinstance(chosen, UCAPC) else used(source) if isinstance(chosen, Careful) else source
    return replace(settings, calibration=chosen), known


def _column(name: str, values: ArrayLike | None, frames: int, kind: type) -> NDArray[Any] | None:
    """One finite number per frame, or none at all."""
    if values is None:
        return None
    column = np.atleast_1d(np.asarray(values))
    if column.shape != (frames,) or not np.isfinite(column).all():
        raise DataError(f"{name} has shape {np.shape(values)}; expected one finite number per frame, ({frames},).")
    return column.astype(kind)
