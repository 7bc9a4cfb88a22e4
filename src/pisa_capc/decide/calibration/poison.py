r"""Captures that look poisoned: too many of their frames resemble no known device.

A calibration learns from the unlabelled frames of a capture, and so from whatever an attacker adds to them. Against
frames that are like those of no device there is a check without labels. With u the distance of a frame from the
sessions of the source (`openset.session`) and t what all but `ALPHA` of known frames stay below in a place where none
was heard before, a capture of n frames is suspect where

    share of u > t      exceeds SHARE + MARGIN / √n,  or
    share of u > FAR t  exceeds FEW.

The numbers are those of source environments: each frame scored without the sessions of its own place, some two in a
thousand of the captures that `studies.calibrations` draws there are suspect. Frames of a known device, played back,
cannot be told from a device that sends often; what helps against them is a calibration that does not balance. Where
there are many unknown devices they count as poison: set them aside first (`OpenSet`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import require
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.openset.scores import score_frames
from pisa_capc.decide.calibration.openset.session import SessionDistance
from pisa_capc.model.inference.statistics import SourceStatistics

ALPHA = 0.05
FEWEST = math.ceil(1 / ALPHA) - 1  # validation frames, of which the limit is one
SHARE, MARGIN = 0.2, 0.5
FAR, FEW = 10.0, 0.02
NEEDED = ("session_mean", "session_label", "session_place", "session_frames", "session_covariance")
MEASURED = ("validation", "validation_logits", "validation_label", "validation_session")


def with_limit(source: SourceStatistics, like: Tensor, classes: int) -> SourceStatistics | None:
    """What the check needs of the source, its limit worked out; None where it lacks something. like: (n, D)."""
    known = source.known()
    if not all(name in known for name in NEEDED):
        return None
    limit = source.unlike_limit
    if limit is None:
        if not all(name in known for name in MEASURED) or len(known["validation_label"]) < FEWEST:
            return None
        limit = np.array(SessionDistance().limit(source, classes, like, ALPHA).threshold)
    return SourceStatistics(**{name: known[name] for name in NEEDED}, unlike_limit=limit)


def watch(source: SourceStatistics, like: Tensor, classes: int) -> Callable[[Tensor, Tensor], bool] | None:
    """Whether a capture is suspect, by its embeddings (n, D) and logits (n, C); None where the source lacks data."""
    known = with_limit(source, like, classes)
    if known is None:
        return None
    score = SessionDistance().fit(known, classes, like)
    limit = float(require(known, "unlike_limit", (), like, "the check for poison"))

    def suspect(embedding: Tensor, logits: Tensor) -> bool:
        found = score_frames(score, embedding, logits)
        share, far = (float((found > limit * times).double().mean()) for times in (1.0, FAR))
        return share > SHARE + MARGIN / math.sqrt(len(found)) or far > FEW

    return suspect


def suspects(inputs: Inputs, source: SourceStatistics, together: bool = False) -> list[int]:
    """The numbers of the groups that are suspect; `together`: all frames are one capture."""
    suspect = watch(source, inputs.embedding[:0].double(), inputs.classes)
    every = list(range(len(inputs.groups)))
    if suspect is None:
        return []
    found = []
    for own in [every] if together else [[r] for r in every]:
        rows = torch.cat([inputs.groups.rows(r) for r in own])
        found += own if suspect(inputs.embedding[rows].double(), inputs.logits[rows].double()) else []
    return found
