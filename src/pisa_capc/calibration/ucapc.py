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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pisa_capc.calibration import sinkhorn
from pisa_capc.calibration.batches import Rows, batches, block_rows, row_blocks
from pisa_capc.calibration.blocks import Blocks
from pisa_capc.calibration.inputs import GROUPINGS, Array, Captures, Inputs, check_inputs
from pisa_capc.calibration.result import Calibration, Recorder
from pisa_capc.errors import ConfigError, unknown_name
from pisa_capc.inference.statistics import SourceStatistics

PRIORS = ("balanced", "none")
# Assignments that differ by less than this, relatively, are tied: it is far above rounding and far below evidence.
_TIE = 1e-12


def soft_assignment(scores: Tensor, potential: Tensor | None, balance: float, epsilon: float) -> Tensor:
    """Q = (1 − μ) softmax(S) + μ B(S), Eq. (ucapc_assignment). Scores (G, C, b) → (G, C, b).

    `potential` (G, C) is that of `sinkhorn.class_potential`; with μ = 0 it is not needed.
    """
    if potential is None or balance == 0:
        return torch.softmax(scores, dim=1)
    balanced = sinkhorn.assignment(scores, potential, epsilon)
    return balanced if balance == 1 else torch.lerp(torch.softmax(scores, dim=1), balanced, balance)


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
    last = _last_retained(retained, top)
    surely, tied = last * (1 + _TIE), last * (1 - _TIE)
    zero = last.new_zeros(())
    above = sum((torch.count_nonzero(block > surely, dim=-1) for block in retained), start=zero)
    reached = sum((torch.count_nonzero(block >= tied, dim=-1) for block in retained), start=zero)
    share = ((top - above) / (reached - above).clamp(min=1)).clamp(max=1.0).unsqueeze(-1)
    total = zero
    for block, features in zip(retained, embedding, strict=True):
        weight = torch.where(block > surely, block, torch.where(block >= tied, share * block, 0.0))
        total = total + torch.bmm(weight, features)
    return _unit(total)


def _last_retained(retained: Blocks[Tensor], top: int) -> Tensor:
    """The `top`-th largest assignment of each class, (G, C, 1); zero where fewer frames than that are retained."""
    largest: Tensor | None = None
    for block in retained:
        largest = block if largest is None else torch.cat((largest, block), dim=-1)
        if largest.shape[-1] > top:
            largest = _largest(largest, top)
    assert largest is not None
    smallest = largest.amin(dim=-1, keepdim=True)
    return smallest if largest.shape[-1] == top else torch.zeros_like(smallest)


def _largest(values: Tensor, top: int) -> Tensor:
    """The `top` largest values along the last axis, in no order."""
    if values.device.type != "cpu":
        return values.topk(top, dim=-1, sorted=False).values
    # NumPy selects with vector instructions, four times as quick as torch.topk on a CPU.
    return torch.from_numpy(np.partition(values.numpy(), -top, axis=-1)[..., -top:])


