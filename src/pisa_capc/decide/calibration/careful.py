r"""Careful: what is done to a capture depends on how evenly its devices seem to send.

No calibration is best everywhere. A balanced transport gains most where all devices send equally often and does great
harm where they do not; methods that gain where few devices send gain little elsewhere. Which of these a capture is can
be told without labels: by the entropy of the class shares that three find in it that assume no balance, StatA,
BD-CSPN and the nearest class mean in the source's LDA space,

    evenness = H(π̂) / ln C + (C − 1) / (8 n ln C),      π̂ the mean of their probabilities over the n frames,

the second part being a quarter of what n frames of equal shares lack on average: not all of it, because a skewed
capture that is taken for an even one costs more than the other way round. The evenness chooses a panel, and the mean of
the panel's probabilities decides:

    even     evenness ≥ 0.995   U-CAPC as published, with two votes, and BD-CSPN
    uneven   up to 0.98         T3A, LDA, the classifier itself
    few      below 0.96         LDA, LAME, MLLS, the classifier itself

Between 0.98 and 0.995 the even panel has a weight that rises from zero to one, and the uneven one the rest. LAME asks
no more neighbours than a quarter of the frames that a device has on average: min(5, n / 4C). Where that is none, few
devices are left to the classifier, with two votes, and LDA. There is nothing to learn: one source environment will do.

Signals, panels and numbers are those of source environments: of models of one source environment that met the other
one, and of models of both on frames held out there. It was not made blind, for the third had been looked at meanwhile;
what came of it there is in the results (`studies.calibrations`).

U-CAPC as published takes all devices for equally frequent in every capture, and nothing in its output says where they
are not. `warn_where_uneven` does, from the unlabelled frames alone: by the same evenness, or where the source lacks
what that needs, by that of the scores before they were balanced.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pisa_capc.decide.calibration.base import Calibrator, check_range, register_calibration, require
from pisa_capc.decide.calibration.inputs import Inputs
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.decide.calibration.peers.bd_cspn import BDCSPN
from pisa_capc.decide.calibration.peers.graph import LAME
from pisa_capc.decide.calibration.peers.label_shift import MLLS
from pisa_capc.decide.calibration.peers.lda import LDA
from pisa_capc.decide.calibration.peers.t3a import T3A
from pisa_capc.decide.calibration.peers.transclip import StatA
from pisa_capc.decide.calibration.poison import suspects, with_limit
from pisa_capc.decide.calibration.result import Calibration, Judged, Recorder
from pisa_capc.decide.calibration.ucapc import PRESETS, UCAPC, replaced, scored_rows
from pisa_capc.decide.calibration.vectors import unit
from pisa_capc.model.inference.statistics import SourceStatistics

ROUNDS, SETTLED = 200, 1e-3  # of the potentials that hold the shares: at most, and the change at which they do
NEVER = 2.0  # evenness that no capture has
NEEDED = {"class_mean": "CD", "covariance": "DD", "weight": "CD"}  # of the source, and its shape
USED = (*NEEDED, "bias", "mean", "prior", "temperature")
SMALLEST = 1e-6  # share of a class that nobody seems to use
LOOKED_AT = 512  # frames of a capture at most: what is looked for is large, and a calibration takes milliseconds
NAMED = 5  # captures in a warning
SUSPECT = "suspect"  # level of a capture that looks poisoned
LEFT_ALONE = "It is left uncalibrated. If these devices are not enrolled, reject them first (--reject)."
CALIBRATED = "It was calibrated all the same; the usual calibration leaves such captures alone."
HARM = (
    "U-CAPC as published assumes that all devices send equally often and may do great harm there. Use careful, the "
    "default."
)


@register_calibration("careful")
@dataclass(frozen=True)
class Careful(Peer):
    """A panel of calibrations for each capture, chosen by how evenly its devices seem to send; see the module.

    >>> result = Careful().calibrate(embedding, logits, capture, source)    # doctest: +SKIP
    >>> [(judged.level, judged.evenness) for judged in result.judged]       # doctest: +SKIP

    Needs `class_mean`, `covariance` and `weight`; uses `bias`, `mean`, `prior` and `temperature` where they are known.
    For later frames (`fit`, streams) what a panel decided is kept as prototypes and class potentials, which is close to
    it and not the same.
    """

    title = "careful"
    freezes = True

    group: str = "capture"
    few: float = 0.96  # evenness below which few devices are assumed
    even: float = 0.98  # evenness from which a balance is believed in part
    full: float = 0.995  # and from which in full
    watch: bool = True  # whether captures that look poisoned are left as the classifier decides them

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, few=(0, NEVER), even=(self.few, NEVER), full=(0, NEVER))

    def calibrate_frames(self, inputs: Inputs, source: SourceStatistics, recorder: Recorder) -> Calibration:
        result = super().calibrate_frames(inputs, source, recorder)
        chosen = suspects(inputs, source, self.group == "none") if self.watch else []
        if not chosen or result.judged is None:
            return result
        judged = [one._replace(level=SUSPECT) if r in chosen else one for r, one in enumerate(result.judged)]
        return replace(replaced(result, chosen, PRESETS["direct"]), judged=tuple(judged))

    def without_balance(self) -> Careful:
        return replace(self, even=NEVER)

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        def by(peer: Peer) -> Tensor:
            return peer.transduce(embedding, logits, source).probability

        sizes = {"C": logits.shape[1], "D": embedding.shape[1]}
        for name, shape in NEEDED.items():  # said here, so that what is missing is missed by careful
            require(source, name, tuple(sizes[axis] for axis in shape), embedding, self.title)
        direct, (anchored, moved, lda) = torch.softmax(logits, dim=1), unbalanced(embedding, logits, source)
        found = evenness((anchored + moved + lda) / 3)
        believed = self.believed(found)
        if found < self.few:
            neighbours = min(LAME.neighbours, len(logits) // (4 * logits.shape[1]))
            panel = [lda, by(LAME(neighbours=neighbours)), by(MLLS()), direct] if neighbours else [lda, direct, direct]
        else:
            panel = [by(T3A()), lda, direct]
        probability = torch.stack(panel).mean(dim=0)
        if believed > 0:
            balanced = torch.as_tensor(UCAPC(group="none").calibrate(embedding, logits).probability)
            probability = believed * (2 * balanced + moved) / 3 + (1 - believed) * probability
        level = "few" if found < self.few else "even" if believed >= 0.5 else "uneven"
        score = probability.clamp(min=torch.finfo(probability.dtype).tiny).log()
        return Transduced(score, probability, *distilled(probability, embedding, logits), Judged(level, found))

    def believed(self, found: float) -> float:
        """How far a capture of this evenness is taken for balanced, from zero to one."""
        if found < self.even:
            return 0.0
        return 1.0 if found >= self.full else (found - self.even) / (self.full - self.even)


def unbalanced(embedding: Tensor, logits: Tensor, source: SourceStatistics) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities (n, C) by three that assume no balance: StatA, BD-CSPN and the LDA head."""
    anchored, moved, lda = (peer.transduce(embedding, logits, source) for peer in (StatA(), BDCSPN(), LDA()))
    return anchored.probability, moved.probability, lda.probability


