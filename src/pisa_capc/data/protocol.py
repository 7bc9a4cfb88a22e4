"""The cross-environment protocol: labelled source frames, unlabelled target frames, and the evaluator.

For every environment–device–capture group of n frames, a source gives round(0.2 n) random frames to validation and the
rest to training; a target leaves out 16 random frames (at most a quarter), the few-shot subset of the released
benchmark, which nothing here uses. Each group's draw depends on the split seed and the group's names alone.

Frames that are next to each other share their channel, and the windows of the CFO descriptor reach over 32 of them, so
random validation frames are not independent of the training. `held_out: block` takes one block of time instead.

Target labels are hidden by type: the target frames have no device column, and the `Evaluator` only returns scores. Its
one exception says what it is for by its name: `Evaluator.labels_for_drawing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.core.randomness import generator
from pisa_capc.data.deployments import Deployment, Drawn, draw_frames
from pisa_capc.data.descriptors import WINDOW
from pisa_capc.data.frames import Frames, UnlabelledFrames, check_labelled, group_name, groups_of
from pisa_capc.data.scores import CaptureScore, OpenSetScores, Scores, as_probability, macro_f1, openset_score, score
from pisa_capc.data.trials import VerificationScores, claim_scores

__all__ = ["CaptureScore", "Evaluator", "Scores", "Split", "SplitRecipe", "macro_f1", "split"]

# Stages of inference: the classifier's own decisions, after U-CAPC as published, the same under the guard that earlier
# versions had, and by what suits a capture. Files know them by these names, people by their titles.
DIRECT, PAPER, SAFE, CAREFUL = "direct", "paper", "safe", "careful"
STAGE_TITLES = MappingProxyType({PAPER: "U-CAPC", SAFE: "U-CAPC, safe"})
# Calibrations of earlier versions, and what to use instead: records hold their scores, and nothing makes new ones.
DROPPED = MappingProxyType({SAFE: "careful, which gains as much without further trainings"})
VALIDATION = 0.2  # of each source group
HELD_OUT = RANDOM, BLOCK = "random", "block"  # how its frames are chosen
FEW_SHOT = 16  # frames of each target group


def stage_title(stage: str) -> str:
    """What people read for a stage."""
    return STAGE_TITLES.get(stage, stage)


class Evaluator:
    """Holds the labels of the target and gives only scores, and colours for pictures of finished results.

    The labels live in a closure: no attribute, listing or printout leads to them.

    >>> frames = Frames.from_arrays(np.ones((4, 2, 8)), device=list("aabb"))
    >>> evaluator = Evaluator(frames)
    >>> evaluator.score([[1, 0], [1, 0], [1, 0], [0, 1]]).accuracy
    0.75
    """

    __slots__ = (
        *("_claims", "_draw", "_first_half", "_labels", "_macro_f1", "_openset", "_score", "_select", "_size"),
        "devices",
    )

    devices: tuple[str, ...]

    def __init__(self, frames: Frames, present: bool = False) -> None:
        """present: scores are over the devices that have frames, where some of those that are known have none."""
        labels, captures = frames.device, frames.capture_key

        def mark(outputs: ArrayLike) -> Scores:
            return score(outputs, labels, frames.devices, captures, present)

        def mark_openset(outputs: ArrayLike, known: ArrayLike, unknown: ArrayLike) -> OpenSetScores:
            return openset_score(known, as_probability(outputs).argmax(axis=1) == labels, unknown)

        def mark_claims(outputs: ArrayLike) -> VerificationScores | None:
            return claim_scores(labels, as_probability(outputs))

        def select(which: ArrayLike) -> Evaluator:
            return Evaluator(frames.select(which), present)

        def draw(deployment: Deployment, rng: np.random.Generator, unknown: NDArray[np.str_] | None) -> Drawn:
            return draw_frames(deployment, labels, captures, frames.frame, len(frames.devices), unknown, rng)

        def first_half() -> NDArray[np.bool_]:
            first = np.zeros(len(frames), dtype=bool)
            for members in groups_of(frames):
                first[members[: len(members) // 2]] = True
            return first

        def mark_rows(rows: ArrayLike, predictions: ArrayLike) -> float:
            return macro_f1(labels[np.asarray(rows)], predictions, len(frames.devices), present=True)

        self._score: Callable[[ArrayLike], Scores] = mark
        self._claims: Callable[[ArrayLike], VerificationScores | None] = mark_claims
        self._openset: Callable[[ArrayLike, ArrayLike, ArrayLike], OpenSetScores] = mark_openset
        self._select: Callable[[ArrayLike], Evaluator] = select
        self._draw: Callable[[Deployment, np.random.Generator, NDArray[np.str_] | None], Drawn] = draw
        self._first_half: Callable[[], NDArray[np.bool_]] = first_half
        self._macro_f1: Callable[[ArrayLike, ArrayLike], float] = mark_rows
        self._labels: Callable[[], NDArray[np.int64]] = lambda: labels.copy()
        self._size = len(frames)
        self.devices = frames.devices

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Evaluator({self._size} frames of {len(self.devices)} devices; labels hidden)"

    def score(self, outputs: ArrayLike) -> Scores:
        """Scores of class outputs (N, C), probabilities or logits, one row per target frame in order."""
        return self._score(outputs)

    def labels_for_drawing(self) -> NDArray[np.int64]:
        """(N,) device of each target frame, to colour the points of a picture with, and for nothing else.

        Whatever trains, calibrates or chooses must not call this: a result that saw target labels is worthless.
        """
        return self._labels()

    def openset(self, outputs: ArrayLike, known: ArrayLike, unknown: ArrayLike) -> OpenSetScores:
        """Open-set scores: class outputs (N, C) and unknown scores `known` (N,) of the target frames in order, and
        `unknown` (M,) of frames of devices that the source does not have."""
        return self._openset(outputs, known, unknown)

    def claims(self, outputs: ArrayLike) -> VerificationScores | None:
        """Curves of the claims of the target frames, each to be every device; None where there is one device alone."""
        return self._claims(outputs)

    def select(self, which: ArrayLike) -> Evaluator:
        """The evaluator of some of the frames, chosen as by `UnlabelledFrames.select`."""
        return self._select(which)

    def draw_deployment(
        self, deployment: Deployment, rng: np.random.Generator, unknown: NDArray[np.str_] | None = None
    ) -> Drawn:
        """The frames of a deployment, drawn from the target; `unknown` (M,): captures of frames of unknown devices.

        For what is scored and for nothing else: which frames are drawn depends on the labels, so nothing of it may
        reach what trains or chooses.
        """
        return self._draw(deployment, rng, unknown)

    def first_half(self) -> NDArray[np.bool_]:
        """(N,) mask of the first half of each device's frames of a capture, in order."""
        return self._first_half()

    def macro_f1(self, rows: ArrayLike, predictions: ArrayLike) -> float:
        """Macro-F1 of decisions (n,) about the frames in these rows (n,), over the devices that are among them."""
        return self._macro_f1(rows, predictions)


