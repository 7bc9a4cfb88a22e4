"""The closed form in real numbers: what `FlawEstimator` and `GaussianBackend` compute, as a graph without a solver.

Each frame goes the same way whatever its offset: where it would be turned back and measured again, it is measured again
always, and what came of it is taken where it would be. Small matrices are in double precision, as they are there.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from pisa_capc.model.edge.fronts import Complex, constant
from pisa_capc.model.gaussian.algebra import eliminated
from pisa_capc.model.methods.closed_form import NEVER, FlawsInClosedForm
from pisa_capc.model.networks.pisa import Output
from pisa_capc.signal.measurement import FLAWS
from pisa_capc.signal.measurement.elimination import inverse
from pisa_capc.signal.measurement.estimator import (
    CERTAIN,
    FOREIGN,
    LAG,
    OFFSET,
    ROUNDING,
    ROUNDS,
    TURNS_RAD,
    UNEXPLAINED,
)


class RealClosedForm(nn.Module):
    """The twin of `FlawsInClosedForm`, of frames (1, N, A, T, 2) in which absent antennas are zero."""

    def __init__(self, network: FlawsInClosedForm) -> None:
        super().__init__()
        own = network.estimator
        parts = own.constants()
        self.samples, self.rank, self.others = own.samples, own.rank, own.others
        self.project, self.reference = constant(parts["project"]), constant(parts["reference"])
        self.information, self.correlation = constant(parts["information"]), constant(parts["correlation"])
        self.ordinary, self.moving, self.apart = own.ordinary, own.moving, own.apart
        self.onto = [constant(shape.mT) for shape in parts["onto"]] if own.moving else []
        self.moved = constant(parts["moved"].conj())
        self.flaws = own.flaws
        size = len(own.flaws)
        rows, columns = np.triu_indices(size)
        self.place_of = [[0] * size for _ in range(size)]  # of G_jk among the pairs, conjugate below the diagonal
        for pair, (j, k) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            self.place_of[j][k] = self.place_of[k][j] = pair
        self.fitted = [j for j, name in enumerate(own.flaws) if FLAWS[name].role != "detail"]
        self.identity = [n for n, j in enumerate(self.fitted) if FLAWS[own.flaws[j]].role == "identity"]
        known = network.mean.isfinite().all(1)
        self.mean, self.whiten, self.centre = network.mean[known], network.whiten.clone(), network.centre.clone()
        self.spread = network.frame + network.place + network.error[known]
        self.known = known
        self.position = (known.long().cumsum(0) - 1).clamp_min(0)

    def infer(self, iq: Tensor, descriptor: Tensor | None, mask: Tensor | None) -> Output:
        y = Complex(iq[0, :, :, : self.samples, 0], iq[0, :, :, : self.samples, 1])
        there = y.power().sum(-1) > 0
        still = torch.zeros_like(y.re[:, 0, 0]).double()
        found = self.measured(y, there, still)
        coarse = self.measured(y, there, self.coarse(y))
        found = chosen((found.explained < UNEXPLAINED) & (coarse.explained > found.explained), coarse, found)
        if OFFSET in self.flaws:
            for _ in range(ROUNDS):
                left = (found.offset - found.turned).abs() * (2 * math.pi * self.samples)
                again = (left > TURNS_RAD) & (left > CERTAIN * found.uncertain)
                found = chosen(again, self.measured(y, there, torch.where(again, found.offset, found.turned)), found)
        return self.decided(found)

    def coarse(self, y: Complex) -> Tensor:
        """(N,) offset in cycles a sample by the phase over `LAG` samples."""
        length = self.reference.re.shape[-1]
        tone = y.first(length) * self.reference
        step = tone.first(length - LAG).conj() * tone.after(LAG)
        angle = torch.atan2(step.im.sum((-1, -2)), step.re.sum((-1, -2)))
        return angle.double() / (2 * math.pi * LAG)

    def measured(self, y: Complex, there: Tensor, turned: Tensor) -> Round:
        """G, c and what the rounds go by, of frames whose offset is taken off first."""
        phase = -2 * math.pi * turned[:, None] * torch.arange(self.samples).double()
        turn = Complex(torch.cos(phase).float()[:, None], torch.sin(phase).float()[:, None])
        received = y * turn
        energy = received.power().sum(-1)
        inside = received @ self.project
        q, z = inside.first(self.rank), inside.after(self.rank)
        shared, others = q.power().sum(-1), z.power().sum(-1)
        beyond = self.samples - self.rank - self.others
        noise = torch.maximum(energy - shared - others, ROUNDING * energy) / beyond
        sound = there & ~((others > FOREIGN * shared) & (others > 3 * self.others * noise))
        there = sound | (there & ~sound.any(1, keepdim=True))  # runtimes choose no truths by others
        energy, shared, others = (torch.where(there, part, 0.0) for part in (energy, shared, others))
        weight = torch.where(there, 1 / noise, 0.0)
        other = q.conj().scaled(weight[..., None])
        other = Complex(other.re.mT, other.im.mT)
        information = (other @ q).flattened() @ self.information
        c = (other @ z).flattened() @ self.correlation
        information, c = (Complex(part.re.double(), part.im.double()) for part in (information, c))
        uncertain, offset = turned * 0, turned
        every = list(range(len(self.flaws)))
        value, covariance = self.solved(information, c, every)
        if OFFSET in self.flaws:
            own = self.flaws.index(OFFSET)
            offset = turned + value[:, len(every) + own] / (2 * math.pi * self.samples)
            uncertain = covariance[:, own, own].sqrt()
        unfit = (others * weight).sum(1).double() - (torch.cat([c.re, c.im], dim=1) * value).sum(1)
        if self.moving:
            unfit = self.unmoved(q, z, value, weight)
        signal = (shared - self.rank * noise).clamp_min(0) / self.samples
        walked = self.ordinary * (signal * weight).sum(1)
        misfit = unfit / (there.sum(1) * (self.others - self.moving) - self.apart + walked)
        return Round(information, c, turned, offset, uncertain, shared.sum(1) / energy.sum(1), misfit)

    def unmoved(self, q: Complex, z: Complex, value: Tensor, weight: Tensor) -> Tensor:
        """(N,) what θ̂ (N, 2J) leaves in Z, beside what a channel adds to it by moving."""
        left = z
        for j, onto in enumerate(self.onto):
            theta = Complex(*(value[:, own, None, None].float() for own in (j, len(self.flaws) + j)))
            shape = (q @ onto) * theta
            left = Complex(left.re - shape.re, left.im - shape.im)
        apart = left.power().sum(-1) - (left @ self.moved).power().sum(-1)
        return (apart * weight).sum(1).double()

    def solved(self, information: Complex, c: Complex, which: list[int]) -> tuple[Tensor, Tensor]:
        """(N, 2J) θ̂ and (N, 2J, 2J) the inverse of G, of some flaws: real parts before imaginary ones."""
        rows = []
        for half in (0, 1):
            for j in which:
                row = []
                for other in (0, 1):
                    for k in which:
                        pair = self.place_of[j][k]
                        sign = 1.0 if j <= k else -1.0
                        real, imaginary = information.re[:, pair], sign * information.im[:, pair]
                        row.append(real if half == other else (-imaginary if other else imaginary))
                rows.append(torch.stack(row, dim=-1))
        covariance = inverse(torch.stack(rows, dim=-2))
        right = torch.stack([part[:, j] for part in (c.re, c.im) for j in which], dim=-1)
        return (covariance @ right[..., None])[..., 0], covariance

    def decided(self, found: Round) -> Output:
        """Embedding, its error, and logits."""
        value, covariance = self.solved(found.information, found.c, self.fitted)
        own = [*self.identity, *(len(self.fitted) + n for n in self.identity)]
        wider = found.misfit.clamp_min(1)[:, None, None]
        value, error = value[:, own], covariance[:, own][:, :, own] / 2 * wider
        distance, log = eliminated(value[:, None] - self.mean, error, self.spread)
        likely = -(distance + log + len(own) * math.log(2 * math.pi)) / 2
        never = likely.amin(1, keepdim=True) - NEVER
        logits = torch.where(self.known, likely[:, self.position], never)
        embedding = (value - self.centre) @ self.whiten.T
        said = torch.isfinite(likely).all(1, keepdim=True)  # a frame that cannot be measured says nothing
        embedding, logits = (torch.where(said, own.float(), 0.0) for own in (embedding, logits))
        error = torch.where(said[:, :, None], (self.whiten @ error @ self.whiten.T).float(), torch.inf)
        return Output(embedding[None], logits[None], error=error[None])


REST = ("turned", "offset", "uncertain", "explained", "misfit")


class Round:
    """What a round knows of N frames."""

    def __init__(
        self,
        information: Complex,
        c: Complex,
        turned: Tensor,
        offset: Tensor,
        uncertain: Tensor,
        explained: Tensor,
        misfit: Tensor,
    ) -> None:
        self.information, self.c, self.misfit = information, c, misfit
        self.turned, self.offset, self.uncertain, self.explained = turned, offset, uncertain, explained


def chosen(which: Tensor, one: Round, other: Round) -> Round:
    """`one` where `which` (N,) is true."""

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(which[:, None] if a.ndim == 2 else which, a, b)

    def both(a: Complex, b: Complex) -> Complex:
        return Complex(pick(a.re, b.re), pick(a.im, b.im))

    return Round(
        both(one.information, other.information),
        both(one.c, other.c),
        *(pick(getattr(one, name), getattr(other, name)) for name in REST),
    )