def knows_enough(source: SourceStatistics) -> bool:
    """Whether the source says what careful needs."""
    return all(getattr(source, name) is not None for name in NEEDED)


def used(source: SourceStatistics) -> SourceStatistics:
    """What careful looks at, without the rest, which may be large."""
    own = {name: getattr(source, name) for name in USED}
    classes, features = np.shape(np.asarray(source.weight))
    watched = with_limit(source, torch.empty((0, features), dtype=torch.float64), classes)
    return SourceStatistics(**own, **({} if watched is None else watched.known()))


def evenness(probability: Tensor) -> float:
    """Entropy of the class shares of probabilities (n, C), of the largest there is, corrected for few frames."""
    n, classes = probability.shape
    if classes < 2:
        return 0.0
    entropy = float(torch.special.entr(probability.mean(dim=0)).sum())
    return (entropy + (classes - 1) / (8 * n)) / math.log(classes)


def distilled(probability: Tensor, embedding: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """What frames were decided as, for frames to come: prototypes p (C, D) and potentials g (C,) of U-CAPC's form.

    p_k is the unit-length sum of the frames weighted by their probability; with s = ℓ + λ_p zᵀp / τ_p the potentials
    make the mean of softmax(s + g) the class shares that were decided.
    """
    features = unit(embedding)
    prototypes = unit(probability.T @ features)
    score, _ = scored_rows(features, logits, prototypes, None, UCAPC())
    shares = probability.mean(dim=0).clamp(min=SMALLEST)
    potential = torch.zeros_like(shares)
    for _ in range(ROUNDS):
        held = torch.softmax(score + potential, dim=1).mean(dim=0)
        lacking = shares.log() - held.clamp(min=SMALLEST).log()
        potential += lacking
        if lacking.abs().max() < SETTLED:
            break
    return prototypes, potential - potential.mean()


def warn_where_uneven(calibrator: Calibrator, result: Calibration, source: SourceStatistics) -> None:
    """Warn of captures that `calibrator` has balanced although their devices seem to send unevenly, and of those that
    look poisoned, which careful leaves alone and others calibrate."""
    warn_of(uneven(calibrator, result, source))
    names = [summary.capture for summary in result.captures]
    if result.judged is not None:
        found, done = [k for k, one in zip(names, result.judged, strict=True) if one.level == SUSPECT], LEFT_ALONE
    else:
        found, done = [names[r] for r in suspects(result.inputs, source)] if result.known is None else [], CALIBRATED
    if found:
        warnings.warn(
            f"{_named(map(str, found))}: looks poisoned; many frames resemble no known device. {done}", stacklevel=2
        )


def uneven(calibrator: Calibrator, result: Calibration, source: SourceStatistics) -> dict[str | int, float]:
    """These captures and their evenness; none where nothing was balanced."""
    if not isinstance(calibrator, UCAPC) or calibrator.prior != "balanced":
        return {}
    return {key: found for key, found in _evenness(result, source).items() if not Careful().believed(found)}


def warn_of(captures: Mapping[str | int, float]) -> None:
    """Warn of captures, by name and evenness, if there are any."""
    if not captures:
        return
    named = _named(f"{key} ({found:.2f})" for key, found in captures.items())
    warnings.warn(
        f"devices seem to send unevenly in {named}: evenness in brackets, expected at least {Careful.even}. {HARM}",
        stacklevel=3,
    )


def _named(names: Iterable[str]) -> str:
    first, *rest = (every := list(names))[:NAMED]
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join((first, *rest)) + more


def _evenness(result: Calibration, source: SourceStatistics) -> dict[str | int, float]:
    """How evenly devices seem to send, by capture; of the frames that were not set aside."""
    inputs, score = result.inputs, torch.as_tensor(result.score)
    decided = torch.as_tensor(result.prediction) >= 0
    found: dict[str | int, float] = {}
    for r, key in enumerate(inputs.groups.keys):
        rows = inputs.groups.rows(r)
        rows = rows[decided[rows]]
        if not len(rows):
            continue
        rows = rows[torch.linspace(0, len(rows) - 1, min(len(rows), LOOKED_AT), device=rows.device).round().long()]
        if knows_enough(source):
            seen = unbalanced(inputs.embedding[rows].double(), inputs.logits[rows].double(), source)
            found[key] = evenness(torch.stack(seen).mean(dim=0))
        else:
            found[key] = evenness(torch.softmax(score[rows].double(), dim=1))
    return found
