from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.decide.enrolment import enrol
from pisa_capc.model.inference import TrainedModel
from tests.cli.test_model_commands import Command, call
from tests.problems import small_frames

FRAMES = small_frames(devices=4, frames=80)


def heard(device: str, environment: str, frames: int = 80) -> UnlabelledFrames:
    """Frames of a device in one place."""
    return FRAMES.where(environment=environment, device=device).unlabelled()[:frames]


@pytest.fixture(scope="session")
def larger(trained: TrainedModel) -> TrainedModel:
    """The same with D4, enrolled from 30 frames in E2."""
    return enrol(trained, "D4", heard("D4", "E2", 30), origin=[{"name": "a test"}], device="cpu")


@pytest.fixture
def saved(trained: TrainedModel, tmp_path: Path) -> Path:
    trained.save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def pisa(capsys: pytest.CaptureFixture[str]) -> Callable[..., Command]:
    """Run the command line in this process: exit code, standard output, standard error."""
    return lambda *arguments: call(capsys, *arguments)
