r"""U-CAPC: Unlabeled Capture-Aware Prototype Calibration.

Decisions of a frozen classifier are corrected with what the unlabelled frames of one capture say about each other:
soft class assignments (balanced over the capture by default) give one prototype per class, and agreement with the
prototypes is added to the logits. Written with the paper's symbols for one capture group r:

    assignment      Q_ik = (1 − μ) softmax_k(s_ik) + μ [B(S)]_ik        `soft_assignment`
    prototype       p_k  = Σ_{i∈I_k} Q_ik z_i / ‖Σ_{i∈I_k} Q_ik z_i‖     `capture_prototypes`
    its score       a_ik = z_iᵀ p_k / τ_p                               `prototype_scores`
    fusion          s_i  = ℓ_i + λ_p a_i                                `fuse_scores`
    decision        π_i  = [B(S)]_i or softmax(s_i)                     `final_probability`

The first four are repeated T_p times from s = ℓ. Arrays inside are class-major, (G groups, C classes, b frames), and
float64 whatever the input: the top K_p frames of a class are ranked by assignments that are often 1 − 1e-9, which
float32 cannot tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.decide.calibration import sinkhorn
from pisa_capc.decide.calibration.base import Calibrator, register_calibration
from pisa_capc.decide.calibration.blocks import Blocks
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.result import Calibration, Recorder
from pisa_capc.decide.calibration.retained import retained_sums
from pisa_capc.decide.calibration.vectors import unit
from pisa_capc.decide.calibration.workspace import Workspace, batches, workspace
from pisa_capc.model.inference.statistics import SourceStatistics

PRIORS = ("balanced", "none")
Rows = TypeVar("Rows", Tensor, NDArray[Any])


def soft_assignment(
    scores: Tensor, present: Tensor, potential: Tensor | None, balance: float = 1.0, epsilon: float = 1.0
) -> Tensor:
    """Q = (1 − μ) softmax(S) + μ B(S), Eq. (ucapc_assignment). Scores (G, C, b) → (G, C, b), zero for padding.

    `present` (G, 1, b) is one for a frame and zero for padding. `potential` (G, C) is that of
    `sinkhorn.class_potential`; without it μ is zero.
    """
    if potential is None:
        return torch.softmax(scores, dim=1).mul_(present)
    assigned = sinkhorn.assignment(scores, potential, epsilon)
    if balance != 1:
        assigned = torch.lerp(torch.softmax(scores, dim=1), assigned, balance)
    return assigned.mul_(present)


def capture_prototypes(
    assignment: Blocks[Tensor], embedding: Blocks[Tensor], top: int = 512, threshold: float = 0.0
) -> Tensor:
    """p_k, the unit-length weighted sum of the frames retained for class k, Eq. (pseudo_prototype).

    `assignment` holds blocks Q (G, C, b), zero for padding; `embedding` blocks z (G, b, D) of unit length. Retained are
    frames with Q_ik ≥ threshold, and of these the `top` largest Q_ik. Where t frames are tied for the last m places
    each enters with weight m/t, which is the mean over all ways to break the tie: the result does not depend on the
    order of the frames. A class without a retained frame has the prototype zero. Returns (G, C, D).
    """
    retained = assignment
    if threshold > 0:
        retained = assignment.map(lambda block: torch.where(block >= threshold, block, 0.0), keep=False)
    total = retained_sums(retained, embedding, top, assignment.kept)
    return unit(total, out=total)


def prototype_scores(embedding: Tensor, prototypes: Tensor, temperature: float = 0.2) -> Tensor:
    """a = zᵀp / τ_p, Eq. (prototype_scores): embedding (G, b, D), prototypes (G, C, D) → (G, C, b)."""
    return torch.bmm(prototypes / temperature, embedding.transpose(1, 2))


def fuse_scores(logits: Tensor, prototype_score: Tensor, fusion: float = 2.0) -> Tensor:
    """s = ℓ + λ_p a, Eq. (prototype_update)."""
    return torch.add(logits, prototype_score, alpha=fusion)


def final_probability(scores: Tensor, potential: Tensor | None, epsilon: float = 1.0) -> Tensor:
    """π, Eq. (ucapc_final_prediction): balanced with a potential, softmax without. (G, C, b) → (G, C, b)."""
    return torch.softmax(scores, dim=1) if potential is None else sinkhorn.assignment(scores, potential, epsilon)


def scored_rows(
    unit: Rows, logits: Rows, prototypes: Rows, potentials: Rows | None, settings: UCAPC
) -> tuple[Rows, Rows]:
    """s = ℓ + λ_p zᵀp / τ_p and s / ε + g of frames by rows, in NumPy or torch: what later frames are decided by.

    unit (n, D), logits (n, C), prototypes (C, D), potentials (C,) where classes are balanced.
    """
    score = logits + (settings.fusion / settings.temperature) * (unit @ prototypes.T)
    return score, score if potentials is None else score / settings.epsilon + potentials


def head_of(calibration: Calibrator, balanced: bool = True) -> UCAPC:
    """How later frames meet the prototypes that a calibration leaves: by its own settings, or by the published ones."""
    own = calibration if isinstance(calibration, UCAPC) else UCAPC(group=calibration.group)
    settings = {field.name: getattr(own, field.name) for field in fields(UCAPC)}
    return UCAPC(**{**settings, "prior": "balanced" if balanced else "none"})


Transport: TypeAlias = Callable[[Blocks[Tensor]], Tensor]  # scores → class potentials g (G, C), by Sinkhorn


class GroupResult(NamedTuple):
    """A batch of G groups after calibration."""

    decided: Blocks[tuple[Tensor, Tensor]]  # scores s and probabilities π, (G, C, b) each
    prototypes: Tensor | None  # p (G, C, D); none without a pass
    potential: Tensor | None  # g (G, C) of the final transport; none without a prior


@register_calibration("ucapc")
@dataclass(frozen=True)
class UCAPC(Calibrator):
    """Calibrates the decisions of any frozen classifier with unlabelled frames, as published.

    >>> result = UCAPC().calibrate(embedding, logits, capture)              # doctest: +SKIP
    >>> result.prediction, result.changed                                   # doctest: +SKIP

    Memory beyond input and output is bounded by 16 bytes a frame for the grouping, one workspace and some dozens of
    blocks of 16 MiB (a few of 256 MiB on a GPU): groups that do not fit the workspace are streamed, with the same
    result, through a temporary file of four or eight bytes a score.
    """

    title = "U-CAPC"
    freezes = True
    threshold: float = 0.0  # confidence a frame needs to enter a prototype
    top: int = 512  # K_p, frames of a prototype at most
    temperature: float = 0.2  # τ_p, of the agreement with prototypes, a = zᵀp / τ_p
    fusion: float = 2.0  # λ_p, weight of that agreement beside the logits, s = ℓ + λ_p a
    passes: int = 3  # T_p, times that assignment, prototypes and scores are made anew
    balance: float = 1.0  # μ, share of the balanced assignment
    sinkhorn_iterations: int = 20  # of the balanced assignment
    epsilon: float = 1.0  # ε, entropic smoothing
    prior: str = "balanced"  # "none": μ = 0 and a plain softmax at the end
    group: str = "capture"  # "none": all frames are one group; "auto": groups are found, see `grouping`
    workspace_mib: int = 1024  # memory of a pass; changes nothing beyond the precision of the logits
    _priors: ClassVar[tuple[str, ...]] = PRIORS

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = {"temperature": self.temperature, "epsilon": self.epsilon}
        for name, value in positive.items():
            if not 0 < value < float("inf"):
                raise ConfigError(f"{name} is {value}; expected a positive number.")
        for name, least in {"top": 1, "passes": 0, "sinkhorn_iterations": 1, "workspace_mib": 0}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least {least}.")
        for name in ("threshold", "balance"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected a number from 0 to 1.")
        if not abs(self.fusion) < float("inf"):
            raise ConfigError(f"fusion is {self.fusion}; expected a finite number.")
        if self.prior not in self._priors:
            raise ConfigError(unknown_name("prior", str(self.prior), self._priors))

    @classmethod
    def preset(cls, name: str, **changes: Any) -> UCAPC:
        """A row of the calibration ablation by name (see `PRESETS`), with `changes` to it."""
        if name not in PRESETS:
            raise ConfigError(unknown_name("preset", name, PRESETS))
        return replace(PRESETS[name], **changes)

    def without_balance(self) -> UCAPC:
        return replace(self, prior="none")

    def calibrate_frames(self, inputs: Inputs, source: SourceStatistics, recorder: Recorder) -> Calibration:
        """Every batch of capture groups in turn; of the source the published calibration needs nothing."""
        shares, relaxation = self.class_shares(inputs, source)
        # Unit vectors bound the prototype's part of a score by ± λ_p / τ_p.
        spread = inputs.spread + 2 * abs(self.fusion) / self.temperature
        file: IO[bytes] | None = None  # of kernels that do not fit in memory, one after the other
        for batch in batches(inputs):
            group = workspace(inputs, batch, self.workspace_mib)
            if file is None and not group.keep:
                file = TemporaryFile()  # noqa: SIM115  (lives as long as this walk over the groups)
            transport = partial(
                sinkhorn.class_potential,
                frames=group.present,
                iterations=self.sinkhorn_iterations,
                epsilon=self.epsilon,
                spread=spread,
                keep=group.keep,
                shares=None if shares is None else shares[batch],
                relaxation=relaxation,
                rounded=inputs.logits.dtype == torch.float32,
                file=file,
            )
            result = self.calibrate_group(group, transport)
            for counted in result.decided.walk(lambda own, *of: recorder.put(*of, *own), group.rows, group.logits):
                recorder.count(batch, counted)
            recorder.prototypes(batch, result.prototypes)
            recorder.potentials(batch, result.potential)
        return recorder.finish()

    def class_shares(self, inputs: Inputs, source: SourceStatistics) -> tuple[Tensor | None, float]:
        """Class shares (R, C) of the transport and how firmly they are held: equal and exact, as published."""
        return None, math.inf

    def calibrate_group(self, group: Workspace, transport: Transport) -> GroupResult:
        """One capture group r in the paper's order; `group` holds a batch of them, each calibrated by itself."""
        balance = 0.0 if self.prior == "none" else self.balance
        scores, prototypes = group.logits, None
        for _ in range(self.passes):
            potential = transport(scores) if balance > 0 else None
            assign = partial(soft_assignment, potential=potential, balance=balance, epsilon=self.epsilon)
            assignment = scores.map(assign, group.present, keep=group.keep)
            prototypes = capture_prototypes(assignment, group.features, self.top, self.threshold)
            del assignment  # its memory serves the next walk
            score = partial(prototype_scores, prototypes=prototypes, temperature=self.temperature)
            fuse = partial(fuse_scores, fusion=self.fusion)
            scores = group.logits.map(fuse, group.features.map(score, keep=False), keep=group.keep)
        final = None if self.prior == "none" else transport(scores)
        decide = partial(final_probability, potential=final, epsilon=self.epsilon)
        return GroupResult(scores.map(lambda s: (s, decide(s)), keep=False), prototypes, final)


