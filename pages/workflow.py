"""The whole pipeline as one drawing, under the names that the code has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, Picture, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT_INCHES = 3.95
WIDE, HIGH = 0.88, 0.52  # inches, of a box
PLAIN, ANTENNA, CONTEXT, DYNAMICS, CALIBRATION = "#F2F2F2", COLOURS[0], COLOURS[1], COLOURS[3], COLOURS[2]


@dataclass(frozen=True)
class _Box:
    """A step: its middle in inches, what it does, what the code calls it, and the colour of its pathway."""

    x: float
    y: float
    text: str
    code: str
    colour: str = PLAIN

    def side(self, dx: int, dy: int) -> tuple[float, float]:
        """The middle of one of its edges: (1, 0) is the right one."""
        return self.x + dx * WIDE / 2, self.y + dy * HIGH / 2


def workflow_figure(path: Path) -> Picture:
    """Frames → PISA → embeddings and logits → U-CAPC → decisions."""
    boxes = _boxes()
    with canvas(path, PAGE_INCHES, HEIGHT_INCHES, formulas=True) as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, PAGE_INCHES), ylim=(0, HEIGHT_INCHES), aspect="equal")
        axes.axis("off")
        _region(axes, 1.23, 3.91, "PISA: trained on labelled source frames, then frozen")
        _region(axes, 0.04, 1.02, "U-CAPC: unlabelled target frames, one capture at a time")
        for box in boxes.values():
            _draw_box(axes, box)
        _draw_arrows(axes, boxes)
    caption = (
        "The workflow. Each box gives a step and its name in the code. Antenna pathway in blue, contextual pathway in "
        "orange, acquisition dynamics in pink, calibration in green."
    )
    return Picture(path, caption)


def _boxes() -> dict[str, _Box]:
    """The steps. Names are taken from the objects themselves, so the drawing cannot name what is not there."""
    from pisa_capc.data.descriptors import cfo_descriptors
    from pisa_capc.data.frames import Frames
    from pisa_capc.decide.calibration import ucapc
    from pisa_capc.model.networks import modules, topology

    def name(thing: Callable[..., object] | type) -> str:
        return thing.__name__

    first, step = 0.55, 1.01
    top, upper, middle, lower, bottom = 3.42, 2.79, 2.16, 1.53, 0.38
    x = [first + step * i for i in range(7)]
    return {
        "frames": _Box(x[0], upper, "frames", name(Frames)),
        "descriptor": _Box(x[1], top, "CFO statistics", name(cfo_descriptors), DYNAMICS),
        "modulator": _Box(x[2], top, r"modulation $\psi$", name(modules.DynamicsModulator), DYNAMICS),
        "encoder": _Box(x[1], upper, "encoder of\neach antenna", "identity_encoder", ANTENNA),
        "topology": _Box(x[2], upper, "graph attention,\nprior $P$", name(topology.topology_attention), ANTENNA),
        "refinement": _Box(x[3], upper, "token refinement", name(modules.TokenRefinement), ANTENNA),
        "identity": _Box(x[4], upper, r"$g_\mathrm{id}$", name(modules.Projection), ANTENNA),
        "array": _Box(x[1], lower, "array view", name(modules.array_view), CONTEXT),
        "context": _Box(x[2], lower, "encoder of\nthe array", "context_encoder", CONTEXT),
        "direction": _Box(x[4], lower, r"$g_\mathrm{ctx}$", name(modules.Projection), CONTEXT),
        "gate": _Box(x[4], middle, r"gate $\alpha$", name(modules.SuppressionGate)),
        "suppression": _Box(
            x[5], middle, r"$z_\mathrm{id} - \tilde{\alpha}\,\tanh\,s$", name(modules.bounded_suppression)
        ),
        "classifier": _Box(x[6], middle, r"logits $\ell$", "classifier"),
        "group": _Box(x[0], bottom, "capture groups", "capture_key", CALIBRATION),
        "assignment": _Box(x[1], bottom, "assignment $Q$", name(ucapc.soft_assignment), CALIBRATION),
        "prototypes": _Box(x[2], bottom, "prototypes $p$", name(ucapc.capture_prototypes), CALIBRATION),
        "scores": _Box(x[3], bottom, "agreement $a$", name(ucapc.prototype_scores), CALIBRATION),
        "fusion": _Box(x[4], bottom, "fusion $s$", name(ucapc.fuse_scores), CALIBRATION),
        "final": _Box(x[5], bottom, r"probability $\pi$", name(ucapc.final_probability), CALIBRATION),
        "decisions": _Box(x[6], bottom, "decisions", "prediction"),
    }


def _draw_arrows(axes: Axes, boxes: dict[str, _Box]) -> None:
    right, left, up, down = (1, 0), (-1, 0), (0, 1), (0, -1)

    def arrow(start: str, end: str, label: str = "") -> None:
        """Straight to the right."""
        _arrow(axes, [boxes[start].side(*right), boxes[end].side(*left)], label)

    frames, modulator, gate = boxes["frames"], boxes["modulator"], boxes["gate"]
    for row in (
        ("descriptor", "modulator"),
        ("frames", "encoder", "topology", "refinement", "identity"),
        ("array", "context", "direction"),
        ("gate", "suppression", "classifier"),
        ("group", "assignment", "prototypes", "scores", "fusion", "final", "decisions"),
    ):
        for start, end in pairwise(row):
            arrow(start, end)
    bend = frames.side(*right)[0] + 0.065
    for end in ("descriptor", "array"):  # the same frames, up and down
        _arrow(axes, [frames.side(*right), (bend, frames.y), (bend, boxes[end].y), boxes[end].side(*left)])
    _arrow(axes, [modulator.side(*down), boxes["topology"].side(*up)], r"$\rho_t,\ \rho_p$")
    _arrow(axes, [boxes["identity"].side(*down), gate.side(*up)])
    _arrow(axes, [boxes["direction"].side(*up), gate.side(*down)])
    suppression = boxes["suppression"]
    beside = suppression.x + 0.25
    _arrow(
        axes,
        [modulator.side(*right), (beside, modulator.y), (beside, suppression.side(*up)[1])],
        r"$\Delta\alpha$",
    )
    for start, edge, label in (("identity", up, r"$z_\mathrm{id}$"), ("direction", down, "$s$")):
        side = boxes[start].side(*right)
        _arrow(axes, [side, (suppression.x, side[1]), suppression.side(*edge)], label)
    between, group = 1.08, boxes["group"]
    out = suppression.side(*right)[0] + 0.065
    _arrow(axes, [(out, suppression.y), (out, between)], head=False)
    last = boxes["classifier"].side(*down)
    _arrow(
        axes, [last, (last[0], between), (group.x + 0.15, between), (group.x + 0.15, group.side(*up)[1])], r"$z,\ \ell$"
    )
    _arrow(axes, [(group.x - 0.15, frames.side(*down)[1]), (group.x - 0.15, group.side(*up)[1])], "captures")
    over = group.side(*up)[1] + 0.1
    fusion, assignment = boxes["fusion"].side(*up), boxes["assignment"].side(*up)
    _arrow(axes, [fusion, (fusion[0], over), (assignment[0], over), assignment], "$T_p$ passes")


def _region(axes: Axes, low: float, high: float, text: str) -> None:
    from matplotlib.patches import Rectangle

    area = Rectangle((0.04, low), PAGE_INCHES - 0.08, high - low, fill=False, edgecolor="#AAAAAA", linestyle="--")
    axes.add_patch(area)
    axes.text(PAGE_INCHES - 0.1, high - 0.05, text, ha="right", va="top", fontsize=6.5, weight="bold", color="#444444")


def _draw_box(axes: Axes, box: _Box) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import FancyBboxPatch

    corner = (box.x - WIDE / 2 + 0.03, box.y - HIGH / 2 + 0.03)
    fill = box.colour if box.colour == PLAIN else to_rgba(box.colour, 0.18)
    edge = "#555555" if box.colour == PLAIN else box.colour
    style = "round,pad=0.03,rounding_size=0.05"
    axes.add_patch(FancyBboxPatch(corner, WIDE - 0.06, HIGH - 0.06, style, facecolor=fill, edgecolor=edge, zorder=3))
    axes.text(box.x, box.y + 0.015, box.text, ha="center", va="bottom", fontsize=6, zorder=4)
    axes.text(
        box.x, box.y - 0.02, _wrapped(box.code), ha="center", va="top", fontsize=5.5, family="monospace", zorder=4
    )


def _arrow(axes: Axes, points: list[tuple[float, float]], label: str = "", head: bool = True) -> None:
    """A line through the points with a head at the last; the label sits over the middle of the longest piece."""
    line: dict[str, Any] = {"color": "#444444", "linewidth": 0.8}
    axes.plot([x for x, _ in points], [y for _, y in points], **line, zorder=2)
    if head:
        axes.annotate("", points[-1], points[-2], arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, **line})
    if label:
        (x0, y0), (x1, y1) = max(pairwise(points), key=lambda p: abs(p[0][0] - p[1][0]) + abs(p[0][1] - p[1][1]))
        upright = x0 == x1
        place = ((x0 + x1) / 2 + 0.04 * upright, (y0 + y1) / 2 + 0.02 * (not upright))
        axes.text(*place, label, fontsize=6, ha="left" if upright else "center", va="center" if upright else "bottom")


def _wrapped(name: str) -> str:
    """In two lines where it is too long for a box, broken behind the underscore nearest to its middle."""
    breaks = [i for i, c in enumerate(name) if c == "_"]
    if len(name) < 17 or not breaks:
        return name
    at = min(breaks, key=lambda i: abs(2 * i - len(name))) + 1
    return f"{name[:at]}\n{name[at:]}"
