from __future__ import annotations

import pytest

from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.training import fit
from tests.cli.test_model_commands import Command, call
from tests.problems import runs, small_frames


@pytest.fixture(scope="session")
def trained() -> TrainedModel:
    """A model of the devices D1, D2 and D3, trained in E2 and E3."""
    [model] = fit(runs(small_frames(frames=80)), encoder="cnn", epochs=5, batch=16, device="cpu", show=False)
    return model


@pytest.fixture
def pisa(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process: exit code, standard output, standard error."""
    return lambda *arguments: call(capsys, *arguments)
