r"""Unknown scores u(z, ℓ) of a frame with embedding z and logits ℓ: higher is more likely an unknown device.

    energy       −T log Σ_k exp(ℓ_k / T)                                 Liu et al., NeurIPS 2020
    knn          ‖z/‖z‖ − n_K‖, n_K the K-th nearest of the bank          Sun et al., ICML 2022
    mahalanobis  min_k (z − μ_k)ᵀ Σ⁻¹ (z − μ_k)                          Lee et al., NeurIPS 2018
    session      min_s (z − m_s)ᵀ (λS + W/n)⁻¹ (z − m_s)                 `openset.session`
    carrier      the same and (c − c_s)² / (λS_c + W_c/n)                 `openset.carrier`
    crowd        session, of a frame and those of its capture near it    `openset.crowd`
    gaussian     ln p(z | an unknown device) − ln p(z | a known one)      `openset.gaussian`

`fit(source, classes, like)` takes what a score needs from the statistics of the source and gives back u as a function
of what is `Seen`. `limit(source, classes, like, alpha)` is where to draw the line. None of them uses a label of the
frames it is asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.core.registry import Registry
from pisa_capc.decide.calibration.base import Parameters, check_range, require
from pisa_capc.decide.calibration.openset.thresholds import conformal_threshold
from pisa_capc.decide.calibration.vectors import unit
from pisa_capc.model.inference.statistics import PREFIX, SourceStatistics

ROWS = 4096  # frames scored at a time: their distances to the bank stay in cache
# The covariance is stored in float32; directions with less variance than its rounding carry no information.
_COVARIANCE_ROUNDING = torch.finfo(torch.float32).eps


class Seen(NamedTuple):
    """Frames, or means of several frames of one sender.

    embedding (N, D), logits (N, C), both float64; frames (N,) how many of them a row counts as the mean of; carrier_hz
    (N,) their carrier offset, where it was recorded. error (N, D, D) of the embedding, where the model measures it.
    """

    embedding: Tensor
    logits: Tensor
    frames: Tensor
    carrier_hz: Tensor | None = None
    error: Tensor | None = None

    def select(self, rows: Tensor | slice) -> Seen:
        return Seen(*(None if value is None else value[rows] for value in self))  # type: ignore[arg-type]


ScoreFunction: TypeAlias = Callable[[Seen], Tensor]


class ScoreLimit(NamedTuple):
    """threshold: frames that score higher are rejected. reference: (n,) scores of known frames that it was drawn by."""

    threshold: float
    reference: NDArray[np.float64]


@dataclass(frozen=True)
class UnknownScore(Parameters):
    """One score: a subclass with its parameters and `fit`."""

    needs_carrier: ClassVar[bool] = False
    needs_captures: ClassVar[bool] = False  # whole ones: useless where frames are decided as they come

    def gather(self, source: SourceStatistics, seen: Seen, capture: Tensor) -> Seen:
        """What is to be scored of frames with the numbers of their captures (N,): each by itself."""
        return seen

    def together(self, source: SourceStatistics, seen: Seen, sender: Tensor) -> Seen:
        """The frames of each sender, numbered (N,) without a gap, as one: by the means of what is seen of them."""
        count = torch.bincount(sender)

        def mean(values: Tensor) -> Tensor:
            total = torch.zeros(len(count), *values.shape[1:], dtype=torch.float64, device=values.device)
            total.index_add_(0, sender, values.double())
            return total / (count[:, None] if values.ndim > 1 else count)

        carriers = None if seen.carrier_hz is None else mean(seen.carrier_hz)
        return Seen(mean(seen.embedding), mean(seen.logits), count, carriers)

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        """The score of frames of `classes` logits and embeddings such as `like` (n, D), on the device of `like`."""
        raise NotImplementedError

    def limit(self, source: SourceStatistics, classes: int, like: Tensor, alpha: float) -> ScoreLimit:
        """The label-conditional conformal threshold at `alpha`, drawn by the device whose frames are strangest.

        Needs `validation`, `validation_logits` and `validation_label`.
        """
        features, logits, label = validation_frames(source, classes, like)
        score = score_frames(self.fit(source, classes, like), features, logits).cpu().numpy()
        known = enrolled(source, classes, like).nonzero()[:, 0].tolist()
        limits = {k: conformal_threshold(score, label, alpha, [k]) for k in known}
        strangest = max(limits, key=limits.__getitem__)
        return ScoreLimit(limits[strangest], score[label == strangest])


REJECTIONS: Registry[type[UnknownScore]] = Registry("rejection score")
S = TypeVar("S", bound=type[UnknownScore])


def register_rejection(name: str) -> Callable[[S], S]:
    """Make a score known as `--reject NAME`: a frozen dataclass that extends `UnknownScore`."""
    return REJECTIONS.register(name)


@register_rejection("energy")
@dataclass(frozen=True)
class Energy(UnknownScore):
    """u = −T log Σ_k exp(ℓ_k / T): large where no class has a high logit. Needs nothing of the source."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_range(self, temperature=(1e-6, 1e6))

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        return lambda seen: -self.temperature * torch.logsumexp(seen.logits / self.temperature, dim=1)


