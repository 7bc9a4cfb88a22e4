"""What the comparison methods share: one interface, and how source statistics reach them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pisa_capc.calibration.batches import Rows
from pisa_capc.calibration.inputs import GROUPINGS, Array, Captures, Inputs, check_inputs
from pisa_capc.calibration.result import Calibration, Recorder
from pisa_capc.errors import ConfigError, DataError, unknown_name
from pisa_capc.inference.statistics import PREFIX, SourceStatistics


class Transduced(NamedTuple):
    """One group after calibration, float64."""

    score: Tensor  # (n, C)
    probability: Tensor  # (n, C), rows sum to one
    prototypes: Tensor | None = None  # (C, D), where they live among the unit-length embeddings


@dataclass(frozen=True)
class Peer:
    """A calibration behind the interface of `UCAPC`. A method is one subclass with its parameters and `transduce`.

    Published methods know no captures: by default all frames are one group. `group="capture"` gives a method the same
    information as U-CAPC; so does "auto", for groups that are found.
    """

    group: str = "none"

    def __post_init__(self) -> None:
        if self.group not in GROUPINGS:
            raise ConfigError(unknown_name("grouping", str(self.group), GROUPINGS))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        """Calibrate one group: embedding (n, D), logits (n, C), both float64."""
        raise NotImplementedError

    def calibrate(
        self,
        embedding: Array,
        logits: Array,
        capture: Captures | None = None,
        source: SourceStatistics | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Calibration:
        """As `UCAPC.calibrate`; `source` holds the statistics some methods need."""
        inputs = check_inputs(embedding, logits, capture, "auto" if self.group == "auto" else "capture")
        recorder = Recorder(inputs, out)
        known = source or SourceStatistics()
        if self.group == "none":
            every = list(range(len(inputs.groups)))
            self._record(inputs, self._run(inputs, inputs.groups.order, known), every, recorder)
        else:
            for r in range(len(inputs.groups)):
                self._record(inputs, self._run(inputs, inputs.groups.rows(r), known), [r], recorder)
        return recorder.finish()

    def _run(self, inputs: Inputs, rows: Tensor, source: SourceStatistics) -> Transduced:
        return self.transduce(inputs.embedding[rows].double(), inputs.logits[rows].double(), source)

    def _record(self, inputs: Inputs, result: Transduced, captures: list[int], recorder: Recorder) -> None:
        """Hand over the rows of `result`, which are those of `captures` one after the other."""
        start = 0
        for r in captures:
            index = inputs.groups.rows(r)
            part = slice(start, start + len(index))
            rows = Rows(index.unsqueeze(0), torch.ones(1, 1, len(index), dtype=torch.float64, device=index.device))
            logits = inputs.logits[index].double()
            blocks = (block.T.unsqueeze(0) for block in (logits, result.score[part], result.probability[part]))
            recorder.write([r], rows, *blocks)
            if result.prototypes is not None:
                recorder.prototypes([r], result.prototypes.unsqueeze(0))
            start += len(index)


def require(source: SourceStatistics, name: str, shape: tuple[int, ...], like: Tensor, method: str) -> Tensor:
    """A source statistic that `method` cannot do without."""
    values = source.tensor(name, shape, like)
    if values is None:
        raise DataError(
            f"{method} needs {PREFIX}{name} {shape}, which the scores do not hold. "
            f"Write the scores with pisa embed, or add the array to the .npz (in Python: SourceStatistics({name}=…))."
        )
    return values


def class_anchors(source: SourceStatistics, classes: int, like: Tensor, method: str) -> Tensor:
    """One direction per class from the source (C, D): class means, or else the classifier's rows."""
    means = source.tensor("class_mean", (classes, like.shape[1]), like)
    return means if means is not None else require(source, "weight", (classes, like.shape[1]), like, method)


def unit(vectors: Tensor) -> Tensor:
    """Vectors (…, D) at length one; zero stays zero."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(length > 0, length, 1.0)


def check_range(method: object, **ranges: tuple[float, float]) -> None:
    """Raise unless every named parameter of `method` lies in its closed range."""
    for name, (low, high) in ranges.items():
        value = getattr(method, name)
        if not low <= value <= high:
            raise ConfigError(f"{name} is {value}; expected a number from {low:g} to {high:g}.")
