"""Small protocols and made-up records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pisa_capc.core.config import merged
from pisa_capc.evidence.benchmark.plan import Conditions, PlannedRun, plan
from pisa_capc.evidence.benchmark.protocols import Protocol, read_protocol
from pisa_capc.evidence.benchmark.records import Record

ROOT = Path(__file__).parents[3]
PROTOCOLS = ROOT / "protocols"
CPU = Conditions("0123456789abcdef", "cpu", "float32")
QUICK: dict[str, Any] = {
    "dataset": {"name": "small", "simulate": None},
    "split_seeds": [1],
    "seeds": [1, 2],
    "encoders": ["cnn"],
    "training": {"epochs": 1, "batch": 16, "samples": 32},
}


def write_protocol(
    folder: Path, base: str = "wifi-sim", changes: Mapping[str, Any] = QUICK, name: str = "quick"
) -> Path:
    """A protocol of the paper with changes, as a file."""
    values = yaml.safe_load((PROTOCOLS / f"{base}.yaml").read_text(encoding="utf-8"))
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(merged(values, changes)), encoding="utf-8")
    return path


def quick(folder: Path, base: str = "wifi-sim", changes: Mapping[str, Any] = QUICK) -> Protocol:
    return read_protocol(str(write_protocol(folder, base, changes)))


def made_up(run: PlannedRun, f1: Mapping[str, float], source_f1: float = 0.9, where: Conditions = CPU) -> Record:
    """A record with these Macro-F1 by stage; the AUROC is half way to one."""
    stages = {stage: {"macro_f1": value, "macro_auroc": (1 + value) / 2} for stage, value in f1.items()}
    return Record(run, where, "small", stages, source_f1, 1, {"training": 1.0, "scoring": 0.1}, {})


def with_stages(protocol: Protocol, **stages: tuple[str, ...]) -> Protocol:
    """The protocol with these calibrations of the methods named, and the others as they are."""
    rows = (replace(row, calibration=stages.get(row.method, row.calibration)) for row in protocol.methods)
    return replace(protocol, methods=tuple(rows))


def all_runs(protocol: Protocol, **fixed: str) -> list[PlannedRun]:
    return [run for run in plan(protocol) if all(getattr(run, key) == value for key, value in fixed.items())]
