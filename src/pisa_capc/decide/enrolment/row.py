r"""The classifier's row (w, b) of a device that was not there in training, the rows of the others left as they are.

With logits ℓ_k(z) of the others, s(z) = log Σ_k exp ℓ_k(z) and u(z) = w·z + b, the softmax over all C + 1 devices
gives the new one the probability σ(u − s). What depends on (w, b) in the cross-entropy of labelled frames is therefore

    L(w, b) = Σ_new v log(1 + exp(s − u)) + Σ_others v log(1 + exp(u − s)),

a logistic regression with the offset −s: convex, and it does not matter which of the others sent a frame. Every device
has the same weight: those of the new frames sum to 1/(C + 1), those of the others to the rest.

The new frames are few and from one place, and L alone would use whatever sets them apart there. How much frames of one
device differ is known from the others: their covariance within classes, Σ. The row is

    min_{w, b}  L(w, b) + λ/2 (w − w̄)ᵀ Σ (w − w̄),        w̄ the mean of the other rows,

so a direction is used as far as the frames of a device agree in it. To second order this is training on new frames with
noise of covariance Σ added (Bishop, Neural Computation 7(1), 1995).

As the other rows stay, decisions among the others do too: a frame keeps the device it had or goes to the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from pisa_capc.model.inference import SourceStatistics

Array: TypeAlias = NDArray[np.float64]
Row: TypeAlias = Callable[[SourceStatistics, Array], tuple[Array, float]]

STRENGTH = 0.003  # λ, chosen on source environments: studies/enrolment.py
FLOOR = 1e-3  # of the mean variance, added to every direction: some have none but rounding


def within_ridge(source: SourceStatistics, own: Array, strength: float = STRENGTH) -> tuple[Array, float]:
    """w (D,) and b for a device with embeddings `own` (n, D). Needs `weight`, `bias`, `bank` and `covariance`."""
    covariance = np.asarray(source.covariance, dtype=np.float64)
    return ridge_row(source, own, strength * (covariance + FLOOR * mean_variance(covariance)))


def mean_variance(covariance: Array) -> Array:
    """(D, D) the covariance without its directions: the same variance in each, and the same trace."""
    return np.eye(len(covariance)) * np.trace(covariance) / len(covariance)


def ridge_row(source: SourceStatistics, own: Array, penalty: Array) -> tuple[Array, float]:
    """The row that minimises L(w, b) + ½ (w − w̄)ᵀ `penalty` (w − w̄)."""
    weight, bias, bank = (np.asarray(a, dtype=np.float64) for a in (source.weight, source.bias, source.bank))
    share, centre = 1 / (len(weight) + 1), weight.mean(axis=0)
    z = np.concatenate([own, bank])
    new = np.arange(len(z)) < len(own)
    v = np.where(new, share / len(own), (1 - share) / len(bank))
    # Over w̄·z, which the row starts from; the column of ones is the bias.
    offset = z @ centre - logsumexp(z @ weight.T + bias, axis=1)
    x = np.column_stack([z, np.ones(len(z))])
    ridge = np.pad(penalty, (0, 1))

    def loss(row: Array) -> tuple[float, Array]:
        u = x @ row + offset
        value = v @ np.logaddexp(0, np.where(new, -u, u)) + row @ ridge @ row / 2
        return float(value), x.T @ (v * (expit(u) - new)) + ridge @ row

    def curvature(row: Array) -> Array:
        p = expit(x @ row + offset)
        return np.asarray((x * (v * p * (1 - p))[:, None]).T @ x + ridge)

    found = minimize(loss, np.zeros(x.shape[1]), jac=True, hess=curvature, method="trust-exact").x
    return centre + found[:-1], float(found[-1])
