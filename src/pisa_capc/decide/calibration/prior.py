"""U-CAPC with class shares other than equal ones: given, or estimated from the frames; held exactly or loosely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pisa_capc.core.errors import ConfigError
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.ucapc import PRIORS, UCAPC
from pisa_capc.model.inference.statistics import SourceStatistics, source_posterior, source_prior

SMALLEST_SHARE = 1e-6  # a class that is believed absent may still hold a millionth of the frames


def estimate_shares(
    log_posterior: Tensor, prior: Tensor, toward: Tensor, weight: float, iterations: int = 100
) -> Tensor:
    """Class shares π (C,) of frames by expectation maximisation (Saerens et al., 2002), drawn toward a belief.

    p_ik ∝ p^s_ik π_k / π^s_k, π ← (Σ_i p_i + w b) / (n + w): the mode under a Dirichlet prior worth w frames with the
    shares b. log_posterior (n, C) are the source classifier's, calibrated; prior (C,) is π^s; toward (C,) is b.
    """
    shares = toward
    for _ in range(iterations):
        score = log_posterior + shares.clamp(min=SMALLEST_SHARE).log() - prior.log()
        counted = torch.softmax(score, dim=1).sum(dim=0) + weight * toward
        updated = counted / counted.sum()
        moved = (updated - shares).abs().max()
        shares = updated
        if moved <= 1e-6:
            break
    return shares


@dataclass(frozen=True)
class PriorUCAPC(UCAPC):
    """U-CAPC whose transport fills the classes by other shares than equal ones.

    prior: 'given' takes `shares`; 'estimated' takes those of each capture by `estimate_shares`, drawn toward those of
    all frames, on posteriors at the source's temperature; 'balanced' and 'none' are the published ones. The estimate
    is only as good as the classifier: where it confuses classes in its new surroundings, so does the estimate.

    >>> PriorUCAPC(prior="given", shares=(0.7, 0.2, 0.1)).relaxation
    3.0
    """

    title = "U-CAPC, other class shares"
    prior: str = "estimated"
    shares: tuple[float, ...] | None = None  # (C,) class shares, summing to one
    relaxation: float = 3.0  # ρ, cost of a share that is not met; infinite: met exactly
    shrinkage: float = 64.0  # frames that the shares of all captures count for in one capture's estimate
    _priors: ClassVar[tuple[str, ...]] = (*PRIORS, "given", "estimated")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.relaxation > 0:
            raise ConfigError(f"relaxation is {self.relaxation}; expected a positive number, infinite to be exact.")
        if not 0 <= self.shrinkage < math.inf:
            raise ConfigError(f"shrinkage is {self.shrinkage}; expected a number of frames, zero or more.")
        if (self.prior == "given") != (self.shares is not None):
            raise ConfigError(
                f"prior is {self.prior} and shares are {self.shares}; they go together: prior given needs one share "
                "per class, as `--prior given --set shares=[0.5,0.3,0.2]`, and shares need prior given."
            )
        if self.shares is not None:
            total = math.fsum(self.shares)
            if not all(share >= 0 for share in self.shares) or not abs(total - 1) < 1e-6:
                raise ConfigError(
                    f"shares {list(self.shares)} sum to {total:g}; expected one share per class, none negative, "
                    "that sum to 1."
                )

    def class_shares(self, inputs: Inputs, source: SourceStatistics) -> tuple[Tensor | None, float]:
        if self.prior in PRIORS:
            return None, self.relaxation
        like = inputs.logits.new_ones((), dtype=torch.float64)
        if self.shares is not None:
            if len(self.shares) != inputs.classes:
                raise ConfigError(
                    f"shares: {len(self.shares)} are given for {inputs.classes} classes; expected one each."
                )
            given = torch.tensor(self.shares, dtype=torch.float64, device=like.device).clamp(min=SMALLEST_SHARE)
            return (given / given.sum()).expand(len(inputs.groups), -1), self.relaxation
        logits = inputs.logits.double()
        log_p, prior = source_posterior(logits, source), source_prior(logits, source)
        everywhere = estimate_shares(log_p, prior, prior, self.shrinkage)
        own = [
            estimate_shares(log_p[inputs.groups.rows(r)], prior, everywhere, self.shrinkage)
            for r in range(len(inputs.groups))
        ]
        shares = torch.stack(own).clamp(min=SMALLEST_SHARE)
        return shares / shares.sum(dim=1, keepdim=True), self.relaxation
