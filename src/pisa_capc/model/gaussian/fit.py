"""Learn the back-end from frames of known devices: S, P and all means by expectation–maximisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.model.gaussian.algebra import SMALL, full, information, inverse_of, sums_by
from pisa_capc.model.gaussian.backend import GaussianBackend

PLACES = 8.0  # that the prior of P counts for
MOST = 4_096  # frames that S is learnt from, evenly spread over devices and places: it has few parameters
MOST_VALUES = 2**25  # of their covariances, all together
SMALLEST = 1e-30  # variance
ROUNDS, STILL = 100, 1e-4  # of the iteration: it ends when S and P change by less than that part of them

Real = NDArray[np.floating[Any]]


def fit_backend(
    value: Real,
    error: Real | None,
    device: NDArray[np.int64],
    place: NDArray[np.int64],
    devices: Sequence[str],
    place_prior: Real | None = None,
    white: float | None = None,
) -> GaussianBackend:
    """Fit S, P and the devices to frames (N, d) with errors (N, d, d), devices (N,) and places (N,).

    place_prior: what P is expected to be, counted as `PLACES` places. Without one it has the shape of a frame's
    scatter, as much of it as places differ in the mean over all directions. Where each device was heard in one place
    only, nothing tells P from the devices: it is then a frame's scatter, and p-values in another place are a guess.
    white: part by which S is shrunk towards a multiple of the identity, for more dimensions than frames tell; unless it
    is given, as if there were as many more frames as dimensions.

    A round of the iteration. Given S and P, let W_n = (S + R_n)⁻¹, and of the frames of device k in place c
    Λ = ΣW_n, x̄ = Λ⁻¹ΣW_n x_n, T = (P + Λ⁻¹)⁻¹. Then V_k = (Σ_c T)⁻¹, m_k = V_k Σ_c T x̄, and the place term has

        E u = P T (x̄ − m_k),    Cov u = P − P T P + P T V_k T P
        E (μ_k + u) = m_k + E u,    Cov (μ_k + u) = P − P T P + (I − P T) V_k (I − P T)ᵀ

    P ← (ν P₀ + Σ_kc E uuᵀ) / (ν + number of kc)
    S ← S + S · mean_n (W r rᵀ W + W Cov(μ + u) W − W) · S,    r = x_n − E (μ_k + u)
    """
    _check(value, error, device, place, devices)
    size = value.shape[1]
    key = device * (int(place.max()) + 1) + place
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    rows = _spread_out(group, min(MOST, MOST_VALUES // size**2))
    x, who, owner = value[rows].astype(np.float64), group[rows], device[first]
    own = None if error is None else error[rows].astype(np.float64)
    frame = _within(x, own, who, len(owner), white)
    prior = _between(x, own, who, owner, frame) if place_prior is None else place_prior
    place_spread, expected = prior, np.diag(np.diag(frame))
    told = information(x, own, frame, who, len(owner))
    for _ in range(ROUNDS):
        before = frame, place_spread
        places = _Places(*told, owner, len(devices), place_spread)
        place_spread = places.spread(prior)
        if size <= SMALL:  # in more, frames do not tell S and their errors apart much better than `_within` does
            frame = (len(x) * _frame(x, own, who, frame, places) + size * expected) / (len(x) + size)
            told = information(x, own, frame, who, len(owner))
        if all(
            np.abs(new - old).max() <= STILL * np.abs(old).max()
            for new, old in zip((frame, place_spread), before, strict=True)
        ):
            break
    empty = GaussianBackend({}, frame, place_spread)
    learnt = rows if size > SMALL else np.arange(len(value))
    found = {}
    for number, name in enumerate(devices):
        mine = learnt[device[learnt] == number]
        found[name] = empty.learn(empty.evidence(value[mine], None if error is None else error[mine]), place[mine])
    return GaussianBackend(found, frame, place_spread)


def _within(x: Real, own: Real | None, group: NDArray[np.int64], groups: int, white: float | None = None) -> Real:
    """S by moments: covariance of frames about their group's mean, less the mean of their errors, and positive."""
    size, counts = x.shape[1], np.bincount(group, minlength=groups)
    centred = x - (sums_by(group, x, groups) / counts[:, None])[group]
    whole = centred.T @ centred / max(1, len(x) - groups)
    errors = 0 if own is None else full(own).mean(0)
    freedom, round_ = len(x) - groups, np.trace(whole) / size * np.eye(size)
    if white is None:
        whole = (freedom * whole + size * round_) / (freedom + size)  # few frames, no shape
    else:
        whole = (1 - white) * whole + white * round_
    values, vectors = np.linalg.eigh(whole - errors)
    least = 1e-3 * np.trace(whole) / size + 1e-12 * np.mean(x**2) + SMALLEST
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def _between(x: Real, own: Real | None, group: NDArray[np.int64], owner: NDArray[np.int64], frame: Real) -> Real:
    """P beforehand: ρ (S + R), ρ the variance between places over that of a frame, in the mean over directions."""
    counts = np.bincount(group, minlength=len(owner))
    means = sums_by(group, x, len(owner)) / counts[:, None]
    places = np.bincount(owner)
    off = means - (sums_by(owner, means, len(places)) / np.maximum(places, 1)[:, None])[owner]
    scatter = frame + (0 if own is None else full(own).mean(0))
    freedom = len(owner) - np.count_nonzero(places)
    if not freedom:
        return np.asarray(scatter)
    return np.asarray(np.einsum("gi,ij,gj->", off, inverse_of(scatter), off) / freedom / len(scatter) * scatter)


