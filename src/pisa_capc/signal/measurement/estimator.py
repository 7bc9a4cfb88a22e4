"""The flaws of a transmitter in closed form, with error bars, from frames whose waveform is known.

    y_a = h_a ∗ (x + Σ_j θ_j b_j(x)) + w_a

x (T,) is what every device sends, h_a the channel to antenna a, θ_j how strong flaw j is (`flaws`), w_a white noise of
variance s_a² on each antenna. With X the delayed copies of x, Q an orthonormal basis of them, and B_j those of b_j,

    ĥ_a = (XᴴX + D)⁻¹ Xᴴ y_a                         the channel, by least squares
    M_j = (I − QQᴴ) B_j                              what flaw j adds that no channel explains
    θ̂ = G⁻¹ c,  c_j = Σ_a (M_j ĥ_a)ᴴ y_a / s_a²,  G_jk = Σ_a (M_j ĥ_a)ᴴ (M_k ĥ_a) / s_a²

G is the information about θ: G⁻¹ is the covariance of its circular complex error. θ is relative to x, so neither gain
nor phase of a channel matters. An antenna that is missing drops out of the sums.

All M_j lie in a few dozen directions Z, which are found once for a waveform. A frame is projected onto [Q Z] first, and
everything else happens there. A smaller Z loses information and nothing else: G tells the errors. The noise of ĥ is in
G and not in c, so θ̂ shrinks by about (r/T)/SNR, r the rank of Q: nothing above 10 dB, a fifth at −5 dB. The noise s_a²
is measured outside of [Q Z], where the model has no flaw. What θ̂ leaves inside of Z is compared with that noise
(`Measurement.misfit`): a flaw that the model does not have, such as an amplifier with memory, shows there. Two things
show there that are no misfit. The phase of an ordinary oscillator walks (`Waveform.linewidth_hz`): how much of that is
to be expected in Z is added to the noise. And in frames longer than `Waveform.block` a channel moves, on each antenna
by itself: whatever (h_a + t h'_a + t² h''_a) ∗ x may be is left out of the comparison.

A filter that x does not have leaves the same residual in every frame of a sender. It is misfit and not noise: it moves
θ̂, always by the same, and does not scatter it. `measure` tells the two apart where it knows who sent which frame.

A carrier offset is in the model to first order. Where it turns a frame further than that, the frame is turned back and
measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import f as f_distribution
from torch import Tensor

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.threads import in_threads
from pisa_capc.signal.measurement.elimination import inverse
from pisa_capc.signal.measurement.flaws import FLAWS
from pisa_capc.signal.waveforms import Waveform
from pisa_capc.signal.waveforms.delays import delayed_copies, orthonormal

KEPT = 0.995  # of each flaw's energy, by the directions Z
SEEN = 1e-3  # of a flaw's energy, at least, no channel of x explains: the offset of a chirp is a delay, and is not seen
ALIKE = 1e-3  # of a flaw's amplitude, at least, differs from every sum of the others
SPARE = 2  # directions beside [Q Z] for each of them, at least: what the noise is measured in
OFFSET = "offset"
STEPS = 512  # of a phase that walks, at most, that its part in Z is computed by
TURNS_RAD = 0.3  # of phase over a frame; a larger offset is taken off before the flaws are measured
CERTAIN = 5.0  # standard deviations that such an offset must have
UNEXPLAINED = 0.5  # of a frame's energy; with more, an offset of many turns may hide the waveform
LAG = 16  # samples, by which such an offset is found: up to ±fs/32
LEAST = 0.01  # of a residual that is noise, whatever repeats in it
ROUNDS = 3  # of turning back
FAINTEST = 1e-30  # energy of an antenna that is there
FOREIGN = 0.1  # of the energy in Q, that no transmitter adds to it
ROUNDING = 1e-6  # of a frame's energy: no noise below that is told from the rounding of float32
BLOCK = 512  # frames at a time: they stay in a core's cache

Complex = NDArray[np.complexfloating[Any, Any]]
Real = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Measurement:
    """Measurements of N frames on A antennas.

    flaws: names of the J columns. value: (N, J) θ̂, NaN where a frame could not be measured. covariance: (N, J, J) of
    its error, circular and complex: half of it belongs to each of the real and the imaginary part. channel: (N, A, L)
    ĥ. noise: (N, A) s_a², NaN on antennas that are missing. snr_db: (N, A). offset: (N,) carrier offset in cycles a
    sample. misfit: (N,) energy per dimension that θ̂ leaves in Z, relative to noise and the walk of an ordinary phase;
    about one where the model holds, see `suspicion`. freedom: (N, 2) dimensions of the two. explained: (N,) part of the
    energy that x explains behind a channel.
    """

    flaws: tuple[str, ...]
    value: Complex
    covariance: Complex
    channel: Complex
    noise: Real
    snr_db: Real
    offset: Real
    misfit: Real
    freedom: NDArray[np.int64]
    explained: Real

    def __len__(self) -> int:
        return len(self.value)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """(N,) frames that could be measured."""
        return np.isfinite(self.misfit)

    @property
    def suspicion(self) -> Real:
        """(N,) chance that noise alone makes a misfit as large: small where the model does not hold."""
        chance = f_distribution.sf(self.misfit, 2 * self.freedom[:, 0], 2 * self.freedom[:, 1])
        return np.asarray(np.where(self.measured, chance, np.nan))

    def select(self, which: Any) -> Measurement:
        """The frames where a mask is true, or those at the given positions."""
        own = {field.name: getattr(self, field.name)[which] for field in fields(self) if field.name != "flaws"}
        return Measurement(self.flaws, **own)

    def joined(self, others: Sequence[Measurement]) -> Measurement:
        """The frames of several measurements of one estimator, one after the other."""
        every = (self, *others)
        own = {
            field.name: np.concatenate([getattr(each, field.name) for each in every])
            for field in fields(self)
            if field.name != "flaws"
        }
        return Measurement(self.flaws, **own)

    def without(self, flaws: Sequence[str]) -> Measurement:
        """θ̂ where these flaws are taken to be absent: what they would explain falls to the others, whose bars shrink.

        d the absent flaws, R_kd and R_dd blocks of the covariance R: θ̂' = θ̂ − R_kd R_dd⁻¹ θ̂_d and
        R' = R − R_kd R_dd⁻¹ R_dk. The misfit stays that of all flaws.
        """
        left, gone = ([j for j, name in enumerate(self.flaws) if (name in flaws) is absent] for absent in (False, True))
        to_left, absent = self.covariance[:, gone][:, :, left], self.covariance[:, gone][:, :, gone]
        gain = np.conj(to_left.swapaxes(1, 2)) @ _inverse(absent)
        value = self.value[:, left] - (gain @ self.value[:, gone, None])[..., 0]
        covariance = self.covariance[:, left][:, :, left] - gain @ to_left
        return replace(self, flaws=tuple(self.flaws[j] for j in left), value=value, covariance=covariance)

    def features(self) -> tuple[Real, Real]:
        """(N, 2J) real and imaginary parts of the flaws that are an identity, and (N, 2J, 2J) their errors' covariance.

        Details are taken to be absent (`without`). Nuisances have been fitted: not to know them is in the covariance.
        """
        fitted = self.without([name for name in self.flaws if FLAWS[name].role == "detail"])
        own = [column for column, name in enumerate(fitted.flaws) if FLAWS[name].role == "identity"]
        value, covariance = fitted.value[:, own], fitted.covariance[:, own][:, :, own] / 2
        real, imaginary = covariance.real, covariance.imag
        block = np.block([[real, -imaginary], [imaginary, real]])
        return np.concatenate([value.real, value.imag], axis=1), block


class FlawEstimator:
    """The estimator above, for frames that begin with a waveform.

    samples: of the frames, from their beginning, that are used; more than the waveform has are left out. flaws: names;
    all that the waveform shows by default. sent: x, where it is more than the waveform's preamble (`rebuilt`).
    beside: more shapes x → b(x), by name, that are fitted with them.
    lead: samples of x that are sent before the frame begins, and echo in it.

    >>> from pisa_capc.signal.waveforms import WAVEFORMS
    >>> x = WAVEFORMS["wifi"].preamble()
    >>> sent = x + (0.02 - 0.01j) * x.conj()
    >>> noise = np.random.default_rng(0).normal(size=(1, 1, 320, 2)) @ [1e-3, 1e-3j]
    >>> measured = FlawEstimator(WAVEFORMS["wifi"]).measure(sent[None, None] + noise)
    >>> measured.flaws[0], measured.value[0, 0].round(3)
    ('image', np.complex128(0.02-0.01j))
    """

    own_x: ClassVar[bool] = False  # whether x is each frame's own

    def __init__(
        self,
        waveform: Waveform,
        samples: int | None = None,
        flaws: Sequence[str] | None = None,
        sent: Complex | None = None,
        beside: Mapping[str, Callable[[Complex], Complex]] | None = None,
        lead: int = 0,
    ) -> None:
        before, after = waveform.taps
        taps = before + 1 + after
        sent = waveform.preamble() if sent is None else sent
        # The last samples hear what follows the preamble, which is not known.
        most = len(sent) - before - lead
        length = most if samples is None else min(samples, most)
        self.waveform, self.samples, self.taps = waveform, length, (before, after)
        if length < (least := 4 * taps):
            raise DataError(
                f"{length} samples of {waveform.title} are too few to measure a transmitter in; expected {least} or "
                f"more, for a channel of {taps} taps. Use frames that hold more of the preamble."
            )
        x = sent[: lead + length + before]
        copies = delayed_copies(x, lead + length, before, after).T[lead:]
        basis = orthonormal(copies, 1e-7)
        # ĥ = H Qᴴy. The ridge keeps taps that the band does not show from growing, the farther out the more.
        distance = np.abs(np.arange(-before, after + 1))
        ridge = waveform.ridge * length * np.diag(10.0**distance)
        solve = np.linalg.solve(copies.conj().T @ copies + ridge, copies.conj().T @ basis)
        known = tuple(FLAWS.parts()) if flaws is None else tuple(flaws)
        every = {name: FLAWS[name].of for name in known} | dict(beside or {})
        seen: dict[str, Complex] = {}
        for name, of in every.items():
            shape = _beyond(of(x), lead, basis, before, after)
            if shape is not None and not _is_sum(shape, list(seen.values())):
                seen[name] = shape
        if not seen:
            raise ConfigError(f"{waveform.title} shows none of the flaws {', '.join(known)}.")
        self.flaws, shapes = tuple(seen), list(seen.values())
        directions = _directions(shapes)
        self.rank, self.others = basis.shape[1], directions.shape[1]
        if length < (least := (1 + SPARE) * (self.rank + self.others)):
            raise DataError(
                f"{length} samples of {waveform.title} leave nothing to measure the noise by; expected {least} or "
                "more. Use frames that hold more of it."
            )
        onto = np.stack([directions.conj().T @ shape @ solve for shape in shapes])  # (J, R, r): q → ZᴴM_jĥ
        self._pairs = np.triu_indices(len(shapes))
        products = np.stack([onto[j].conj().T @ onto[k] for j, k in zip(*self._pairs, strict=True)])  # qᴴ · q → G_jk
        self._project = _as_weights(np.concatenate([basis, directions], axis=1).conj())
        self._information = _as_weights(products.reshape(len(products), -1).T)
        self._correlation = _as_weights(onto.conj().transpose(2, 1, 0).reshape(-1, len(onto)))
        self._invert = _as_weights(solve.T)
        moved = _moving(copies, basis, directions) if length > waveform.block else np.zeros((self.others, 0), complex)
        self.moving = moved.shape[1]  # dimensions of Z that a channel adds to by moving
        plain = (onto @ (basis.conj().T @ x[lead : lead + length])).T  # (R, J) what flaws add in Z behind no echo
        still = plain - moved @ (moved.conj().T @ plain)
        self.apart = int(np.sum(_energy(still) > SEEN * _energy(plain)))  # flaws that no movement stands for
        fitted = np.concatenate([moved, plain], axis=1)
        self._onto, self._moved = _as_weights(onto), _as_weights(moved)
        self.ordinary = _walked(x[lead : lead + length], directions, fitted, waveform)
        periodic = min(waveform.periodic or length, length)
        self._reference = _as_weights(x[lead : lead + periodic].conj())

    def measure(
        self, iq: Complex, mask: NDArray[np.bool_] | None = None, sender: NDArray[np.int64] | None = None
    ) -> Measurement:
        """Measure frames (N, A, T or more).

        mask: (N, A) or (A,) antennas that are there; the others count for nothing. An antenna that is silent, or not
        finite, counts as missing in that frame.
        sender: (N,) a number for each frame's sender in one place, frames in order of time. What the residuals of a
        sender's successive frames have in common is then misfit and not noise. Without it all of a residual is noise:
        where a filter shapes the waveform, error bars are too wide.
        """
        if iq.ndim != 3 or iq.shape[-1] < self.samples:
            raise DataError(
                f"frames of shape {iq.shape}: expected (frames, antennas, samples) with {self.samples} samples of "
                f"{self.waveform.title} or more. Cut longer frames, or give the estimator the samples that they have."
            )
        if sender is not None and len(sender) != len(iq):
            raise DataError(f"{len(sender)} numbers of a sender for {len(iq)} frames: expected one for each.")
        received = torch.from_numpy(np.require(iq, np.complex64, ["C", "W"]))[..., : self.samples]
        there = torch.from_numpy(np.array(np.broadcast_to(True if mask is None else mask, iq.shape[:2])))
        blocks = [slice(start, start + BLOCK) for start in range(0, max(1, len(iq)), BLOCK)]
        found = _joined(in_threads(lambda rows: self._turned_back(received[rows], there[rows]), blocks))
        if sender is not None:
            misfit = self._repeating(received, there, found.turned, torch.from_numpy(np.asarray(sender)))
            found = _joined(
                in_threads(
                    lambda rows: self._solve(received[rows], there[rows], found.turned[rows], misfit[rows]), blocks
                )
            )
        return Measurement(self.flaws, *(column.numpy() for column in found[: len(fields(Measurement)) - 1]))

    def constants(self) -> dict[str, Tensor]:
        """What depends on x alone, for twins of this estimator in other words."""
        return {
            "project": self._project,
            "information": self._information,
            "correlation": self._correlation,
            "reference": self._reference,
            "onto": self._onto,
            "moved": self._moved,
        }

    def _turned_back(self, received: Tensor, there: Tensor) -> _Solved:
        """A block. Frames with an offset that is not small are turned back and measured again."""
        found = self._solve(received, there, torch.zeros(len(received), dtype=torch.float64))
        rows = (found.explained < UNEXPLAINED).nonzero()[:, 0]
        if len(rows):
            other = self._solve(received[rows], there[rows], self._coarse_offset(received[rows], there[rows]))
            better = other.explained > found.explained[rows]
            found = _replaced(found, rows[better], _Solved(*(column[better] for column in other)))
        for _ in range(ROUNDS):
            left = (found.offset - found.turned).abs() * (2 * torch.pi * self.samples)
            rows = ((left > TURNS_RAD) & (left > CERTAIN * found.uncertain)).nonzero()[:, 0]
            if not len(rows):
                break
            found = _replaced(found, rows, self._solve(received[rows], there[rows], found.offset[rows]))
        return found

    def _repeating(self, received: Tensor, there: Tensor, turned: Tensor, sender: Tensor) -> Tensor:
        """(N, A) energy outside of [Q Z] that a sender's successive frames share, of the energy in Q.

        Σ Re ⟨r_n, r_m⟩ e^{−j∠⟨q_n, q_m⟩} / Σ ‖q_n‖ ‖q_m‖ over successive frames n, m: zero on average for noise.
        """
        order = torch.argsort(sender, stable=True)
        numbers, number = torch.unique(sender, return_inverse=True)
        shared, whole = (torch.zeros(len(numbers), there.shape[1]) for _ in range(2))
        for start in range(0, len(order) - 1, BLOCK):
            rows = order[start : start + BLOCK + 1]
            sound = there[rows] & received[rows].isfinite().all(-1)
            y = torch.where(sound[..., None], self._turn(received[rows], turned[rows]), 0)
            inside = y @ self._project
            q = inside[..., : self.rank]
            residual = (y[:-1].conj() * y[1:]).sum(-1) - (inside[:-1].conj() * inside[1:]).sum(-1)
            channel = (q[:-1].conj() * q[1:]).sum(-1)
            same = (number[rows[:-1]] == number[rows[1:]])[:, None]
            size = _power(q.reshape(-1, self.rank)).view(q.shape[:2]).sqrt()
            shared.index_add_(0, number[rows[:-1]], torch.where(same, (residual * channel.conj().sgn()).real, 0))
            whole.index_add_(0, number[rows[:-1]], torch.where(same, size[:-1] * size[1:], 0))
        return torch.where(whole > 0, shared / whole, 0).clamp_min(0)[number]

    def _coarse_offset(self, received: Tensor, there: Tensor) -> Tensor:
        """(n,) ∠Σ d*[n] d[n+16] / (2π·16), d = y·x*, in cycles a sample; n where x tells it behind any channel."""
        tone = received[..., : len(self._reference)] * self._reference
        tone = torch.where(there[..., None] & tone.abs().isfinite(), tone, 0)
        lagged = (tone[..., :-LAG].conj() * tone[..., LAG:]).sum((-1, -2))
        return lagged.angle().double() / (2 * torch.pi * LAG)

    def _unmoved(self, q: Tensor, z: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        """(n,) Σ_a ‖(I − DDᴴ)(z_a − Σ_j θ_j M_j ĥ_a)‖² / s_a², D what a channel that moves adds in Z."""
        shape = torch.einsum("nj,jRr->nRr", value[..., 0].to(q.dtype), self._onto)
        left = z - (shape @ q.mT).mT
        apart = _power(left.flatten(0, 1)) - _power((left @ self._moved.conj()).flatten(0, 1))
        return (apart.view(weight.shape) * weight).sum(1).double()

    def _turn(self, received: Tensor, turned: Tensor) -> Tensor:
        """Frames (n, A, T) without an offset (n,) in cycles a sample."""
        if not turned.any():
            return received
        phase = -2 * torch.pi * turned[:, None] * torch.arange(self.samples)
        return received * torch.polar(torch.ones_like(phase), phase).to(received.dtype)[:, None]

    def _solve(self, received: Tensor, there: Tensor, turned: Tensor, repeating: Tensor | None = None) -> _Solved:
        """θ̂ and the rest, of frames (n, A, T) whose offset `turned` (n,) is taken off first; see `_repeating`."""
        received = self._turn(received, turned)
        frames, antennas = there.shape
        flat = received.reshape(frames * antennas, self.samples)
        energy = _power(flat).reshape(frames, antennas)
        there = there & energy.isfinite() & (energy > FAINTEST)
        inside = (flat @ self._project).masked_fill(~there.reshape(-1, 1), 0)
        q, z = inside[:, : self.rank], inside[:, self.rank :]
        energy = energy.masked_fill(~there, 0)
        shared, others = _power(q).reshape(frames, antennas), _power(z).reshape(frames, antennas)
        beyond = self.samples - self.rank - self.others  # dimensions in which there is nothing but noise
        left = energy - shared - others
        if repeating is not None:
            left = torch.maximum(left - repeating * shared, LEAST * left)
        noise = torch.maximum(left, ROUNDING * energy) / beyond
        # An input that hears no signal, and has an offset of its own, would pass for a good antenna with much leakage.
        own = there & ~((others > FOREIGN * shared) & (others > 3 * self.others * noise))
        there = torch.where(own.any(1, keepdim=True), own, there)
        energy, shared, others = (part.masked_fill(~there, 0) for part in (energy, shared, others))
        weight = torch.where(there, 1 / noise, 0)
        # G and c are linear in Σ_a w_a q_a* qᵀ_a and Σ_a w_a q_a* zᵀ_a, which are summed over the antennas first.
        q, z = (part.view(frames, antennas, part.shape[-1]) for part in (q, z))
        q_conj = (q.conj() * weight[..., None]).mT
        information = ((q_conj @ q).flatten(1) @ self._information).to(torch.complex128)
        c = ((q_conj @ z).flatten(1) @ self._correlation).to(torch.complex128)[..., None]
        covariance = inverse(_hermitian(information, self._pairs))
        value = covariance @ c
        count = there.sum(1)
        freedom = torch.stack([count * (self.others - self.moving) - self.apart, count * beyond], dim=1)
        signal = (shared - self.rank * noise).clamp_min(0) / self.samples
        unfit = (others * weight).sum(1).double() - (c.conj() * value).real.sum((-1, -2))
        if self.moving:
            unfit = self._unmoved(q, z, value, weight)
        walked = self.ordinary * (signal * weight).sum(1)
        misfit = torch.where(count > 0, unfit / (freedom[:, 0] + walked), torch.nan)
        offset, uncertain = turned, torch.zeros_like(turned)
        if OFFSET in self.flaws:
            own = self.flaws.index(OFFSET)
            offset = turned + value[:, own, 0].imag / (2 * torch.pi * self.samples)
            uncertain = covariance[:, own, own].real.sqrt()
        return _Solved(
            value=value[..., 0],
            covariance=covariance,
            channel=q @ self._invert,
            noise=torch.where(there, noise, torch.nan),
            snr_db=torch.where(there, 10 * torch.log10(signal / noise), torch.nan),
            offset=offset,
            misfit=misfit,
            freedom=freedom,
            explained=shared.sum(1) / energy.sum(1),
            turned=turned,
            uncertain=uncertain,
        )


class _Solved(NamedTuple):
    """The columns of a `Measurement`, and behind them what the rounds go by."""

    value: Tensor
    covariance: Tensor
    channel: Tensor
    noise: Tensor
    snr_db: Tensor
    offset: Tensor
    misfit: Tensor
    freedom: Tensor
    explained: Tensor
    turned: Tensor
    uncertain: Tensor


def _moving(copies: Complex, basis: Complex, directions: Complex) -> Complex:
    """(R, k) D: an orthonormal basis in Z of t x and t² x, delayed."""
    t = np.linspace(-1, 1, len(copies))[:, None]
    moved = np.concatenate([copies * t, copies * t**2], axis=1)
    beyond = moved - basis @ (basis.conj().T @ moved)
    return orthonormal(directions.conj().T @ beyond / np.linalg.norm(beyond), SEEN)


def _energy(columns: Complex) -> Real:
    return np.asarray((np.abs(columns) ** 2).sum(axis=0))


def _walked(x: Complex, directions: Complex, fitted: Complex, waveform: Waveform) -> float:
    """Energy in Z, beside what is fitted (R, k), of an ordinary walk of the phase, at a signal of unit power."""
    apart = -(-len(x) // STEPS)
    n = np.arange(len(x))
    steps = directions.conj().T @ np.where(n[:, None] >= n[::apart], x[:, None], 0)
    basis = orthonormal(fitted, 1e-7)
    left = np.linalg.norm(steps - basis @ (basis.conj().T @ steps)) ** 2
    return float(2 * np.pi * waveform.linewidth_hz / waveform.sample_rate_hz * apart * left)


def _joined(found: Iterable[_Solved]) -> _Solved:
    return _Solved(*(torch.cat(columns) for columns in zip(*found, strict=True)))


def _replaced(found: _Solved, rows: Tensor, new: _Solved) -> _Solved:
    return _Solved(*(part.index_copy(0, rows, own) for part, own in zip(found, new, strict=True)))


def _inverse(matrices: Complex) -> Complex:
    return np.asarray(inverse(torch.from_numpy(np.array(matrices))).numpy())


def _power(x: Tensor) -> Tensor:
    """(n,) energies of rows (n, m)."""
    return torch.view_as_real(x).square().sum((-1, -2))


def _as_weights(values: Complex) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.complex64))


def _hermitian(upper: Tensor, pairs: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Tensor:
    """(n, J, J) the matrices whose upper triangles, row by row, are (n, P)."""
    rows, columns = (torch.from_numpy(own) for own in pairs)
    size = int(rows[-1]) + 1
    found = upper.new_zeros(len(upper), size, size)
    found[:, columns, rows] = upper.conj()
    found[:, rows, columns] = upper
    found.diagonal(dim1=1, dim2=2).imag.zero_()  # rounding
    return found


def _beyond(flaw: Complex, lead: int, basis: Complex, before: int, after: int) -> Complex | None:
    """(T, L) (I − QQᴴ) of the delayed copies of a flaw; None where channels of x explain all of it."""
    copies = delayed_copies(flaw, lead + len(basis), before, after).T[lead:]
    beyond = copies - basis @ (basis.conj().T @ copies)
    return beyond if np.linalg.norm(beyond) ** 2 > SEEN * np.linalg.norm(copies) ** 2 else None


def _is_sum(flaw: Complex, others: Sequence[Complex]) -> bool:
    """Whether M_j = Σ_k c_k M_k, so that no channel tells this flaw from the others: G would have no inverse. Of a
    constant envelope |x|²x* is x*."""
    if not others:
        return False
    stacked = np.stack([own.ravel() for own in others], axis=1)
    left = flaw.ravel() - stacked @ np.linalg.lstsq(stacked, flaw.ravel(), rcond=None)[0]
    return bool(np.linalg.norm(left) < ALIKE * np.linalg.norm(flaw))


def _directions(shapes: Sequence[Complex]) -> Complex:
    """(T, R) the fewest directions that hold `KEPT` of each flaw, whatever the channel."""
    norms = [float(np.linalg.norm(own)) for own in shapes]
    stacked = np.concatenate([own / norm for own, norm in zip(shapes, norms, strict=True)], axis=1)
    vectors, _, _ = np.linalg.svd(stacked, full_matrices=False)
    onto = vectors.conj().T @ np.stack([own / norm for own, norm in zip(shapes, norms, strict=True)])
    held = np.cumsum(np.sum(np.abs(onto) ** 2, axis=2), axis=1)
    return np.asarray(vectors[:, : 1 + max(int(np.searchsorted(own, KEPT)) for own in held)])
