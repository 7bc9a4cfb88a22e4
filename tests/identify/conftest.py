from __future__ import annotations

import pytest

from pisa_capc.inference import TrainedModel
from pisa_capc.rehearsal import fit_with_guard
from tests.problems import runs, small_frames


@pytest.fixture(scope="session")
def trained() -> TrainedModel:
    """A model of the devices D1, D2 and D3, trained in E2 and E3."""
    [model] = fit_with_guard(runs(small_frames(frames=80)), encoder="cnn", epochs=6, batch=16, device="cpu", show=False)
    return model