class _Places:
    """What a round knows of each group's place term u and mean μ + u, from Λ (G, d, d) and Σ (S + R_n)⁻¹ x (G, d)."""

    def __init__(self, total: Real, whole: Real, owner: NDArray[np.int64], devices: int, place: Real) -> None:
        uncertain = inverse_of(total)  # Λ⁻¹
        mean = np.einsum("gij,gj->gi", uncertain, whole)
        pull = inverse_of(place + uncertain)  # T
        error = inverse_of(sums_by(owner, pull, devices))[owner]  # V of each group's device
        middle = np.einsum("gij,gj->gi", error, sums_by(owner, np.einsum("gij,gj->gi", pull, mean), devices)[owner])
        toward = place @ pull  # P T
        shift = np.einsum("gij,gj->gi", toward, mean - middle)
        left, stay = place - toward @ place, np.eye(len(place)) - toward
        self.squares = shift[:, :, None] * shift[:, None] + left + toward @ error @ toward.swapaxes(1, 2)  # E uuᵀ
        self.mean, self.covariance = middle + shift, left + stay @ error @ stay.swapaxes(1, 2)  # of μ + u

    def spread(self, prior: Real) -> Real:
        """P after the round."""
        found = (PLACES * prior + self.squares.sum(0)) / (PLACES + len(self.squares))
        return np.asarray(found + found.T) / 2


def _frame(x: Real, own: Real | None, group: NDArray[np.int64], frame: Real, places: _Places) -> Real:
    """S after a round."""
    weight = np.broadcast_to(inverse_of(frame + (0 if own is None else full(own))), (len(x), *frame.shape))
    off = np.einsum("nij,nj->ni", weight, x - places.mean[group])
    spread = np.einsum("nij,njk,nkl->il", weight, places.covariance[group], weight, optimize=True)
    found = frame + frame @ ((off.T @ off + spread - weight.sum(0)) / len(x)) @ frame
    return np.asarray(found + found.T) / 2


def _spread_out(group: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Rows of at most about `most` frames, as many of each group, evenly spread in the given order."""
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group)
    each = max(2, most // len(counts))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.concatenate(
        [
            order[start + np.linspace(0, n - 1, min(n, each)).astype(np.int64)]
            for start, n in zip(starts, counts, strict=True)
        ]
    )


def _check(
    value: Real, error: Real | None, device: NDArray[np.int64], place: NDArray[np.int64], devices: Sequence[str]
) -> None:
    if value.ndim != 2 or not len(value) or not len(value) == len(device) == len(place):
        raise DataError(
            f"measurements of shape {value.shape}, {len(device)} devices, {len(place)} places: expected (frames, "
            "dimensions), with a device and a place for each frame."
        )
    if not np.isfinite(value).all() or not (error is None or np.isfinite(error).all()):
        raise DataError("measurements: some are not finite. Leave out frames that could not be measured.")
    if missing := [name for number, name in enumerate(devices) if not (device == number).any()]:
        raise DataError(f"device {missing[0]!r} has no frame to be learnt from. Give some, or leave the device out.")
    if len(value) <= len(np.unique(np.stack([device, place]), axis=1).T):
        raise DataError(
            "one frame a device and place: nothing tells how frames differ. Expected two or more of some device."
        )
