"""The drawings of docs/primer.md, from the package's own physics and calibration: `make drawings`."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.report import begin
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pages.workflow import workflow_figure
from pisa_capc.data.frames import Frames
from pisa_capc.data.geometry import square
from pisa_capc.decide.calibration import UCAPC
from pisa_capc.evidence.figures.style import COLOURS, GREY, MARKERS, PAGE_INCHES, canvas
from pisa_capc.evidence.figures.topology import topology_figure
from pisa_capc.signal.simulation.generate import simulate
from pisa_capc.signal.simulation.hardware import dc_offset, iq_imbalance, power_amplifier
from pisa_capc.signal.waveforms import WAVEFORMS

FOLDER = Path("docs/drawings")
HALO = {"boxstyle": "round,pad=0.1", "color": "white", "alpha": 0.8}
LONG_SYMBOL = slice(192, 256)  # the first long training symbol of an 802.11 preamble

Complex = NDArray[np.complexfloating]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    impairments(FOLDER / "impairments.svg")
    with TemporaryDirectory() as folder:
        rooms(simulate("wifi", folder, scale=0.05, workers=1, show_progress=False), FOLDER / "rooms.svg")
    topology_figure(square(), FOLDER / "array.svg")
    workflow_figure(FOLDER / "workflow.svg")
    calibration(FOLDER / "calibration.svg")
    print(FOLDER)


def impairments(path: Path) -> None:
    """What a transmitter's flaws do to the points of a 16-QAM constellation, larger than life."""
    levels = np.array([-3, -1, 1, 3]) / np.sqrt(10)
    ideal = np.array([complex(i, q) for i, q in product(levels, levels)])
    turned = np.concatenate([ideal * np.exp(1j * angle) for angle in np.deg2rad(np.linspace(-6, 6, 25))])
    flaws: dict[str, tuple[Complex, str]] = {
        "I/Q imbalance": (iq_imbalance(ideal, 2.0, 10.0), "Q is 2 dB stronger and 10° off"),
        "carrier leakage": (dc_offset(ideal, -14.0, 0.8), "all points move together"),
        "power amplifier": (power_amplifier(ideal, 1.0, 2.0, 40.0), "outer points shrink and turn"),
        "oscillator": (turned, "all points turn, from frame to frame"),
    }
    with canvas(path, PAGE_INCHES, 2.15) as figure:
        for axes, (name, (points, words)) in zip(figure.subplots(1, 4), flaws.items(), strict=True):
            axes.scatter(ideal.real, ideal.imag, s=14, facecolors="none", edgecolors=GREY, linewidths=0.8)
            small = len(points) > len(ideal)
            axes.scatter(points.real, points.imag, s=1.5 if small else 9, color=COLOURS[0], linewidths=0)
            axes.set(title=name, xlabel=words, xticks=[], yticks=[], xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal")
            axes.axhline(0, color=GREY, linewidth=0.4, zorder=0)
            axes.axvline(0, color=GREY, linewidth=0.4, zorder=0)
            axes.spines[:].set_visible(False)


def rooms(frames: Frames, path: Path) -> None:
    """One radio at one kind of position in three environments: the channel on the subcarriers of each antenna."""
    known = np.fft.fft(WAVEFORMS["wifi"].preamble()[LONG_SYMBOL])
    used = np.flatnonzero(np.abs(known) > 1e-6)
    order = np.argsort((used + 32) % 64)
    mhz = ((used + 32) % 64 - 32)[order] * 20 / 64
    with canvas(path, PAGE_INCHES, 2.1) as figure:
        places = figure.subplots(1, 3, sharey=True)
        for axes, environment in zip(places, frames.environments, strict=True):
            iq = frames.where(environment=environment, device="D01", capture="L3").iq[0]
            channel = (np.fft.fft(iq[:, LONG_SYMBOL])[:, used] / known[used])[:, order]
            level = 20 * np.log10(np.abs(channel) / np.sqrt(np.mean(np.abs(channel) ** 2)))
            for antenna, values in enumerate(level):
                axes.plot(mhz, values, color=COLOURS[antenna], linewidth=0.9, label=f"antenna {antenna}")
            axes.set(title=f"D01 in {environment}", xlabel="from the carrier (MHz)", ylim=(-25, 8))
            axes.grid(alpha=0.25)
        places[0].set_ylabel("channel (dB)")
        figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)


