"""Two small trained runs on one split, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisa_capc.data.frames import load
from pisa_capc.data.protocol import split
from pisa_capc.data.store.native import fingerprint
from pisa_capc.evidence.evaluation import infer_runs, load_runs
from pisa_capc.evidence.figures.run import Subject
from pisa_capc.model.training import Run, TrainingConfig, fit
from tests.problems import write_small


@pytest.fixture(scope="package")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("data") / "small")


@pytest.fixture(scope="package")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs `pisa`, `single` and `other`, which is of another split."""
    folder, frames = tmp_path_factory.mktemp("runs"), load(data)
    for name, method, split_seed in (("pisa", "pisa", 1), ("single", "single", 1), ("other", "single", 2)):
        fit(
            [Run(split(frames, ["E2", "E3"], "E1", split_seed), 1)],
            method=method,
            encoder="cnn",
            training=TrainingConfig(epochs=1, batch=32),
            device="cpu",
            out=folder / name,
            dataset=fingerprint(data),
            show=False,
        )
    return folder


@pytest.fixture(scope="package")
def subjects(data: Path, trained: Path) -> list[Subject]:
    return [infer_runs(load_runs(trained / name), load(data), ["E1"], show=False) for name in ("pisa", "single")]