@dataclass(frozen=True)
class SplitRule:
    """Share of each source group that validates, and frames that each target group leaves out."""

    validation: float = VALIDATION  # share of the frames of each source group (device and capture), not trained on
    few_shot: int = FEW_SHOT  # frames that each target group (device and capture) leaves out of the scores
    held_out: str = RANDOM  # validation frames: random, as published, or one block of time in each source group

    def to_json(self) -> dict[str, Any]:
        """For records and models, which it names in part; what came later is left out where it is as published."""
        return {name: value for name, value in vars(self).items() if (name, value) != ("held_out", RANDOM)}

    def __post_init__(self) -> None:
        if self.held_out not in HELD_OUT:
            raise ConfigError("split.held_out: " + unknown_name("choice", self.held_out, HELD_OUT))
        if not 0 < self.validation < 1 or self.few_shot < 0:
            raise ConfigError(
                f"split: expected 0 < validation < 1 and few_shot ≥ 0, found {self.validation} and {self.few_shot}."
            )


@dataclass(frozen=True)
class SplitRecipe:
    """All that a split of given frames is determined by.

    source, target: names of environments; none may be both. validation: share of each source group, rounded to whole
    frames. few_shot: frames each target group leaves out; see `frames_left_out`. held_out: `random` validation frames,
    or a `block` of time of each source group, at a random place. Beside a block as many frames on either side are in
    neither part, 31 at most, so that no window of a descriptor reaches from one into the other.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    seed: int
    validation: float = VALIDATION
    few_shot: int = FEW_SHOT
    held_out: str = RANDOM

    def __post_init__(self) -> None:
        check_unseen(self.source, self.target)
        assert self.rule  # refused where no group can give it

    @property
    def rule(self) -> SplitRule:
        return SplitRule(self.validation, self.few_shot, self.held_out)

    def split(self, frames: Frames) -> Split:
        """The frames as source training, source validation and target, in dataset order within each part."""
        source, target = self._part(frames, "source", self.source), self._part(frames, "target", self.target)
        _check_classes(source, target)
        if self.held_out == BLOCK:
            held_out, trained = _blocks(source, self.seed, lambda n: round(self.validation * n))
        else:
            held_out = _draw(source, self.seed, "split", lambda n: round(self.validation * n))
            trained = ~held_out
        _check_not_empty(source, held_out, "validation")
        _check_not_empty(source, trained, "training")
        return Split(source.select(trained), source.select(held_out), *self._scored(target), self)

    def split_target(self, frames: Frames) -> Split:
        """Only the target part, of frames that need not hold the source; the other parts are empty."""
        target, nothing = self._part(frames, "target", self.target), frames.select([])
        return Split(nothing, nothing, *self._scored(target), self)

    def _part(self, frames: Frames, kind: str, names: tuple[str, ...]) -> Frames:
        check_labelled(frames)
        if not names:
            raise ConfigError(f"{kind}: no environment given. Known: {', '.join(frames.environments)}.")
        part = frames.where(environment=names)
        if not len(part):
            raise DataError(f"{kind}: no frames of {', '.join(names)} are selected.")
        return part

    def _scored(self, target: Frames) -> tuple[UnlabelledFrames, Evaluator]:
        kept = target.select(~_draw(target, self.seed, "few-shot", lambda n: frames_left_out(self.few_shot, n)))
        return kept.unlabelled(), Evaluator(kept)


@dataclass(frozen=True)
class Split:
    """One split of one direction. A class index is the device's index in the dataset, `devices` its name."""

    train: Frames
    validation: Frames
    target: UnlabelledFrames
    evaluator: Evaluator = field(repr=False)
    recipe: SplitRecipe

    @property
    def devices(self) -> tuple[str, ...]:
        return self.train.devices


