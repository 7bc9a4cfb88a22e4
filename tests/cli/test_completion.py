"""Completion in shells offers what there is, and says so at once: without importing what computes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pisa_capc.cli import completion
from pisa_capc.core.registry import Registry
from tests.datasets import write_random

NOWHERE = SimpleNamespace(params={}, args=[], find_root=lambda: SimpleNamespace(params={}))


def test_names_in_the_source_are_those_of_the_registries() -> None:
    from pisa_capc.decide.calibration import CALIBRATIONS
    from pisa_capc.decide.calibration.openset.scores import REJECTIONS
    from pisa_capc.model.encoders.base import ENCODERS
    from pisa_capc.model.methods import METHODS
    from pisa_capc.signal.detection.finders import FINDERS
    from pisa_capc.signal.formats import FORMATS

    there: list[tuple[Any, Registry[Any], set[str]]] = [
        (completion.CALIBRATIONS, CALIBRATIONS, set()),
        (completion.ENCODERS, ENCODERS, set()),
        (completion.WAVEFORMS, FINDERS, set()),
        (completion.registered("format"), FORMATS, set()),
        (completion.METHODS, METHODS, {"auto"}),
        (completion.REJECTIONS, REJECTIONS, {"auto", "none"}),
    ]
    for names, registry, besides in there:
        ours = {name for name, part in registry.parts(search=False).items() if _is_ours(part)}
        assert set(names(NOWHERE)) == ours | besides, registry.kind


def _is_ours(part: Any) -> bool:
    """Not of another test, which left it in the registry."""
    return (getattr(part, "__module__", None) or type(part).__module__).startswith("pisa_capc.")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_random(tmp_path / "set", environments=["hall", "lab"], devices=2, captures=["L1"])


def completed(line: str, folder: Path) -> list[str]:
    """What a shell shows for a line that ends in what is being typed, from a process that may not import torch."""
    code = "import sys; sys.modules['torch'] = None; from pisa_capc.cli import main; sys.argv = ['pisa']; main()"
    shell = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_PISA_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": "/usr/bin"} | shell, cwd=folder, capture_output=True, text=True
    )
    return done.stdout.split()


def test_the_last_of_several_environments_is_completed_from_the_dataset_on_the_line(dataset: Path) -> None:
    assert completed("pisa train set --source hall,l", dataset.parent) == ["hall,lab"]
    assert completed("pisa train set --encoder trans", dataset.parent) == ["transformer"]


def test_damaged_descriptions_complete_to_nothing(dataset: Path) -> None:
    on_the_line = SimpleNamespace(params={"dataset": dataset, "more": ["x", 3, None]}, args=[])
    assert completion.environments(on_the_line) == ["hall", "lab"]
    for damaged in ("{", "[]", '{"captures": 3}', '{"captures": [{"device": 3}, 4]}'):
        (dataset / "dataset.json").write_text(damaged)
        assert completion.devices(on_the_line) == completion.environments(on_the_line) == []
