from __future__ import annotations

import pytest

from pisa_capc.signal.detection import FINDERS
from tests.decide.identification.conftest import pisa  # noqa: F401  (a fixture)
from tests.live.listen.air import ToyFinder


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of the small problem are found where they are marked, in a ring that is made in no time."""
    monkeypatch.setitem(FINDERS._parts, "wifi", ToyFinder())
    monkeypatch.setattr("pisa_capc.live.listen.listener.MOST", 1 << 16)