def _unit(vectors: Tensor) -> Tensor:
    """Vectors (…, D) brought to length one in place; zero stays zero."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors.div_(torch.where(length > 0, length, 1.0))


def prototype_scores(embedding: Tensor, prototypes: Tensor, temperature: float = 0.2) -> Tensor:
    """a = zᵀp / τ_p, Eq. (prototype_scores): embedding (G, b, D), prototypes (G, C, D) → (G, C, b)."""
    return torch.bmm(prototypes / temperature, embedding.transpose(1, 2))


def fuse_scores(logits: Tensor, prototype_score: Tensor, fusion: float = 2.0) -> Tensor:
    """s = ℓ + λ_p a, Eq. (prototype_update)."""
    return torch.add(logits, prototype_score, alpha=fusion)


def final_probability(scores: Tensor, potential: Tensor | None, epsilon: float = 1.0) -> Tensor:
    """π, Eq. (ucapc_final_prediction): balanced with a potential, softmax without. (G, C, b) → (G, C, b)."""
    return torch.softmax(scores, dim=1) if potential is None else sinkhorn.assignment(scores, potential, epsilon)


@dataclass(frozen=True)
class UCAPC:
    """Calibrates the decisions of any frozen classifier with unlabelled frames, as published.

    >>> result = UCAPC().calibrate(embedding, logits, capture)              # doctest: +SKIP
    >>> result.prediction, result.changed                                   # doctest: +SKIP

    Memory beyond input and output is bounded by 16 bytes a frame for the grouping, one workspace and a few blocks of
    16 MiB (256 MiB on a GPU): groups that do not fit the workspace are streamed, with the same result, through a
    temporary file of eight bytes a score.
    """

    threshold: float = 0.0  # confidence a frame needs to enter a prototype
    top: int = 512  # K_p, frames of a prototype
    temperature: float = 0.2  # τ_p
    fusion: float = 2.0  # λ_p
    passes: int = 3  # T_p
    balance: float = 1.0  # μ, share of the balanced assignment
    sinkhorn_iterations: int = 20
    epsilon: float = 1.0  # ε, entropic smoothing
    prior: str = "balanced"  # "none": μ = 0 and a plain softmax at the end
    group: str = "capture"  # "none": all frames are one group; "auto": groups are found, see `grouping`
    workspace_mib: int = 1024
    _priors: ClassVar[tuple[str, ...]] = PRIORS

    def __post_init__(self) -> None:
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
        if self.group not in GROUPINGS:
            raise ConfigError(unknown_name("grouping", str(self.group), GROUPINGS))

    @classmethod
    def preset(cls, name: str, **changes: Any) -> UCAPC:
        """A row of the calibration ablation by name (see `PRESETS`), with `changes` to it."""
        if name not in PRESETS:
            raise ConfigError(unknown_name("preset", name, PRESETS))
        return replace(PRESETS[name], **changes)

    def calibrate(
        self,
        embedding: Array,
        logits: Array,
        capture: Captures | None = None,
        source: SourceStatistics | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Calibration:
        """Calibrated probabilities, scores and decisions of frames with embedding (N, D) and logits (N, C).

        `capture` (N,) groups the frames; without it they are one group. `source` is not used: U-CAPC needs nothing
        of the source but its logits. `out` may name arrays (for instance memory-mapped) for `probability` and `score`.
        """
        inputs = check_inputs(embedding, logits, capture, self.group)
        recorder = Recorder(inputs, out)
        shares, relaxation = self._transport(inputs, source or SourceStatistics())
        for batch in batches(inputs):
            self._calibrate_batch(inputs, batch, recorder, None if shares is None else shares[batch], relaxation)
        return recorder.finish()

    def _transport(self, inputs: Inputs, source: SourceStatistics) -> tuple[Tensor | None, float]:
        """Class shares (R, C) of the transport and how firmly they are held: equal and exact, as published."""
        return None, math.inf

    def _calibrate_batch(
        self, inputs: Inputs, batch: list[int], recorder: Recorder, shares: Tensor | None, relaxation: float
    ) -> None:
        longest = max(inputs.groups.counts[r] for r in batch)
        frames, workspace = len(batch) * longest, self.workspace_mib * 2**20
        # Scores, kernel and assignment are walked 20 times a pass, embeddings twice: the former are kept first.
        score_bytes = 8 * frames * 4 * inputs.classes
        row_bytes = 8 * frames * (inputs.embedding.shape[1] + inputs.classes + 2)
        keep, keep_rows = score_bytes <= workspace, score_bytes + row_bytes <= workspace
        # Blocks that are made anew on every walk should never leave the cache.
        width = block_rows(inputs) // len(batch) if keep else block_rows(inputs) // 4
        rows = row_blocks(inputs.groups, batch, max(1, width), keep)
        present = rows.map(lambda block: block.present, keep=keep)
        features = rows.map(lambda block: read_embedding(inputs, block), keep=keep_rows)
        logits = rows.map(lambda block: read_logits(inputs, block), keep=keep_rows)
        # Unit vectors bound the prototype's part of a score by ± λ_p / τ_p.
        spread = inputs.spread + 2 * abs(self.fusion) / self.temperature
        balance = 0.0 if self.prior == "none" else self.balance

        def potential(scores: Blocks[Tensor]) -> Tensor:
            return sinkhorn.class_potential(
                scores, present, self.sinkhorn_iterations, self.epsilon, spread, keep, shares, relaxation
            )

        def assign(scores: Blocks[Tensor]) -> Blocks[Tensor]:
            g = potential(scores) if balance > 0 else None
            return scores.map(
                lambda s, real: soft_assignment(s, g, balance, self.epsilon).mul_(real), present, keep=keep
            )

        def refine(prototypes: Tensor) -> Blocks[Tensor]:
            return logits.map(
                lambda logit, z: fuse_scores(logit, prototype_scores(z, prototypes, self.temperature), self.fusion),
                features,
                keep=keep,
            )

        scores = logits
        for _ in range(self.passes):
            prototypes = capture_prototypes(assign(scores), features, self.top, self.threshold)
            scores = refine(prototypes)
        final = None if self.prior == "none" else potential(scores)
        for block, logit, score in zip(rows, logits, scores, strict=True):
            recorder.write(batch, block, logit, score, final_probability(score, final, self.epsilon))
        if self.passes:
            recorder.prototypes(batch, prototypes)
        if final is not None:
            recorder.potentials(batch, final)


def read_embedding(inputs: Inputs, rows: Rows) -> Tensor:
    """Unit-length embeddings (G, b, D) of a block, float64."""
    return _unit(_read(inputs.embedding, rows).to(torch.float64))


def read_logits(inputs: Inputs, rows: Rows) -> Tensor:
    """Logits (G, C, b) of a block, float64: transposed and converted in one walk."""
    columns = _read(inputs.logits, rows).transpose(1, 2)
    return columns.to(torch.float64, memory_format=torch.contiguous_format).contiguous()


def _read(values: Tensor, rows: Rows) -> Tensor:
    """Rows (G, b) of `values` as a new array (G, b, columns)."""
    return values.index_select(0, rows.index.reshape(-1)).reshape(*rows.index.shape, values.shape[1])


# The rows of the paper's calibration ablation. "paper" is the row it calls full.
PRESETS: dict[str, UCAPC] = {
    "paper": UCAPC(),
    "direct": UCAPC(passes=0, prior="none"),
    "without-grouping": UCAPC(group="none"),
    "without-prior": UCAPC(prior="none"),
}