@register_rejection("knn")
@dataclass(frozen=True)
class NearestNeighbour(UnknownScore):
    """u = distance of the unit-length embedding to its K-th nearest among unit-length training embeddings.

    The authors take K = 10 where 1 % of the training frames is kept, which is about what `bank` holds. Needs `bank`.
    """

    neighbour: int = 10  # K

    def __post_init__(self) -> None:
        check_range(self, neighbour=(1, float("inf")))

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        bank = unit(require_rows(source, "bank", like.shape[1], like, "knn"))
        if self.neighbour > len(bank):
            raise DataError(
                f"{PREFIX}bank holds {len(bank)} training embeddings; the {self.neighbour}-th neighbour needs at "
                f"least {self.neighbour}. Keep more frames of the source, or lower `neighbour`."
            )

        def distance(seen: Seen) -> Tensor:
            cosine = (unit(seen.embedding) @ bank.T).topk(self.neighbour, dim=1).values[:, -1]
            return (2 - 2 * cosine).clamp(min=0).sqrt()

        return distance


@register_rejection("mahalanobis")
@dataclass(frozen=True)
class Mahalanobis(UnknownScore):
    """u = min_k (z − μ_k)ᵀ Σ⁻¹ (z − μ_k) with the means of the training classes and their shared covariance.

    Directions in which the training frames do not vary are left out. Needs `class_mean` and `covariance`; a class whose
    `prior` is zero was never trained and matches no frame.
    """

    def fit(self, source: SourceStatistics, classes: int, like: Tensor) -> ScoreFunction:
        features = like.shape[1]
        means = require(source, "class_mean", (classes, features), like, "mahalanobis")[enrolled(source, classes, like)]
        covariance = require(source, "covariance", (features, features), like, "mahalanobis")
        variance, axes = torch.linalg.eigh((covariance + covariance.T) / 2)
        kept = variance > variance[-1].clamp(min=0) * features * _COVARIANCE_ROUNDING
        whiten = axes[:, kept] / variance[kept].sqrt()
        centres = means @ whiten
        return lambda seen: torch.cdist(seen.embedding @ whiten, centres).amin(dim=1).square()


def score_frames(
    function: ScoreFunction, embedding: Tensor, logits: Tensor, carrier_hz: Tensor | None = None
) -> Tensor:
    """u (N,) float64 of frames, each by itself."""
    return scored(function, single(embedding, logits, carrier_hz))


def single(embedding: Tensor, logits: Tensor, carrier_hz: Tensor | None = None, error: Tensor | None = None) -> Seen:
    """Frames, each by itself."""
    ones = torch.ones(len(embedding), dtype=torch.float64, device=embedding.device)
    return Seen(embedding, logits, ones, carrier_hz, error)


def score_senders(
    function: ScoreFunction, embedding: Tensor, logits: Tensor, sender: Tensor, carrier_hz: Tensor | None = None
) -> Tensor:
    """u (N,) of frames, those of one `sender` (N,) as one: by the means of what is seen of them."""
    index = torch.unique(sender, return_inverse=True)[1]
    seen = UnknownScore().together(SourceStatistics(), single(embedding, logits, carrier_hz), index)
    return scored(function, seen)[index]


def scored(function: ScoreFunction, seen: Seen) -> Tensor:
    """u (N,) float64 of what is seen, some at a time."""
    few = len(seen.embedding) <= ROWS  # of a stream: cutting and joining would cost more than the score
    parts = [seen] if few else [seen.select(rows) for rows in blocks(len(seen.embedding))]
    found = [function(p._replace(embedding=p.embedding.double(), logits=p.logits.double())) for p in parts]
    return found[0] if few else torch.cat(found)


def blocks(frames: int) -> list[slice]:
    """Some frames at a time; one empty block where there are none."""
    return [slice(start, start + ROWS) for start in range(0, max(1, frames), ROWS)]


def validation_frames(source: SourceStatistics, classes: int, like: Tensor) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
    """Embeddings, logits and classes of the source's validation frames."""
    purpose = "the conformal threshold"
    features = require_rows(source, "validation", like.shape[1], like, purpose)
    logits = require(source, "validation_logits", (len(features), classes), like, purpose)
    label = require(source, "validation_label", (len(features),), like, purpose)
    return features, logits, label.cpu().numpy().astype(np.int64)


def enrolled(source: SourceStatistics, classes: int, like: Tensor) -> Tensor:
    """(C,) which classes have training frames; all where `prior` is not known."""
    prior = source.tensor("prior", (classes,), like)
    return torch.ones(classes, dtype=torch.bool, device=like.device) if prior is None else prior > 0


def require_rows(source: SourceStatistics, name: str, columns: int, like: Tensor, user: str) -> Tensor:
    """A statistic with as many rows as it happens to have."""
    value = getattr(source, name)
    rows = len(value) if np.ndim(value) else 0
    return require(source, name, (rows, columns), like, user)
