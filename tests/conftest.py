"""What all tests share: Triton's interpreter where there is no GPU, their order, a trained model."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import torch

from pisa_capc.core import engines, plugins, registry

if TYPE_CHECKING:
    from pisa_capc.model.inference import TrainedModel

if not torch.cuda.is_available():  # before Triton is imported
    os.environ["TRITON_INTERPRET"] = "1"
# A job in a shell's background ignores SIGINT, and so would every command that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


LONG = ("test_examples.py", "test_short.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first: whoever ended with one would have the other worker wait."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(autouse=True, scope="session")
def one_core() -> Iterator[None]:
    """Tests are what is spread over the cores: work runs in the process of its test, unless it asks for workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "available_cores", lambda: 1)
        yield


@pytest.fixture(scope="session")
def trained() -> TrainedModel:
    """A model of the devices D1, D2 and D3, trained in E2 and E3."""
    from pisa_capc.model.training import fit
    from tests.problems import runs, small_frames

    [model] = fit(runs(small_frames(frames=80)), encoder="cnn", epochs=5, batch=16, device="cpu", show=False)
    return model


@pytest.fixture
def own_parts() -> Iterator[None]:
    """What a test registers, and the plugins it loads, are forgotten after it."""
    for name in (
        "signal.formats",
        "signal.detection",
        "signal.waveforms",
        "model.encoders",
        "model.methods",
        "decide.calibration",
        "evidence.checks",
        "live.listen.sources",
    ):
        import_module(f"pisa_capc.{name}")  # what is first imported in the test would not be known here
    files, before = dict(plugins._files), {r: (dict(r._parts), dict(r._origins)) for r in registry._every}
    yield
    plugins._files.clear()
    plugins._files.update(files)
    for known, (parts, origins) in before.items():
        known._parts, known._origins = parts, origins
