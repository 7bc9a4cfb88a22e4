"""A recording of ten devices in a place the model never saw: who sent, who is a stranger, who lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies.identify import enrol, identified, recorded, scene_file


@pytest.mark.slow
def test_a_recording_of_ten_devices_in_an_unseen_place(tmp_path: Path) -> None:
    scene = scene_file(tmp_path)
    trained = enrol(tmp_path, "wifi", scene, "pisa-equalised", epochs=6, scale=0.125, seed=2026)
    for capture in ("L1", "L3"):
        by = dict(identified(trained, recorded(tmp_path, "wifi", scene, capture, 1.5, 2026), "wifi"))
        found, cut = by["detected"], by["cut by the truth"]
        assert found["found"] >= 0.99 * found["frames"]
        assert found["known right"] >= cut["known right"] - 0.01
        assert found["known right"] > 0.95
        assert found["stranger set aside"] > 0.8
        assert found["together"]["known right"] >= found["known right"]
        assert found["together"]["stranger set aside"] > 0.9
        assert found["addresses right"] == found["addresses"] - found["spoofed"]
        assert found["spoofed"] == found["spoofed found"] == found["spoofer named"] == 1
        assert found["found to be of several"] == 1
        assert found["false alarms"] == 0
        assert found["genuine"] == found["addresses"] - found["spoofed"]
