"""Where there is no GPU, Triton's interpreter runs the kernels; it must be asked for before Triton is imported."""

import os
import signal
from collections.abc import Iterator
from importlib import import_module

import pytest
import torch

from pisa_capc.core import engines, plugins, registry

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
# A job in a shell's background ignores SIGINT, and so would every command that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def one_core() -> Iterator[None]:
    """Tests are what is spread over the cores: work runs in the process of its test, unless it asks for workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "available_cores", lambda: 1)
        yield


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