def split(
    frames: Frames,
    source: Sequence[str] | str,
    target: Sequence[str] | str,
    seed: int,
    validation: float = VALIDATION,
    few_shot: int = FEW_SHOT,
    held_out: str = RANDOM,
) -> Split:
    """Split frames into source training, source validation and target; see `SplitRecipe`."""
    return SplitRecipe(_names(source), _names(target), seed, validation, few_shot, held_out).split(frames)


def leave_one_out(domains: Mapping[str, Sequence[str]]) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """For each environment that is left out: the names to train on, and those that stand for it.

    domains: the names each environment goes by: its own, or those of its captures where these stand in for
    environments (`capture_environment`).

    >>> leave_one_out({"E2": ["E2"], "E3": ["E3"]})["E2"]
    (('E3',), ('E2',))
    """
    return {
        left_out: (tuple(n for name, own in domains.items() if name != left_out for n in own), tuple(domains[left_out]))
        for left_out in domains
    }


def capture_environment(environment: str, capture: str) -> str:
    """What a capture is called that stands in for an environment, where too few are left to train on: E2.L1."""
    return f"{environment}.{capture}"


def check_unseen(sources: Iterable[str], targets: Iterable[str]) -> None:
    """Refuse a target environment that is also a source."""
    if both := sorted(set(sources) & set(targets)):
        raise ConfigError(f"environment {both[0]!r} is both source and target; a target must be unseen. Leave one out.")


def frames_left_out(few_shot: int, frames: int) -> int:
    """Few-shot frames of a target group: at most a quarter, so that groups of fewer than 64 keep most of theirs."""
    return min(few_shot, frames // 4)


def few_shot_note(few_shot: int, groups: Sequence[int]) -> str:
    """What to tell people where target groups of these sizes leave out fewer frames than asked; nothing otherwise."""
    short = [frames for frames in groups if frames_left_out(few_shot, frames) < few_shot]
    if not short:
        return ""
    least = min(short)
    return (
        f"{few_shot} frames of each target recording are set aside, as in the released benchmark; of {len(short)} "
        f"recordings fewer, for they are short: {frames_left_out(few_shot, least)} of {least}."
    )


def _names(value: Sequence[str] | str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([value] if isinstance(value, str) else value))


def _draw(frames: Frames, seed: int, purpose: str, count: Callable[[int], int]) -> NDArray[np.bool_]:
    """(N,) mask of `count(n)` random frames of every group of n.

    Frames are drawn by their time in the recording, so the order of rows in the dataset does not matter.
    """
    drawn = np.zeros(len(frames), dtype=bool)
    for members in groups_of(frames):
        in_time = members[np.argsort(frames.frame[members], kind="stable")]
        order = generator(seed, purpose, *group_name(frames, int(members[0]))).permutation(len(members))
        drawn[in_time[order[: count(len(members))]]] = True
    return drawn


def _blocks(frames: Frames, seed: int, count: Callable[[int], int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(N,) masks of a block of `count(n)` frames of every group of n, in time, and of what is far enough from it."""
    block, apart = np.zeros(len(frames), dtype=bool), np.ones(len(frames), dtype=bool)
    for members in groups_of(frames):
        in_time = members[np.argsort(frames.frame[members], kind="stable")]
        n, size = len(members), count(len(members))
        rng = generator(seed, "block", *group_name(frames, int(members[0])))
        start = int(rng.integers(n - size + 1))
        gap = min(WINDOW - 1, size)
        block[in_time[start : start + size]] = True
        apart[in_time[max(0, start - gap) : start + size + gap]] = False
    return block, apart


def _check_not_empty(frames: Frames, part: NDArray[np.bool_], name: str) -> None:
    if empty := [members for members in groups_of(frames) if not part[members].any()]:
        group = "/".join(group_name(frames, int(empty[0][0])))
        raise DataError(
            f"too few frames for the split: {group} has {len(empty[0])}, which leaves none for {name} "
            f"({len(empty)} such groups); expected at least 3 per capture. "
            "Use a larger set, or a larger --scale where it is simulated."
        )


def _check_classes(source: Frames, target: Frames) -> None:
    unseen = sorted(set(target.device.tolist()) - set(source.device.tolist()))
    if unseen:
        names = ", ".join(source.devices[i] for i in unseen)
        raise DataError(
            f"device {names}: recorded in the target and in no source environment, so it cannot be learned. "
            "Add a source environment that has it, or leave the device out."
        )
