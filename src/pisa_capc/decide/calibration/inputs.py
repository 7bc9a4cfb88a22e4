"""What every calibration is given: embeddings, logits and capture identifiers, as NumPy arrays or torch tensors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pisa_capc.core.brief import brief
from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.decide.calibration.grouping import find_groups

Array: TypeAlias = "np.ndarray | Tensor"
Captures: TypeAlias = "np.ndarray | Tensor | Sequence[str] | Sequence[int]"

GROUPINGS = ("capture", "none", "auto")
EVERYTHING = "all"  # the name of the one group when frames are not grouped
_CHECK_ELEMENTS = 2**22
LOOKED_AT = 256  # rows of the logits that show whether they are probabilities


@dataclass(frozen=True)
class Groups:
    """Which frames belong together: those of group r are `order[starts[r] : starts[r] + counts[r]]`."""

    keys: tuple[str | int, ...]
    counts: tuple[int, ...]
    index: Tensor  # (N,) group of each frame
    order: Tensor  # (N,) frames sorted by group, in their own order within a group

    __repr__ = brief

    @cached_property
    def starts(self) -> tuple[int, ...]:
        return tuple(int(start) for start in np.cumsum((0, *self.counts))[:-1])

    def rows(self, group: int) -> Tensor:
        """Row numbers of the frames of one group."""
        start = self.starts[group]
        return self.order[start : start + self.counts[group]]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Inputs:
    """Checked input: embedding (N, D), logits (N, C), groups, and how far apart two logits of one frame can be."""

    embedding: Tensor
    logits: Tensor
    groups: Groups
    spread: float
    as_numpy: bool

    __repr__ = brief

    @property
    def classes(self) -> int:
        return self.logits.shape[1]

    def give_back(self, values: Tensor) -> Array:
        """A result in the kind the input came in."""
        return values.numpy() if self.as_numpy else values


def check_inputs(embedding: Array, logits: Array, capture: Captures | None = None, group: str = "capture") -> Inputs:
    """Embeddings, logits and captures as one checked object; anything unusable is a `DataError` that says why.

    With `group` "auto" the groups are found from the frames in their order (see `grouping`), and `capture` is not read.
    """
    if group not in GROUPINGS:
        raise ConfigError(unknown_name("grouping", str(group), GROUPINGS))
    as_numpy = not isinstance(logits, Tensor)
    scores, features = _floating("logits", logits), _floating("embedding", embedding).to(_device(logits))
    if len(features) != len(scores):
        raise DataError(
            f"embedding {tuple(features.shape)} and logits {tuple(scores.shape)} disagree: both need one row per frame."
        )
    if len(scores) == 0:
        raise DataError("there are no frames to calibrate: embedding and logits are empty.")
    _check_embedding(features)
    spread = _logit_spread(scores)
    if are_probabilities(scores[:LOOKED_AT]):
        warnings.warn(
            "logits look like probabilities: no number is negative, and each row sums to one. Give the scores before "
            "the softmax, or the logarithm of these.",
            stacklevel=3,
        )
    if look_exchanged(features, scores):
        warnings.warn(
            f"embedding ({features.shape[1]} columns) and logits ({scores.shape[1]} columns) look exchanged: each "
            "column of embedding is a linear map of logits, and not the other way round. Logits are the scores of the "
            "classes.",
            stacklevel=3,
        )
    if group == "auto":
        groups = _capture_groups(find_groups(_numpy(features), _numpy(scores)), scores)
    elif capture is None or group == "none":
        groups = _global_group(len(scores), scores.device)
    else:
        groups = _capture_groups(capture, scores)
    return Inputs(features, scores, groups, spread, as_numpy)


def are_probabilities(scores: Tensor) -> bool:
    """Whether rows (n, C) of several frames and classes are what a softmax leaves, not what it is given."""
    if len(scores) < 2 or scores.shape[1] < 2:
        return False
    sums = scores.double().sum(dim=1)
    return bool((scores >= 0).all() and ((sums - 1).abs() < 1e-3).all())


def look_exchanged(features: Tensor, scores: Tensor) -> bool:
    """Whether embedding (N, D) is an affine map of logits (N, C) with C > D, and not the other way round.

    A linear classifier maps embeddings to logits, so what is such a map of the other is what the classifier made.
    """
    rows, columns = min(len(scores), 4 * scores.shape[1] + 4), scores.shape[1]
    if columns <= features.shape[1] or columns > LOOKED_AT or rows < 2 * columns + 2:
        return False
    own, other = (part[:rows].double() for part in (features, scores))
    return _unexplained(own, other) < 1e-4 and _unexplained(other, own) > 1e-2


def _unexplained(values: Tensor, by: Tensor) -> float:
    """The share of the variance of values (n, D) that no affine map of (n, C) explains."""
    centred, regressors = (part - part.mean(dim=0) for part in (values, by))
    left = centred - regressors @ torch.linalg.lstsq(regressors, centred, driver=_driver(by)).solution
    total = float(centred.square().sum())
    return float(left.square().sum()) / total if total > 0 else 0.0


def _driver(like: Tensor) -> str:
    """What LAPACK solves with: on a GPU there is but one way."""
    return "gels" if like.is_cuda else "gelsd"


def _device(array: Array) -> torch.device:
    return array.device if isinstance(array, Tensor) else torch.device("cpu")


def _numpy(values: Tensor) -> np.ndarray:
    """As NumPy array, which knows no bfloat16."""
    return (values.float() if values.dtype == torch.bfloat16 else values).cpu().numpy()


def _floating(name: str, array: Array) -> Tensor:
    if not isinstance(array, Tensor):
        values = np.asanyarray(array)
        if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
            raise DataError(f"{name} has type {values.dtype}; expected float32 or float64 numbers.")
        if values.dtype.kind != "f" or not values.dtype.isnative:
            values = values.astype(np.float64)
        with warnings.catch_warnings():  # read-only arrays are fine: nothing here writes to its input
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            array = torch.from_numpy(np.ascontiguousarray(values))
    elif array.is_complex():
        raise DataError(f"{name} has type {array.dtype}; expected float32 or float64 numbers.")
    elif not array.is_floating_point():
        array = array.to(torch.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        columns = "C classes" if name == "logits" else "D features"
        raise DataError(f"{name} has shape {tuple(array.shape)}; expected (N frames, {columns}).")
    return array.detach()


def _check_embedding(features: Tensor) -> None:
    for block in features.split(max(1, _CHECK_ELEMENTS // features.shape[1])):
        low, high = map(float, torch.aminmax(block))
        if not math.isfinite(high - low):
            raise DataError(_not_finite("embedding", features))


def _logit_spread(scores: Tensor) -> float:
    """max_i (max_k ℓ_ik − min_k ℓ_ik); NaN and infinities cannot hide from it."""
    largest = 0.0
    for block in scores.split(max(1, _CHECK_ELEMENTS // scores.shape[1])):
        spread = float((block.amax(dim=1).double() - block.amin(dim=1).double()).max())
        if not math.isfinite(spread):
            raise DataError(_not_finite("logits", scores))
        largest = max(largest, spread)
    return largest


def _not_finite(name: str, values: Tensor) -> str:
    bad = (~torch.isfinite(values)).any(dim=1)
    if not bad.any():
        return f"{name} spans more than its type {values.dtype} can hold; scale it down."
    first = int(bad.nonzero()[0, 0])
    return (
        f"{name} holds NaN or infinity in {int(bad.sum())} of {len(values)} frames, first in frame {first}; "
        "every value must be finite. Remove these frames first."
    )


def _names(capture: np.ndarray) -> np.ndarray:
    """Identifiers as strings or whole numbers: a column of a table may hold them as objects, or be dates."""
    missing = 0
    if capture.dtype.kind == "M":
        missing = int(np.isnat(capture).sum())
    elif capture.dtype.kind in "OT":  # T: NumPy's strings of any length
        missing = sum(map(_is_missing, capture.flat))
    if missing:
        raise DataError(f"capture is missing in {missing} frames. Fill it in, or leave them out.")
    if capture.dtype.kind == "M":
        return capture.astype(str)
    for kind, plain in ((str, str), (Integral, np.int64), (date, str)) if capture.dtype.kind in "OT" else ():
        if all(isinstance(one, kind) for one in capture.flat):
            return np.array([plain(one) for one in capture.flat]).reshape(capture.shape)
    return capture


def _is_missing(value: Any) -> bool:
    """None, NaN, and what pandas puts where there is nothing, which is neither equal to itself nor different."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def _global_group(frames: int, device: torch.device) -> Groups:
    index = torch.zeros(frames, dtype=torch.int64, device=device)
    return Groups((EVERYTHING,), (frames,), index, torch.arange(frames, device=device))


def _capture_groups(capture: Captures, scores: Tensor) -> Groups:
    if isinstance(capture, Tensor):
        shape, kind = tuple(capture.shape), "f" if capture.is_floating_point() else "i"
    else:
        capture = _names(np.asarray(capture))
        shape, kind = capture.shape, capture.dtype.kind
    if shape != (len(scores),):
        raise DataError(f"capture has shape {shape}; expected one identifier per frame, ({len(scores)},).")
    if kind not in "iuUSb":
        raise DataError("capture holds neither strings nor integers; expected identifiers such as 'E1/L1' or 3.")
    if isinstance(capture, Tensor):
        ordered, order = torch.sort(capture, stable=True)
        found, index, counts = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
        keys, sizes = found.tolist(), counts.tolist()
        index = torch.empty_like(order).scatter_(0, order, index)
    else:
        found, inverse, tally = np.unique(capture, return_inverse=True, return_counts=True)
        keys = [key.decode(errors="replace") if isinstance(key, bytes) else key for key in found.tolist()]
        index, sizes = torch.from_numpy(inverse.reshape(-1)).to(scores.device), tally.tolist()
        order = torch.argsort(index, stable=True)
    return Groups(tuple(keys), tuple(sizes), index.to(scores.device), order.to(scores.device))
