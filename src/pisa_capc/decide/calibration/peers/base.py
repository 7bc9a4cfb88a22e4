"""What the comparison methods share, one group of frames at a time, in and out; and direct inference, the baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import Calibrator, register_calibration, require
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.result import Calibration, Judged, Recorder
from pisa_capc.decide.calibration.workspace import Rows
from pisa_capc.model.inference.statistics import SourceStatistics


class Transduced(NamedTuple):
    """One group after calibration, float64."""

    score: Tensor  # (n, C)
    probability: Tensor  # (n, C), rows sum to one
    prototypes: Tensor | None = None  # (C, D), where they live among the unit-length embeddings
    potentials: Tensor | None = None  # (C,) that go with them, as of U-CAPC
    judged: Judged | None = None


@dataclass(frozen=True)
class Peer(Calibrator):
    """A calibration that is one subclass with its settings and `transduce`.

    Published methods know no captures: by default all frames are one group. `group="capture"` gives a method the same
    information as U-CAPC; so does "auto", for groups that are found.
    """

    group: str = "none"  # "capture": each by itself; "auto": groups are found; "none": all frames together

    @property
    def counted(self) -> str:
        return "auto" if self.group == "auto" else "capture"

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        """Calibrate one group: embedding (n, D), logits (n, C), both float64."""
        raise NotImplementedError

    def calibrate_frames(self, inputs: Inputs, source: SourceStatistics, recorder: Recorder) -> Calibration:
        every = list(range(len(inputs.groups)))
        judged: dict[int, Judged] = {}
        for together in [every] if self.group == "none" else [[r] for r in every]:
            rows = torch.cat([inputs.groups.rows(r) for r in together])
            result = self.transduce(inputs.embedding[rows].double(), inputs.logits[rows].double(), source)
            self._record(inputs, result, together, recorder)
            if result.judged is not None:
                judged |= dict.fromkeys(together, result.judged)
        return replace(recorder.finish(), judged=tuple(judged[r] for r in every) if judged else None)

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
            if result.potentials is not None:
                recorder.potentials([r], result.potentials.unsqueeze(0))
            start += len(index)


def class_anchors(source: SourceStatistics, classes: int, like: Tensor, user: str) -> Tensor:
    """One direction per class from the source (C, D): class means, or else the classifier's rows."""
    means = source.tensor("class_mean", (classes, like.shape[1]), like)
    return means if means is not None else require(source, "weight", (classes, like.shape[1]), like, user)


@register_calibration("direct")
@dataclass(frozen=True)
class Direct(Peer):
    """p = softmax(ℓ). Needs no source statistics."""

    title = "direct"

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        return Transduced(logits, torch.softmax(logits, dim=1))
