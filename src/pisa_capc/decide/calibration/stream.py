"""A stream under way: frames as they come from a `feed`, decided, counted, and kept from one run to the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.calibration.feed import StreamFrame
from pisa_capc.decide.calibration.learning import Decisions
from pisa_capc.decide.calibration.online import Online, OnlineCalibrator, usual_stream
from pisa_capc.decide.calibration.openset.names import DEFAULT, MEASURED
from pisa_capc.decide.calibration.openset.reject import OpenSet, Rejection
from pisa_capc.decide.calibration.policy import AUTO, usual
from pisa_capc.decide.calibration.scores_file import UNKNOWN
from pisa_capc.decide.calibration.ucapc import UCAPC
from pisa_capc.model.inference.statistics import SourceStatistics

Rejecting: TypeAlias = Callable[[int, int], Rejection]  # of so many classes and features


def stream_rejection(name: str, alpha: float, source: SourceStatistics | None) -> Rejecting:
    """What fits the score called `name`, or the usual one, to a stream; its frames have no errors of their own."""
    OpenSet(UCAPC(), DEFAULT if name == AUTO else name, alpha)  # what is wrong is said before a frame has come
    if source is None:
        raise ConfigError("--reject needs what is known of the source: give --run, or an .npz of `pisa embed`.")
    score = usual(source).rejection if name == AUTO else name
    if score == MEASURED and name != AUTO:
        raise ConfigError("--reject gaussian needs the error of every frame, which streams do not hold. Use session.")
    score = DEFAULT if score == MEASURED else score
    return lambda classes, features: Rejection.fit(score, source, classes, features, alpha)


class DecidedStream:
    """Decides frames one at a time; the first says how many classes and features there are.

    devices: names of the classes, where they are known. recordings: numbers of frames fall where a recording begins.
    state: folder of what was learnt, from which it goes on. note: gets what people should know.
    """

    def __init__(
        self,
        settings: Online,
        source: SourceStatistics | None = None,
        devices: tuple[str, ...] = (),
        recordings: bool = False,
        state: Path | None = None,
        rejecting: Rejecting | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._settings, self._source = usual_stream(settings, source or SourceStatistics())
        self._devices, self._recordings, self._state = devices, recordings, state
        self._rejecting, self._note = rejecting, note
        self._calibrator: OnlineCalibrator | None = None
        self._started = 0.0
        self.frames = self.changed = self.groups = self.strangers = 0

    @property
    def frames_per_s(self) -> float:
        return self.frames / max(time.perf_counter() - self._started, 1e-9)

    def decide(self, frame: StreamFrame) -> Decisions:
        if self._calibrator is None:
            self._calibrator = self._begun(frame)
            if self._rejecting is not None:
                self._calibrator.rejection = self._rejecting(len(frame.logits), len(frame.embedding))
        number = frame.number if self._recordings else None
        decisions = self._calibrator.push(frame.embedding, frame.logits, frame.cfo_hz, number)
        self.frames += 1
        if decisions.prediction[0] < 0:
            self.strangers += 1
            return decisions
        self.changed += int(decisions.prediction[0] != frame.logits.argmax())
        self.groups = max(self.groups, int(decisions.group[0]) + 1)
        if decisions.alarm[0]:
            self._note(
                f"frame {frame.position}: frames of group {decisions.group[0]} have become less confident than "
                "those learnt from; the group is forgotten and learnt again."
            )
        return decisions

    def _begun(self, frame: StreamFrame) -> OnlineCalibrator:
        if self._devices and len(self._devices) != len(frame.logits):
            raise DataError(
                f"frames have {len(frame.logits)} logits, the run has {len(self._devices)} devices. "
                "Give the run whose model made them."
            )
        self._started = time.perf_counter()
        shape = len(frame.logits), len(frame.embedding), frame.cfo_hz is not None
        if self._state is None or not (self._state / "stream.json").is_file():
            return OnlineCalibrator(*shape, self._settings, source=self._source)
        stream = OnlineCalibrator.load(self._state)
        kept = stream.classes, stream.features, stream.finder.with_cfo
        alike = stream.settings == self._settings and (stream.source is None) == (self._source is None)
        if kept != shape or not alike:
            raise DataError(
                f"{self._state}: is the state of a stream with {kept[0]} classes, {kept[1]} features, "
                f"{'a' if kept[2] else 'no'} CFO and its own settings; these frames have {shape[0]} and {shape[1]}, "
                f"{'a' if shape[2] else 'no'} CFO. Give frames of one model and the same --set, or another --state."
            )
        return stream

    def line(self, frame: StreamFrame, decisions: Decisions, all_classes: bool) -> dict[str, Any]:
        """The decision on a frame, for JSON."""
        prediction, known = int(decisions.prediction[0]), bool(decisions.prediction[0] >= 0)
        likeliest = prediction if known else int(decisions.probability[0].argmax())
        return {
            "frame": frame.position if frame.number is None else frame.number,
            **({} if frame.capture is None else {"capture": frame.capture}),
            "prediction": prediction,
            **({"device": self._devices[prediction] if known else UNKNOWN} if self._devices else {}),
            "probability": float(decisions.probability[0, likeliest]),
            "group": int(decisions.group[0]),
            **({} if decisions.unknown_score is None else {"unknown_score": float(decisions.unknown_score[0])}),
            **(
                {"probabilities": decisions.probability[0].tolist(), "scores": decisions.score[0].tolist()}
                if all_classes
                else {}
            ),
        }

    def keep(self) -> None:
        """Write what was learnt, where there is a folder for it."""
        if self._state is not None and self._calibrator is not None:
            self._calibrator.save(self._state)
