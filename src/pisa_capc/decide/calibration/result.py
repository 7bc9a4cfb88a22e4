"""What a calibration gives back, and what a person wants to see of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pisa_capc.core.brief import brief
from pisa_capc.core.errors import DataError, MissingExtraError, unknown_name
from pisa_capc.decide.calibration.inputs import Array, Inputs
from pisa_capc.decide.calibration.workspace import Rows

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS_SHOWN = 50  # of a table in a notebook


@dataclass(frozen=True)
class CaptureSummary:
    """One capture in a line: how many frames, how many decisions changed, and how full the classes are."""

    capture: str | int
    frames: int
    changed: int
    mass_before: np.ndarray  # (C,) expected frames of each class by the source classifier, Σ_i softmax(ℓ_i)
    mass_after: np.ndarray  # (C,) the same by the calibrated probabilities, Σ_i π_i

    __repr__ = brief


class Judged(NamedTuple):
    """How a capture was judged by a calibration that chooses; `evenness` is what it chose by (`careful`)."""

    level: str
    evenness: float


@dataclass(frozen=True, repr=False)
class Calibration:
    """Calibrated frames (N) of C classes in R captures. Arrays per frame are of the kind and type of the logits."""

    probability: Array  # (N, C), rows sum to one
    score: Array  # (N, C)
    prediction: Array  # (N,) the most probable class; −1 for a rejected frame
    captures: tuple[CaptureSummary, ...]
    prototypes: np.ndarray | None  # (R, C, D) in the order of `captures`; none where a method has none
    inputs: Inputs
    known: Array | None = None  # (N,) false for frames rejected as unknown; none without a rejection
    unknown_score: Array | None = None  # (N,) float64, higher is more likely an unknown device
    judged: tuple[Judged, ...] | None = None  # how each capture was judged; none where nothing is chosen
    potentials: np.ndarray | None = None  # (R, C) the final transport's class potentials g; none without a prior
    p_value: Array | None = None  # (N,) float64, share of known devices' frames with an unknown score as high

    def __repr__(self) -> str:
        rejected = "" if self.known is None else f", {int((~torch.as_tensor(self.known)).sum()):,} rejected"
        return (
            f"{type(self).__name__}({len(self.prediction):,} frames, {self.inputs.classes} classes, "
            f"{len(self.captures):,} captures: {self.changed:,} decisions changed{rejected})"
        )

    def _repr_html_(self) -> str:
        """For notebooks: frames, changed decisions and how each capture was judged."""
        rows = [(c.capture, f"{c.frames:,}", f"{c.changed:,}") for c in self.captures]
        if self.judged is None:
            return html_table(repr(self), ("capture", "frames", "changed"), rows)
        levels = [(*row, one.level) for row, one in zip(rows, self.judged, strict=True)]
        return html_table(repr(self), ("capture", "frames", "changed", "level"), levels)

    @property
    def changed(self) -> int:
        """How many decisions differ from those of the source classifier."""
        return sum(capture.changed for capture in self.captures)

    def to_frame(self, classes: Sequence[str] | None = None) -> DataFrame:
        """A row per frame for pandas: capture, prediction, a probability of each class, and what a rejection found.

        classes: (C,) their names; the prediction is then a name too, None for a rejected frame.
        """
        if find_spec("pandas") is None:
            raise MissingExtraError("pandas", "pandas", "A data frame")
        import pandas

        count = self.inputs.classes
        names = [str(k) for k in range(count)] if classes is None else [str(name) for name in classes]
        if len(names) != count:
            raise DataError(f"classes: {len(names)} names; expected {count}, one for each column of the logits.")
        probability, prediction = _plain(self.probability), _plain(self.prediction)
        keys = [summary.capture for summary in self.captures]
        columns: dict[str, Any] = {"capture": [keys[r] for r in _plain(self.inputs.groups.index).tolist()]}
        columns["prediction"] = prediction
        if classes is not None:
            columns["prediction"] = [names[k] if k >= 0 else None for k in prediction.tolist()]
        columns |= {f"probability_{name}": probability[:, k] for k, name in enumerate(names)}
        for name in ("known", "unknown_score", "p_value"):
            if (found := getattr(self, name)) is not None:
                columns[name] = _plain(found)
        return pandas.DataFrame(columns)

    def capture(self, key: str | int | None = None) -> int:
        """The number of the capture called `key`; the first without one."""
        keys = [summary.capture for summary in self.captures]
        if key is None:
            return 0
        if key not in keys:
            raise DataError(unknown_name("capture", str(key), map(str, keys)))
        return keys.index(key)


def _plain(values: Array) -> np.ndarray:
    """On the CPU, as NumPy has it, which knows no bfloat16."""
    found = torch.as_tensor(values).cpu()
    return (found.float() if found.dtype == torch.bfloat16 else found).numpy()


def html_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for notebooks, escaped; of many rows the first."""
    shown = [*rows[:ROWS_SHOWN], *([[f"and {len(rows) - ROWS_SHOWN:,} more"]] if len(rows) > ROWS_SHOWN else [])]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in shown)
    lines = "".join(f"<tr>{cells}</tr>" for cells in (head, *body))
    return f"<table><caption>{escape(caption)}</caption>{lines}</table>"