# The rows of the paper's calibration ablation. "paper" is the row it calls full.
PRESETS: dict[str, UCAPC] = {
    "paper": UCAPC(),
    "direct": UCAPC(passes=0, prior="none"),
    "without-grouping": UCAPC(group="none"),
    "without-prior": UCAPC(prior="none"),
}


def replaced(result: Calibration, chosen: list[int], calibration: UCAPC) -> Calibration:
    """The result with the captures `chosen` calibrated in another way."""
    inputs = result.inputs
    rows = torch.cat([inputs.groups.rows(r) for r in chosen])
    # Group numbers as captures keep the order, whatever the captures are called.
    other = calibration.calibrate(inputs.embedding[rows], inputs.logits[rows], inputs.groups.index[rows])
    arrays: dict[str, Any] = {}
    for name in ("probability", "score", "prediction"):
        target = torch.as_tensor(getattr(result, name))
        target[rows] = torch.as_tensor(getattr(other, name)).to(target.dtype)  # in place: it may be a file
        arrays[name] = inputs.give_back(target)
    captures = list(result.captures)
    for r, summary in zip(chosen, other.captures, strict=True):
        captures[r] = replace(summary, capture=captures[r].capture)
    kept: dict[str, Any] = {}
    for name in ("prototypes", "potentials"):
        whole, part = getattr(result, name).copy(), getattr(other, name)
        whole[chosen] = 0.0 if part is None else part  # without prototypes or balance: nothing is added to a score
        kept[name] = whole
    return replace(result, **arrays, captures=tuple(captures), **kept)
