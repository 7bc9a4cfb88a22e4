"""Amounts that grow with the number of devices, from the record of `studies.growth`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.report import RESULTS, read
from studies.growth import ASYMPTOTIC, STAGES, exponent

from pisa_capc.data.protocol import CAREFUL, PAPER

RECORD = "studies/growth-h200.json"
TITLES = {
    "simulate": "simulate",
    "prepare": "prepare",
    "epoch": "an epoch",
    "embed": "embed",
    PAPER: "U-CAPC",
    CAREFUL: "careful",
}
OF = {  # what time and memory are, in a sentence
    "simulate": "to simulate",
    "prepare": "to prepare",
    "epoch": "of an epoch",
    "embed": "to embed",
    PAPER: "of U-CAPC",
    CAREFUL: "of the careful calibration",
}
TRAINED = {"epoch": ("training", "to train")}  # what the peak of the GPU in epochs is of: all that `fit` does
AHEAD = 10_000  # devices that are extrapolated to
GPU_MIB = {"NVIDIA H200": 139 * 1024}  # that a process can have
AS_FRAMES = 1.1  # the exponent up to which an amount is said to grow as the frames do, or slower


class Grown(NamedTuple):
    """An amount at every size, and how fast it grows over the largest."""

    title: str
    said: str  # in a sentence
    devices: tuple[int, ...]
    amounts: tuple[float, ...]

    @property
    def exponent(self) -> float:
        return exponent(self.devices[-ASYMPTOTIC:], self.amounts[-ASYMPTOTIC:])

    @property
    def last_exponent(self) -> float:
        """Of the two largest sizes alone: where it is larger, what never grows still hides how fast the rest does."""
        return exponent(self.devices[-2:], self.amounts[-2:])

    def at(self, devices: int) -> float:
        """By the exponent, from the largest size on."""
        return float(self.amounts[-1] * (devices / self.devices[-1]) ** self.exponent)

    def reaching(self, amount: float, power: float) -> float:
        """At how many devices it is that much, by an exponent."""
        return float(self.devices[-1] * (amount / self.amounts[-1]) ** (1 / power))


def recorded() -> dict[str, Any] | None:
    """None before two sizes were measured: one does not grow."""
    if not (RESULTS / RECORD).is_file():
        return None
    record: dict[str, Any] = read(RECORD)
    return record if len(record["sizes"]) > 1 else None


def seconds(record: dict[str, Any]) -> dict[str, Grown]:
    """Of every stage."""
    return {name: _grown(record, TITLES[name], f"time {OF[name]}", ("stages", name, "seconds")) for name in STAGES}


def memory(record: dict[str, Any]) -> dict[str, Grown]:
    """MiB: of the GPU by stage, where there was one, of the process, and of the statistics in a model."""
    on_gpu = [name for name in STAGES if "gpu_mib" in record["sizes"][-1]["stages"][name]]
    found = {}
    for name in on_gpu:
        title, said = TRAINED.get(name, (TITLES[name], OF[name]))
        found[name] = _grown(record, f"GPU, {title}", f"GPU memory {said}", ("stages", name, "gpu_mib"))
    found["process"] = _grown(record, "process", "memory of the process", ("mib",))
    found["statistics"] = _grown(record, "statistics", "size of a model's statistics", ("statistics_mib",))
    # A stage that needs nothing of its own has no growth.
    return {name: grown for name, grown in found.items() if min(grown.amounts) > 0}


def _grown(record: dict[str, Any], title: str, said: str, path: Sequence[str]) -> Grown:
    def value(size: Any) -> float:
        for key in path:
            size = size[key]
        return float(size)

    sizes = record["sizes"]
    return Grown(title, said, tuple(size["devices"] for size in sizes), tuple(map(value, sizes)))


def filling(record: dict[str, Any]) -> tuple[Grown, list[float]] | None:
    """The stage that is the first to fill the GPU, and at how many devices, by the exponent and that of the last two.

    None where none does up to AHEAD.
    """
    size = GPU_MIB.get(record["machine"].get("gpu", ""), 0)
    on_gpu = [grown for name, grown in memory(record).items() if name in STAGES and size and grown.at(AHEAD) > size]
    if not on_gpu:
        return None
    first = min(on_gpu, key=lambda grown: grown.reaching(size, grown.exponent))
    return first, sorted(first.reaching(size, power) for power in (first.exponent, first.last_exponent))


def ahead(record: dict[str, Any]) -> dict[str, float]:
    """Seconds of each stage at AHEAD devices, of all epochs of a training."""
    epochs = record["sizes"][-1]["epochs"]
    return {name: times(name, epochs) * own.at(AHEAD) for name, own in seconds(record).items()}


def together(size: dict[str, Any]) -> float:
    """Seconds of one size from its simulation to all decisions."""
    return float(sum(times(name, size["epochs"]) * size["stages"][name]["seconds"] for name in STAGES))


def times(stage: str, epochs: int) -> int:
    """That a stage is gone through."""
    return epochs if stage == "epoch" else 1
