r"""Careful: what is done to a capture depends on how evenly its devices seem to send.

No calibration is best everywhere. A balanced transport gains most where all devices send equally often and does great
harm where they do not; methods that gain where few devices send gain little elsewhere. Which of these a capture is can
be told without labels: by the entropy of the class shares that a calibration without a balance, StatA, finds in it,

    evenness = H(π̂) / ln C + (C − 1) / (4 n ln C),      π̂ = mean_i p_i,

the second part being half of what n frames of equal shares lack on average: half, because a skewed capture that is
taken for an even one costs more than the other way round. The evenness chooses a panel, and the mean of the
panel's probabilities decides:

    even     evenness ≥ 0.97    U-CAPC as published, BD-CSPN, PT-MAP
    uneven   in between         StatA, U-CAPC without a prior, LAME
    few      evenness < 0.85    LAME, the classifier itself

LAME asks no more neighbours than a quarter of the frames that a device has on average: min(5, n / 4C). There is nothing
to learn: one source environment is enough.

Panels and numbers were chosen on source environments alone, with seventeen models of one source environment that met
another one; what came of it in a third is in the results (`studies.calibrations`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pisa_capc.calibration.base import Calibrator, check_range, register
from pisa_capc.calibration.peers.base import Peer, Transduced, class_anchors
from pisa_capc.calibration.peers.bd_cspn import BDCSPN
from pisa_capc.calibration.peers.lame import LAME
from pisa_capc.calibration.peers.pt_map import PTMAP
from pisa_capc.calibration.peers.stata import StatA
from pisa_capc.calibration.result import Judged
from pisa_capc.calibration.safe import Safe
from pisa_capc.calibration.ucapc import PRESETS, UCAPC
from pisa_capc.calibration.vectors import unit
from pisa_capc.inference.statistics import SourceStatistics

ROUNDS = 50  # of the potentials that hold the shares
NEVER = 2.0  # evenness that no capture has
SMALLEST = 1e-6  # share of a class that nobody seems to use


@register("careful")
@dataclass(frozen=True)
class Careful(Peer):
    """A panel of calibrations for each capture, chosen by how evenly its devices seem to send; see the module.

    >>> result = Careful().calibrate(embedding, logits, capture, source)    # doctest: +SKIP
    >>> [(judged.level, judged.evenness) for judged in result.judged]       # doctest: +SKIP

    Needs `class_mean` (or else `weight`); uses `mean` where it is known. For later frames (`fit`, streams) what a panel
    decided is kept as prototypes and class potentials, which is close to it and not the same.
    """

    title = "careful"
    freezes = True

    group: str = "capture"
    even: float = 0.97  # evenness from which a balance is assumed
    few: float = 0.85  # evenness below which few devices are assumed

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, few=(0, NEVER), even=(self.few, NEVER))

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        n, classes = logits.shape
        class_anchors(source, classes, embedding, self.title)  # what is missing is missed by its own name
        anchored = StatA().transduce(embedding, logits, source).probability
        found = evenness(anchored)
        lame = LAME(neighbours=min(LAME.neighbours, n // (4 * classes))).transduce(embedding, logits, source)

        def by_ucapc(preset: str) -> Tensor:
            result = replace(PRESETS[preset], group="none").calibrate(embedding, logits)
            return torch.as_tensor(result.probability)

        if found >= self.even:
            level, panel = "even", [by_ucapc("paper")]
            panel += [peer.transduce(embedding, logits, source).probability for peer in (BDCSPN(), PTMAP())]
        elif found >= self.few:
            level, panel = "uneven", [anchored, by_ucapc("without-prior"), lame.probability]
        else:
            level, panel = "few", [lame.probability, torch.softmax(logits, dim=1)]
        probability = torch.stack(panel).mean(dim=0)
        score = probability.clamp(min=torch.finfo(probability.dtype).tiny).log()
        return Transduced(score, probability, *distilled(probability, embedding, logits), Judged(level, found))


def usual(source: SourceStatistics) -> Calibrator:
    """What is used where nobody asks for another: U-CAPC under the guard that was trained with the model; without one
    careful; where nothing is known of the classes in the source U-CAPC without a prior. None of them assumes that
    devices send equally often."""
    if source.guard is not None:
        return Safe()
    return UCAPC(prior="none") if source.class_mean is None else Careful()


def evenness(probability: Tensor) -> float:
    """Entropy of the class shares of probabilities (n, C), of the largest there is, corrected for few frames."""
    n, classes = probability.shape
    if classes < 2:
        return 0.0
    entropy = float(torch.special.entr(probability.mean(dim=0)).sum())
    return (entropy + (classes - 1) / (4 * n)) / math.log(classes)


def distilled(probability: Tensor, embedding: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """What frames were decided as, for frames to come: prototypes p (C, D) and potentials g (C,) of U-CAPC's form.

    p_k is the unit-length sum of the frames weighted by their probability; with s = ℓ + λ_p zᵀp / τ_p the potentials
    make the mean of softmax(s + g) the class shares that were decided.
    """
    settings, features = UCAPC(), unit(embedding)
    prototypes = unit(probability.T @ features)
    score = logits + settings.fusion / settings.temperature * features @ prototypes.T
    shares = probability.mean(dim=0).clamp(min=SMALLEST)
    potential = torch.zeros_like(shares)
    for _ in range(ROUNDS):
        held = torch.softmax(score + potential, dim=1).mean(dim=0)
        potential += shares.log() - held.clamp(min=SMALLEST).log()
    return prototypes, potential - potential.mean()