def calibration(path: Path) -> None:
    """Three devices in a plane: where the source's classifier puts its borders, and where the capture's frames are."""
    rng = np.random.default_rng(4)
    angles = np.deg2rad([90, 210, 330])
    weight = np.stack([np.cos(angles), np.sin(angles)], axis=1)  # the classifier's rows
    moved = angles + np.deg2rad([46, 54, 50])  # the room has turned what the radios look like
    device = np.repeat(np.arange(3), 60)
    centre = np.stack([np.cos(moved), np.sin(moved)], axis=1)
    embedding = centre[device] + rng.normal(scale=0.24, size=(len(device), 2))
    logits = 3 * embedding @ weight.T
    result = UCAPC().calibrate(embedding, logits)
    assert result.prototypes is not None
    with canvas(path, PAGE_INCHES, 2.75) as figure:
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.75))
        for axes, decided, prototypes, words in (
            (left, logits.argmax(axis=1), weight, "the classifier of the source"),
            (middle, np.asarray(result.prediction), result.prototypes[0], "after U-CAPC"),
        ):
            _frames(axes, embedding, device, decided)
            _borders(axes, prototypes)
            axes.set(title=f"{words}: {(decided == device).mean():.0%} right", xticks=[], yticks=[], aspect="equal")
            axes.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7))
        _shares(right, logits, np.asarray(result.probability))
        named = [
            left.scatter([], [], s=16, color=GREY, marker=MARKERS[k], label=f"sent by D0{k + 1}") for k in range(3)
        ]
        figure.legend(handles=named, loc="outside lower center", ncols=3)


def _frames(axes: Axes, embedding: NDArray[np.float64], device: NDArray[np.intp], decided: NDArray[np.intp]) -> None:
    """The marker is the true sender of a frame, the colour the decision."""
    for sent, said in product(range(3), range(3)):
        rows = (device == sent) & (decided == said)
        axes.scatter(*embedding[rows].T, s=9, color=COLOURS[said], marker=MARKERS[sent], linewidths=0)


def _borders(axes: Axes, prototypes: NDArray[np.float64]) -> None:
    """What each class points to, and the lines on which two of them say the same."""
    for k, row in enumerate(prototypes):
        unit = row / np.linalg.norm(row)
        arrow = {"arrowstyle": "-|>", "color": COLOURS[k], "linewidth": 1.4}
        axes.annotate("", 1.45 * unit, (0, 0), arrowprops=arrow)
        axes.annotate(f"D0{k + 1}", 1.58 * unit, ha="center", va="center", color=COLOURS[k], weight="bold", bbox=HALO)
        border = unit + prototypes[(k + 1) % 3] / np.linalg.norm(prototypes[(k + 1) % 3])
        axes.plot(
            *np.stack([[0, 0], 1.6 * border / np.linalg.norm(border)]).T, color=GREY, linewidth=0.8, linestyle="--"
        )


def _shares(axes: Axes, logits: NDArray[np.float64], probability: NDArray[np.float64]) -> None:
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    before, after = (np.bincount(values.argmax(axis=1), minlength=3) for values in (softmax, probability))
    for k in range(3):
        axes.bar(k - 0.2, before[k], 0.38, color=COLOURS[k], alpha=0.4)
        axes.bar(k + 0.2, after[k], 0.38, color=COLOURS[k])
    axes.axhline(len(logits) / 3, color="black", linestyle=":", linewidth=0.8, label="as many of each")
    axes.legend(loc="upper center")
    axes.set_ylim(top=1.25 * before.max())
    axes.set(title="frames given to a device", ylabel="frames: before (pale), after")
    axes.set_xticks(range(3), ["D01", "D02", "D03"])


if __name__ == "__main__":
    begin(main)