class Recorder:
    """Collects a calibration block by block, writing into given arrays where there are any."""

    def __init__(self, inputs: Inputs, out: Mapping[str, Array] | None = None) -> None:
        self._inputs = inputs
        self._probability, self._score = (self._target(name, out or {}) for name in ("probability", "score"))
        self._prediction = inputs.logits.new_empty(len(inputs.logits), dtype=torch.int64)
        self._parts: list[tuple[list[int], Tensor]] = []
        self._prototypes: list[tuple[list[int], Tensor]] = []
        self._potentials: list[tuple[list[int], Tensor]] = []

    def _target(self, name: str, out: Mapping[str, Array]) -> Tensor:
        logits = self._inputs.logits
        if name not in out:
            return torch.empty_like(logits)
        given = out[name]
        target = given if isinstance(given, Tensor) else torch.from_numpy(given)
        if target.shape != logits.shape or not target.is_floating_point():
            raise DataError(
                f"out[{name!r}] is {tuple(target.shape)} of {target.dtype}; "
                f"expected floating point numbers of shape {tuple(logits.shape)}."
            )
        return target

    def write(self, batch: list[int], rows: Rows, logits: Tensor, score: Tensor, probability: Tensor) -> None:
        """Take one block (G, C, b) of the groups `batch`."""
        self.count(batch, self.put(rows, logits, score, probability))

    def count(self, batch: list[int], counted: Tensor) -> None:
        """Take what `put` counted in a block of the groups `batch`; sums are in the order of these calls."""
        self._parts.append((batch, counted))

    def put(self, rows: Rows, logits: Tensor, score: Tensor, probability: Tensor) -> Tensor:
        """Write one block (G, C, b); returns mass before, mass after and changed decisions (G, 2C + 1).

        Padding repeats a frame, so writing it twice is harmless.
        """
        frames, span = rows.index.reshape(-1), rows.span
        for target, values in ((self._probability, probability), (self._score, score)):
            columns = values.transpose(1, 2)
            if span is None:
                target.index_copy_(0, frames, columns.to(target.dtype).reshape(len(frames), -1))
            else:
                target[span] = columns[0]
        # On a CPU max is five times as quick as argmax.
        highest, decision = probability.max(dim=1)
        # Where all classes are equally likely (a capture of one frame is balanced so) the scores decide.
        level = highest - probability.amin(dim=1) < 1e-9
        decision = torch.where(level, score.max(dim=1).indices, decision)
        self._prediction.index_copy_(0, frames, decision.reshape(-1))
        changed = (decision != logits.max(dim=1).indices).unsqueeze(1).to(torch.float64)
        weight = rows.present.transpose(1, 2)
        counted = [torch.bmm(values, weight) for values in (torch.softmax(logits, dim=1), probability, changed)]
        return torch.cat(counted, dim=1).squeeze(-1)

    def prototypes(self, batch: list[int], prototypes: Tensor | None) -> None:
        """Take the prototypes (G, C, D) of the groups `batch`, where there are any."""
        if prototypes is not None:
            self._prototypes.append((batch, prototypes))

    def potentials(self, batch: list[int], potentials: Tensor | None) -> None:
        """Take the class potentials (G, C) of the groups `batch`, where there are any."""
        if potentials is not None:
            self._potentials.append((batch, potentials))

    def finish(self) -> Calibration:
        inputs, groups, classes = self._inputs, self._inputs.groups, self._inputs.classes
        counted = np.zeros((len(groups), 2 * classes + 1))
        for batch, values in self._parts:
            counted[batch] += values.cpu().numpy()
        captures = tuple(
            CaptureSummary(key, frames, round(row[-1]), row[:classes], row[classes:-1])
            for key, frames, row in zip(groups.keys, groups.counts, counted, strict=True)
        )
        probability, score, prediction = map(inputs.give_back, (self._probability, self._score, self._prediction))
        prototypes, potentials = map(self._by_group, (self._prototypes, self._potentials))
        return Calibration(probability, score, prediction, captures, prototypes, inputs, potentials=potentials)

    def _by_group(self, parts: list[tuple[list[int], Tensor]]) -> np.ndarray | None:
        """Values (G, …) of batches of groups as one array (R, …)."""
        if not parts:
            return None
        whole = np.zeros((len(self._inputs.groups), *parts[0][1].shape[1:]))
        for batch, values in parts:
            whole[batch] = values.cpu().numpy()
        return whole
