"""What feeds an `OnlineCalibrator`: frames that come through a pipe as JSON lines, or stored scores played back.

A line is one frame:

    {"embedding": [0.12, …], "logits": [1.9, …], "cfo_hz": -1350.0, "frame": 17, "capture": "E1/L1"}

Embedding and logits are needed, the rest is not; other fields are not read. The order of the lines is that in which
the frames were received. A frame whose numbers are not finite (NaN, infinity or null) is left out, as
`OnlineCalibrator.push` wants it: a receiver has such frames, and they change nothing. Anything else that is wrong comes
from a producer that does not do what was meant, and is an error that names the line, or, where that was asked for, a
line that is skipped and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration.grouping import check_column
from pisa_capc.decide.calibration.inputs import check_inputs
from pisa_capc.decide.calibration.learning import Decisions

LONGEST = 2**20  # bytes of a line: some 50,000 numbers
EXPECTED = '{"embedding": […], "logits": […]}'


@dataclass(frozen=True)
class StreamFrame:
    """One frame as it is received: embedding (D,), logits (C,), and what else is known of it."""

    position: int  # in the stream, from 0; frames that are left out count
    embedding: NDArray[np.float64]
    logits: NDArray[np.float64]
    cfo_hz: float | None = None
    number: int | None = None  # its `frame`: as the receiver counts it
    capture: str | int | None = None


class LineReader:
    """The frames of JSON lines in their order, read when they are asked for; to be iterated over once.

    `note` gets each frame that is left out, and the first frame whose number falls. With `recordings` that is
    where a recording begins, and every frame needs a number. With `skip_bad` a line that is no frame is left out too.
    """

    def __init__(
        self, file: BinaryIO, note: Callable[[str], None], recordings: bool = False, skip_bad: bool = False
    ) -> None:
        self.left_out = 0
        self.skipped = 0  # lines that are no frames
        self._skip_bad = skip_bad
        self._file, self._note, self._recordings = file, note, recordings
        self._sizes: dict[str, int] = {}  # of embedding and logits, as of the first frame
        self._with_cfo: bool | None = None
        self._highest: int | None = None
        self._watched = not recordings

    def __iter__(self) -> Iterator[StreamFrame]:
        position = 0
        for line, text in enumerate(iter(lambda: self._file.readline(LONGEST), b""), 1):
            if not text.strip():
                continue
            known = dict(self._sizes), self._with_cfo  # a line that is skipped says nothing about the others
            try:
                frame = self._frame(position, _fields(text))
            except DataError as error:
                if not self._skip_bad:
                    raise DataError(f"line {line}: {error}") from error
                self._sizes, self._with_cfo = known
                self.skipped += 1
                self._note(f"line {line} is skipped: it {error}")
                continue
            position += 1
            self._watch_order(line, frame.number)
            if unusable := _not_finite(frame):
                self.left_out += 1
                self._note(f"line {line} is left out: {unusable} is not finite (NaN, infinity, null or too large).")
            else:
                yield frame

    def _frame(self, position: int, fields: Mapping[str, Any]) -> StreamFrame:
        missing = [name for name in ("embedding", "logits") if name not in fields]
        if missing:
            found = ", ".join(map(_short, fields)) or "nothing"
            raise DataError(f"has no {' and no '.join(missing)}; found {found}, expected {EXPECTED}.")
        number, capture = fields.get("frame"), fields.get("capture")
        if self._recordings and number is None:
            raise DataError("has no frame; --recordings needs its number within the recording.")
        if number is not None and (type(number) is not int or abs(number) >= 2**63):
            raise DataError(f"frame is {_short(number)}; expected a whole number of 64 bits.")
        if capture is not None and type(capture) not in (str, int):
            raise DataError(f"capture is {_short(capture)}; expected a name or a whole number.")
        embedding, logits = (self._row(name, fields[name]) for name in ("embedding", "logits"))
        return StreamFrame(position, embedding, logits, self._cfo_hz(fields), number, capture)

    def _row(self, name: str, values: Any) -> NDArray[np.float64]:
        if not isinstance(values, list) or not values:
            raise DataError(f"{name} is {_short(values)}; expected a list of numbers.")
        size = self._sizes.setdefault(name, len(values))
        if len(values) != size:
            raise DataError(
                f"{name} has {len(values)} numbers; expected {size}, as in the first frame. "
                "All frames of a stream must be of one model."
            )
        return _numbers(name, values)

    def _cfo_hz(self, fields: Mapping[str, Any]) -> float | None:
        given = "cfo_hz" in fields
        if self._with_cfo is None:
            self._with_cfo = given
        if given != self._with_cfo:
            found = "has cfo_hz, the first frame had none" if given else "has no cfo_hz, the first frame had one"
            raise DataError(f"{found}. Send it with every frame, or with none.")
        return float(_numbers("cfo_hz", [fields["cfo_hz"]])[0]) if given else None

    def _watch_order(self, line: int, number: int | None) -> None:
        if number is None or not self._watched:
            return
        if self._highest is not None and number < self._highest:
            self._watched = False
            self._note(
                f"line {line}: frame {number} comes after {self._highest}; frames are decided in the order of their "
                "lines. Use --recordings if numbers restart with every recording."
            )
        self._highest = number


class Playback:
    """Stored scores as a stream: embedding (N, D), logits (N, C) and, where they are known, cfo_hz, frame and capture.

    Frames are played in the order of `frame`. Where numbers repeat they count within recordings, and the captures are
    played one after the other, as a receiver would have heard them. Without `frame` the order is that of the rows.
    """

    left_out = skipped = 0  # what cannot be used is refused before the first frame

    def __init__(self, arrays: Mapping[str, np.ndarray], recordings: bool = False) -> None:
        inputs = check_inputs(arrays["embedding"], arrays["logits"], arrays.get("capture"))
        self.arrays, self._groups = arrays, inputs.groups
        self._embedding, self._logits = inputs.embedding.numpy(), inputs.logits.numpy()
        for name in ("cfo_hz", "frame"):
            if name in arrays:
                check_column(name, arrays[name], len(self))
        if recordings and "frame" not in arrays:
            raise DataError("the scores have no frame; --recordings needs the frames' numbers within their recordings.")
        self.order = np.arange(len(self))  # rows, in the order in which they are played
        if (number := arrays.get("frame")) is not None:
            counted_on = len(np.unique(number)) == len(self)
            self.order = np.lexsort((number,) if counted_on else (number, self._groups.index.numpy()))

    def __len__(self) -> int:
        return len(self._logits)

    def __iter__(self) -> Iterator[StreamFrame]:
        cfo_hz, number = self.arrays.get("cfo_hz"), self.arrays.get("frame")
        capture = self._groups.index.tolist() if "capture" in self.arrays else None
        for position, row in enumerate(self.order):
            yield StreamFrame(
                position,
                self._embedding[row],
                self._logits[row],
                None if cfo_hz is None else float(cfo_hz[row]),
                None if number is None else int(number[row]),
                None if capture is None else self._groups.keys[capture[row]],
            )

    def by_row(self, played: Sequence[Decisions]) -> Decisions:
        """The decisions about all frames in the order of the stored rows, in the precision of their logits."""
        back = np.argsort(self.order)
        whole = vars(Decisions.joined(played))
        arrays = {name: values[back] for name, values in whole.items() if values is not None}
        rounded = {name: arrays[name].astype(self._logits.dtype) for name in ("probability", "score")}
        return Decisions(**arrays | rounded)


def _fields(text: bytes) -> dict[str, Any]:
    """The object that a line holds."""
    if len(text) == LONGEST and not text.endswith(b"\n"):
        raise DataError(f"is longer than {LONGEST:,} bytes; expected one frame, {EXPECTED}.")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        cut = "" if text.endswith(b"\n") else "; the input ends within it"
        raise DataError(f"is no JSON ({error}){cut}. Expected {EXPECTED}.") from error
    if not isinstance(fields, dict):
        raise DataError(f"is {_short(fields)}; expected an object, {EXPECTED}.")
    return fields


def _numbers(name: str, values: list[Any]) -> NDArray[np.float64]:
    """(n,) float64; null, which is how some producers write NaN, becomes NaN."""
    odd = next((v for v in values if type(v) not in (float, int) and v is not None), None)
    if odd is not None:
        raise DataError(f"{name} holds {_short(odd)}; expected numbers.")
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # a whole number beyond all that float64 holds
        return np.full(len(values), np.inf)


def _not_finite(frame: StreamFrame) -> str | None:
    """Which of a frame's numbers cannot be used: those whose length is not finite."""
    with np.errstate(all="ignore"):
        for name in ("embedding", "logits", "cfo_hz"):
            values = getattr(frame, name)
            if values is not None and not np.isfinite(np.dot(values, values)):
                return name
    return None


def _short(value: Any) -> str:
    """A value as it stood in its line, or its beginning."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
