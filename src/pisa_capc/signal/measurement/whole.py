"""Flaws from a whole frame: behind the preamble too, where a right checksum says which bits were sent.

The frame is cut into blocks (`Waveform.block`), each with a channel and a noise of its own, as if it were another
antenna: a channel that moves slowly, a clock that is off and a phase that walks are no matter. With Q of a block an
orthonormal basis of the delayed copies X = QR, q = Qᴴy, r = y − Qq and M_j = (I − QQᴴ) B_j R⁻¹,

    c_j = Σ (M_j q)ᴴ r / s²,    G_jk = Σ (M_j q)ᴴ (M_k q) / s²,    D_jk = Σ tr M_jᴴ M_k

over blocks and antennas. The noise of q is in G, by D on average, and not in c, so θ̂ = (G − D)⁻¹ c. s² is what a block
has left behind θ̂, in a few rounds.

The phase of an oscillator walks, by a tenth of a radian in a block and on all antennas alike: of r, j φ(t) y is taken
off, φ a polynomial of each block. What is left of it is no white noise. So the bars go by what the frame itself shows:
with g_p the part of c − G θ̂ that PIECES of each block add to it, on all antennas together, P of them in all,

    Cov θ̂ = (G − D)⁻¹ P/(P − J) Σ_p g_p g_pᴴ (G − D)⁻¹      (White, Econometrica 48(4), 1980)

which is (G − D)⁻¹ G (G − D)⁻¹ on average where noise is white.

Data differ from frame to frame, so what a filter leaves of them is noise here: it widens the bars and moves nothing.
The preamble is the same in each frame, and there it moves θ̂; so the two are not averaged.

Data have higher peaks than a preamble, and an amplifier's curve is no polynomial, so |x|²x … |x|⁶x of the data are
fitted and set aside; compression is that of the preamble.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.polynomial import Legendre
from numpy.typing import NDArray
from scipy.linalg import eigh

from pisa_capc.signal.measurement.estimator import OFFSET, SEEN, Measurement
from pisa_capc.signal.measurement.flaws import FLAWS
from pisa_capc.signal.waveforms import Waveform
from pisa_capc.signal.waveforms.delays import delayed_copies

MOST = 2**15  # samples of a frame that are used
AMPLIFIER = (2, 4, 6)  # powers of |x| that are set aside
ROUNDS = 3
LEAST = 8  # samples of a block for each tap
WALKS = (1, 2, 3)  # orders of a phase in a block, which walks
PIECES = 16  # of a block, whose errors are taken to be independent
TOLD = 0.5  # part of G, in every direction, that is more than the noise of the channel

Complex = NDArray[np.complexfloating[Any, Any]]


@dataclass(frozen=True)
class Whole:
    """A frame: its row among those measured, (A, T) as received without its offset, and (T,) what was sent."""

    row: int
    iq: Complex
    sent: Complex


@dataclass(frozen=True)
class Behind:
    """What the samples behind a preamble tell of some flaws: θ̂ (J,) and its covariance (J, J).

    snr_db: of a block of an antenna in the mean, all as noise that is not explained.
    """

    flaws: tuple[str, ...]
    value: Complex
    covariance: Complex
    samples: int
    snr_db: float


def behind(waveform: Waveform, frame: Whole, flaws: Sequence[str]) -> Behind | None:
    """Measure those of the flaws that data show as a preamble does; None where there are too few samples."""
    before, after = waveform.taps
    first, taps = len(waveform.preamble()), before + 1 + after
    length = min(frame.iq.shape[1], len(frame.sent), MOST) - before  # the last samples hear what is not known
    size = min(waveform.block, length - first)
    blocks = (length - first) // size if size >= LEAST * taps else 0
    own = tuple(name for name in flaws if FLAWS[name].role == "identity" and FLAWS[name].in_data)
    there = np.isfinite(frame.iq).all(axis=1) & (np.abs(frame.iq).max(axis=1, initial=0) > 0)
    if blocks < 1 or not own or not there.any():
        return None
    x = frame.sent[: length + before]

    def cut(rows: Complex) -> Complex:
        """(…, length) → (…, blocks, size)."""
        return rows[..., first : first + blocks * size].reshape(*rows.shape[:-1], blocks, size)

    def copies(of: Complex) -> Complex:
        """(blocks, size, taps) of a signal's delayed copies."""
        return np.moveaxis(cut(delayed_copies(of, length, before, after)), 0, 2)

    known = copies(x)
    q_of, r_of = np.linalg.qr(known)
    ramp = (np.arange(size) / size - 0.5)[:, None]
    shapes = [_beyond(copies(FLAWS[name].of(x)), q_of) for name in own]
    aside = [copies(np.abs(x) ** power * x) for power in AMPLIFIER] + [known * ramp] * (OFFSET in flaws)
    shapes += [shape for each in aside if np.linalg.norm(shape := _beyond(each, q_of)) ** 2 > SEEN * _energy(each)]
    onto = np.stack([shape @ np.linalg.inv(r_of) for shape in shapes], axis=1)  # (blocks, J, size, taps)
    y = np.moveaxis(cut(frame.iq[there].astype(np.complex128)), 0, 2)  # (blocks, size, A)
    q = q_of.conj().swapaxes(1, 2) @ y
    left = _steady(y - q_of @ q, q_of @ q)
    model = onto @ q[:, None]  # (blocks, J, size, A)
    pairs = np.einsum("bjna,bkna->bajk", model.conj(), model)
    match = np.einsum("bjna,bna->baj", model.conj(), left)
    energy = (np.abs(left) ** 2).sum(axis=1)
    freedom = size - taps - len(shapes) / (blocks * there.sum())
    by_chance = there.sum() * np.einsum("bjnl,bknl->jk", onto.conj(), onto)
    value = np.zeros(len(shapes), dtype=np.complex128)
    for _ in range(ROUNDS):
        explained = 2 * (match @ value.conj()).real - np.einsum("j,bajk,k->ba", value.conj(), pairs, value).real
        weight = freedom / np.maximum(energy - explained, 1e-9 * energy + np.finfo(float).tiny)
        information = np.einsum("ba,bajk->jk", weight, pairs)
        signal = information - by_chance
        if eigh(signal, information, eigvals_only=True)[0] < TOLD:
            return None
        value = np.linalg.solve(signal, np.einsum("ba,baj->j", weight, match))
    inverse = np.linalg.inv(signal)
    score = np.einsum("ba,bjna,bna->bnj", weight, model.conj(), left - np.einsum("j,bjna->bna", value, model))
    parts = score[:, : size // PIECES * PIECES].reshape(blocks * PIECES, -1, len(shapes)).sum(axis=1)
    scatter = parts.T @ parts.conj() * (len(parts) / (len(parts) - len(shapes)))
    covariance = inverse @ scatter @ inverse
    count = len(own)
    snr_db = 10 * np.log10(np.mean(np.maximum((np.abs(q) ** 2).sum(axis=1) * weight, taps) - taps) / size)
    return Behind(own, value[:count], covariance[:count, :count], blocks * size, float(snr_db))


def with_data(preamble: Measurement, data: Mapping[int, Behind]) -> Measurement:
    """The same, where flaws that data tell are those of the data in these frames; the others stay the preamble's."""
    value, covariance = preamble.value.copy(), preamble.covariance.copy()
    for row, each in data.items():
        own = [preamble.flaws.index(name) for name in each.flaws]
        value[row, own] = each.value
        covariance[row, own], covariance[row][:, own] = 0, 0
        covariance[row][np.ix_(own, own)] = each.covariance
    return replace(preamble, value=value, covariance=covariance)


def _steady(left: Complex, heard: Complex) -> Complex:
    """What is left (blocks, n, A) without j φ(t) of what is heard, φ a polynomial of each block on all antennas."""
    t = np.linspace(-1, 1, left.shape[1])[:, None]
    turned = np.stack([1j * Legendre.basis(order)(t) * heard for order in WALKS], axis=1)
    weight = 1 / np.maximum((np.abs(left) ** 2).sum(axis=1), np.finfo(float).tiny)
    pairs = np.einsum("ba,bjna,bkna->bjk", weight, turned.conj(), turned).real
    match = np.einsum("ba,bjna,bna->bj", weight, turned.conj(), left).real
    phase = np.linalg.solve(pairs, match[..., None])[..., 0]
    return np.asarray(left - np.einsum("bj,bjna->bna", phase, turned))


def _beyond(copies: Complex, basis: Complex) -> Complex:
    return copies - basis @ (basis.conj().swapaxes(1, 2) @ copies)


def _energy(values: Complex) -> float:
    return float(np.linalg.norm(values) ** 2)
