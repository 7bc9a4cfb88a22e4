"""The receive array and the topology prior over it, Eq. (topology_prior)."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.evidence.figures.style import COLOURS, COLUMN_INCHES, Picture, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = 3.0  # points, the width of an edge of weight one
DISC = 40.0  # square points, the area of a token of weight one


def topology_figure(
    geometry: ArrayGeometry, path: Path, tau_s: float = 1.0, tau_t: float = 2.0, tokens: int = 8
) -> Picture:
    """Left, the antennas where they are, joined by the prior's spatial factor; right, one token's weights.

    The width and the opacity of an edge, and the area of a disc, are the weight P. tau_s in wavelengths, tau_t in
    tokens.
    """
    weight = prior_weights(geometry, tau_s, tau_t, tokens)
    with canvas(path, COLUMN_INCHES, max(2.1, 0.6 + 0.12 * geometry.antennas)) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
        _draw_array(left, geometry, weight[:, 0, :, 0])
        _draw_tokens(right, weight)
    caption = (
        f"Topology prior of the {geometry.kind} array of {geometry.antennas} antennas: lines and discs grow with the "
        f"weight exp(−d/τ_s) exp(−|k − l|/τ_t), τ_s = {tau_s:g} wavelengths, τ_t = {tau_t:g} tokens. Left: between "
        "antennas, at equal time; lengths in wavelengths. Right: from the token ringed in black to every token."
    )
    return Picture(path, caption)


def prior_weights(geometry: ArrayGeometry, tau_s: float, tau_t: float, tokens: int) -> NDArray[np.float64]:
    """P between token k of antenna a and token l of antenna b, (A, K, A, K), a token's own being one.

    From the model's own prior, whose rows are normalised: dividing by the diagonal gives the weights of the equation.
    """
    import torch

    from pisa_capc.model.networks.topology import log_topology_prior

    nodes = geometry.antennas * tokens
    distances = torch.from_numpy(geometry.distances())
    everywhere = torch.ones(1, 1, nodes, dtype=torch.bool)
    log_prior = log_topology_prior(distances, tokens, tau_s, torch.full((1, 1), tau_t, dtype=torch.float64), everywhere)
    own = log_prior.diagonal(dim1=-2, dim2=-1)[..., None]
    shape = (geometry.antennas, tokens, geometry.antennas, tokens)
    return (log_prior - own).exp().reshape(shape).numpy()


def _draw_array(axes: Axes, geometry: ArrayGeometry, weight: NDArray[np.float64]) -> None:
    """Antennas on the plane in which they are spread most; an edge bends where it would run through a third one."""
    from matplotlib.patches import FancyArrowPatch

    place = _plane(geometry.positions)
    distances = geometry.distances()
    shown: dict[float, float] = {}
    for a, b in combinations(range(geometry.antennas), 2):
        edge = FancyArrowPatch(
            tuple(place[a]),
            tuple(place[b]),
            arrowstyle="-",
            connectionstyle=f"arc3,rad={-0.3 if _runs_through(place, a, b) else 0}",
            linewidth=LINE * weight[a, b],
            color=COLOURS[0],
            alpha=float(weight[a, b]),
            zorder=1,
            clip_on=False,
        )
        edge.set_gid(f"edge-{a}-{b}")
        axes.add_patch(edge)
        shown.setdefault(round(float(distances[a, b]), 2), float(weight[a, b]))
    axes.scatter(place[:, 0], place[:, 1], s=60, color="white", edgecolors="black", linewidths=0.8, zorder=2)
    for a, (x, y) in enumerate(place):
        axes.annotate(str(a), (x, y), ha="center", va="center", fontsize=6, zorder=3)
    span = max(float(np.ptp(place, axis=0).max()), 0.5)
    middle = (place.max(axis=0) + place.min(axis=0)) / 2
    axes.set(xlim=middle[0] + 0.65 * span * np.array([-1, 1]), ylim=middle[1] + 0.65 * span * np.array([-1, 1]))
    axes.set(aspect="equal", title="antennas", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    nearest = [f"d = {d:.2f} λ: P = {shown[d]:.2f}" for d in sorted(shown)[:3]]
    axes.set_xlabel("\n".join(nearest), fontsize=6)


def _draw_tokens(axes: Axes, weight: NDArray[np.float64]) -> None:
    antennas, tokens = weight.shape[:2]
    start = (0, tokens // 2)
    rows, columns = np.indices((antennas, tokens))
    axes.scatter(columns, rows, s=DISC, color="white", edgecolors="#AAAAAA", linewidths=0.5)
    axes.scatter(columns, rows, s=DISC * weight[start], color=COLOURS[1], linewidths=0)
    axes.scatter([start[1]], [start[0]], s=DISC, color="none", edgecolors="black", linewidths=1)
    axes.set(xlim=(-0.6, tokens - 0.4), ylim=(antennas - 0.4, -0.6), title="tokens", xlabel="token", ylabel="antenna")
    axes.set_xticks(range(tokens))
    axes.set_yticks(range(antennas))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _plane(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions (A, 3) seen from above; an array that is not flat, along the axis in which it is spread least."""
    if not np.ptp(positions[:, 2]):
        return positions[:, :2]
    centred = positions - positions.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


def _runs_through(place: NDArray[np.float64], a: int, b: int) -> bool:
    """Whether the straight line from a to b passes another antenna."""
    along = place[b] - place[a]
    length = float(np.hypot(*along))
    if length == 0:
        return False
    offset = place - place[a]
    progress = offset @ along / length**2
    beside = np.abs(offset @ np.array([-along[1], along[0]])) / length
    return bool(((progress > 1e-6) & (progress < 1 - 1e-6) & (beside < 0.05 * length)).any())
