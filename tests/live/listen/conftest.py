from __future__ import annotations

import pytest

from pisa_capc.signal.detection import finding
from tests.decide.identification.conftest import pisa, trained  # noqa: F401  (fixtures)
from tests.live.listen.air import ToyDetector


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of the small problem are found where they are marked."""
    monkeypatch.setitem(finding.DETECTORS, "wifi", ToyDetector)
    monkeypatch.delitem(finding.TAKING_BYTES, "wifi")
    monkeypatch.setitem(finding.HEADERS, "wifi", list)
    monkeypatch.setattr("pisa_capc.live.listen.hearing.QUICK_HEADERS", {})
