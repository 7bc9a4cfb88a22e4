r"""Joint: has the capture moved, or do some devices send more than others? Both are fitted together.

Alignment of means confuses the two: a capture in which one device sends most has a mean of its own, too. Here, in the
LDA space of the source, with m_k the source's mean of class k,

    u_i | k ~ N(m_k + δ_k, w² I),    δ_k = t + e_k,    t ~ N(0, b² I),  e_k ~ N(0, r² I),    shares ~ Dirichlet(1)

t is what the place does to all classes, e_k what is left of one. Labels, δ, shares and w are fitted by variational EM
(`fit`) from several starts and for several (b, r); the highest evidence bound wins. Frames of a capture are alike, so
together they count as few: the bound's sum over frames is scaled to `effective` frames a class.

`Gated` takes these labels only where they resolve a collision, and U-CAPC only where the shares come out equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from pisa_capc.decide.calibration.base import check_range
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.decide.calibration.peers.bd_cspn import BDCSPN
from pisa_capc.decide.calibration.peers.lda import Space
from pisa_capc.decide.calibration.ucapc import UCAPC
from pisa_capc.model.inference.statistics import SourceStatistics

Pair = tuple[float, float]
STIFFNESS: tuple[Pair, ...] = (
    (0.02, 0.02),
    (0.05, 0.1),
    (0.15, 0.3),
)  # (b, r) in units of the classes' mean distance; the stiff one first
FLOOR = 0.1  # of w, in the same unit
FITTED = 256  # frames that the fit looks at, evenly over the group: they count as `effective` a class anyway
ITERATIONS, TOLERANCE = 100, 1e-5


class Fit(NamedTuple):
    """What the model found in a group, B fits at once. bound: of the evidence, comparable between fits of one group."""

    shift: Tensor  # (B, C, d) mean of δ
    unsure: Tensor  # (B, C) its variance, the same along every axis
    log_share: Tensor  # (B, C) E log π
    share: Tensor  # (B, C) of the frames
    width: Tensor  # (B,) w
    bound: Tensor  # (B,)

    def scores(self, u: Tensor, means: Tensor) -> Tensor:
        """(B, n, C) E log p(u_i, k), up to what all classes share."""
        far = squared_distance(u, means + self.shift) + u.shape[1] * self.unsure[:, None]
        return self.log_share[:, None] - far / (2 * self.width[:, None, None] ** 2)

    def best(self, of: slice = slice(None)) -> Fit:
        """The one with the highest bound, of those in a part of the batch."""
        parts = Fit(*(values[of] for values in self))
        i = int(parts.bound.argmax())
        return Fit(*(values[i : i + 1] for values in parts))


def fit(u: Tensor, space: Space, starts: Tensor, stiffness: Sequence[Pair], effective: float = math.inf) -> Fit:
    """Variational EM from soft labels (B, n, C), each with its own (b, r).

    Given labels R with N_k = κ Σ_i R_ik, δ has along every axis the posterior N(V S/w², V) with
    V = (P⁻¹ + diag(N)/w²)⁻¹, P = b² 11ᵀ + r² I, S_k = κ Σ_i R_ik (u_i − m_k); the shares are Dirichlet(1 + N); w² is
    the mean squared distance that is left. Given these, R_ik ∝ exp E log p(u_i, k). κ = min(1, effective · C / n).
    """
    (n, d), classes, unit = u.shape, len(space.means), space.distance
    tempered = min(1.0, effective * classes / n)
    b2, r2 = (torch.as_tensor(stiffness, dtype=u.dtype, device=u.device) * unit).square().T[:, :, None, None]
    prior = b2 + r2 * torch.eye(classes, dtype=u.dtype, device=u.device)
    precision = torch.linalg.inv(prior)
    labels, bound = starts, torch.full((len(starts),), -math.inf, dtype=u.dtype, device=u.device)
    for step in range(ITERATIONS):
        count = tempered * labels.sum(dim=1)
        total = tempered * (labels.transpose(1, 2) @ u) - count[..., None] * space.means  # S
        if step == 0:
            width2 = _left(u, labels, space.means + total / count.clamp_min(1.0)[..., None], unit)
        posterior = torch.linalg.inv(precision + torch.diag_embed(count / width2[:, None]))
        shift, unsure = posterior @ total / width2[:, None, None], posterior.diagonal(dim1=1, dim2=2)
        width2 = _left(u, labels, space.means + shift, unit, unsure)
        weight = 1 + count
        log_share = torch.digamma(weight) - torch.digamma(weight.sum(dim=1, keepdim=True))
        found = Fit(shift, unsure, log_share, labels.mean(dim=1), width2.sqrt(), bound)
        joint = found.scores(u, space.means) - d / 2 * torch.log(2 * math.pi * width2)[:, None, None]
        evidence = torch.logsumexp(joint, dim=2)
        labels = torch.exp(joint - evidence[..., None])
        now = tempered * evidence.sum(dim=1) - _gaussian_divergence(shift, posterior, prior, precision)
        now -= _dirichlet_divergence(weight)
        found = found._replace(bound=now, share=labels.mean(dim=1))
        if step > 1 and bool((now - bound < TOLERANCE * now.abs().clamp_min(1.0)).all()):
            break
        bound = now
    return found


def squared_distance(u: Tensor, centres: Tensor) -> Tensor:
    """‖u_i − c_k‖² of frames (n, d) and centres (B, C, d): (B, n, C)."""
    sums = u.square().sum(dim=1)[:, None] + centres.square().sum(dim=2)[:, None]
    return (sums - 2 * u @ centres.transpose(1, 2)).clamp_min_(0.0)


def _left(u: Tensor, labels: Tensor, centres: Tensor, unit: float, unsure: Tensor | None = None) -> Tensor:
    """w² (B,): mean squared distance from the frames to their centres, along one axis, not below its floor."""
    far = (labels * squared_distance(u, centres)).sum(dim=(1, 2)) / len(u) / u.shape[1]
    if unsure is not None:
        far = far + (labels.mean(dim=1) * unsure).sum(dim=1)
    return far.clamp_min((FLOOR * unit) ** 2)


def _gaussian_divergence(mean: Tensor, covariance: Tensor, prior: Tensor, precision: Tensor) -> Tensor:
    """KL( N(mean, covariance) ‖ N(0, prior) ) (B,), summed over the axes (columns of mean), which share covariances."""
    axes, size = mean.shape[2], prior.shape[1]
    spread = (precision * covariance).sum(dim=(1, 2)) - size + torch.logdet(prior) - torch.logdet(covariance)
    return 0.5 * (axes * spread + (mean * (precision @ mean)).sum(dim=(1, 2)))


def _dirichlet_divergence(weight: Tensor) -> Tensor:
    """KL( Dirichlet(weight) ‖ Dirichlet(1) ), (B,)."""
    total = weight.sum(dim=1, keepdim=True)
    at = ((weight - 1) * (torch.digamma(weight) - torch.digamma(total))).sum(dim=1)
    return torch.lgamma(total)[:, 0] - torch.lgamma(weight).sum(dim=1) - math.lgamma(weight.shape[1]) + at


def clustered(u: Tensor, means: Tensor) -> Tensor:
    """(n, C) labels of Ward clusters, each cluster given to one class so that the means are nearest in all."""
    from sklearn.cluster import AgglomerativeClustering

    classes = len(means)
    x = u.cpu().numpy()
    if len(x) <= classes:
        return torch.softmax(-torch.cdist(u, means).square(), dim=1)
    cluster = AgglomerativeClustering(classes, linkage="ward").fit_predict(x)
    centres = torch.as_tensor(np.stack([x[cluster == c].mean(axis=0) for c in range(classes)]), device=u.device)
    _, given = linear_sum_assignment(torch.cdist(centres, means).square().cpu().numpy())
    return _one_hot(torch.as_tensor(given[cluster], device=u.device), classes, u)


def _one_hot(label: Tensor, classes: int, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(label.long(), classes).to(like.dtype)


@dataclass(frozen=True)
class Joint(Peer):
    """Shift of the capture and shares of the devices, fitted jointly; see the module.

    Needs `class_mean` and `covariance`. Without gates: it can rename whole clusters.
    """

    title = "joint shift and shares"

    group: str = "capture"
    effective: float = 4.0  # frames a class that a group counts as

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, effective=(1e-3, float("inf")))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        space = Space.of(source, logits.shape[1], embedding, self.title)
        score = self.fits(embedding, logits, source, space).best().scores(embedding @ space.project, space.means)[0]
        return Transduced(score, torch.softmax(score, dim=1))

    def fits(self, embedding: Tensor, logits: Tensor, source: SourceStatistics, space: Space) -> Fit:
        """The fits from every start; first those of the stiff (b, r), then those of the others."""
        some = torch.linspace(0, len(embedding) - 1, min(FITTED, len(embedding)), device=embedding.device).long()
        z, scores = embedding[some], logits[some]
        u = z @ space.project
        starts = torch.stack(self.starts(z, scores, u, source, space))
        pairs = [pair for pair in STIFFNESS for _ in starts]
        return fit(u, space, starts.repeat(len(STIFFNESS), 1, 1), pairs, self.effective)

    def starts(self, z: Tensor, logits: Tensor, u: Tensor, source: SourceStatistics, space: Space) -> list[Tensor]:
        """Labels to begin with: direct, U-CAPC, nearest source mean, BD-CSPN, and clusters."""
        classes = logits.shape[1]
        balanced = torch.as_tensor(UCAPC(group="none").calibrate(z, logits).prediction)
        moved = BDCSPN().transduce(z, logits, source).probability
        nearest = torch.cdist(u, space.means).argmin(dim=1)
        hard = (logits.argmax(dim=1), balanced, nearest, moved.argmax(dim=1))
        return [*(_one_hot(label.to(u.device), classes, u) for label in hard), clustered(u, space.means)]


@dataclass(frozen=True)
class Gated(Joint):
    """Joint where it resolves a collision, U-CAPC where the shares come out equal, direct inference elsewhere.

    Joint's labels are taken where its bound beats the stiff model's by more than `gain`, its classes are narrow
    (w < `narrow` of their distance), and it occupies more classes than direct inference does (`present` of the frames
    each): two clusters that direct inference gives to one device. U-CAPC as published where the entropy of the shares
    is at least `equal` of the largest, less (C − 1)/(2n ln C), what n frames of equal shares lack on average.
    Needs no second source environment. The values are those of a study on real captures of four devices.
    """

    title = "gated joint"

    gain: float = 3.0  # of the bound over that of the stiff model
    narrow: float = 0.2  # width of a class, of the distance between classes
    present: float = 0.03  # share of the frames from which a class counts as occupied
    equal: float = 0.98  # entropy of equal shares, of the largest

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        space = Space.of(source, logits.shape[1], embedding, self.title)
        found = self.fits(embedding, logits, source, space)
        best, stiff = found.best(), found.best(slice(len(found.bound) // len(STIFFNESS)))
        score = best.scores(embedding @ space.project, space.means)[0]
        if self.resolves_a_collision(best, stiff, score, logits, space):
            return Transduced(score, torch.softmax(score, dim=1))
        if self.is_balanced(best, len(embedding)):
            result = replace(UCAPC(), group="none").calibrate(embedding, logits)
            return Transduced(torch.as_tensor(result.score), torch.as_tensor(result.probability))
        return Transduced(logits, torch.softmax(logits, dim=1))

    def resolves_a_collision(self, best: Fit, stiff: Fit, score: Tensor, logits: Tensor, space: Space) -> bool:
        def occupied(label: Tensor) -> int:
            share = torch.bincount(label, minlength=logits.shape[1]) / len(label)
            return int((share >= self.present).sum())

        narrow = float(best.width) < self.narrow * space.distance
        more = occupied(score.argmax(dim=1)) > occupied(logits.argmax(dim=1))
        return narrow and more and float(best.bound - stiff.bound) > self.gain

    def is_balanced(self, best: Fit, frames: int) -> bool:
        classes = best.share.shape[1]
        if classes < 2:
            return False
        entropy = float(torch.special.entr(best.share).sum()) / math.log(classes)
        return entropy >= self.equal - (classes - 1) / (2 * frames * math.log(classes))
