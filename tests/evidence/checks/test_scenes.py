"""What the built-in scenes are called: the question this room was built for."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.evidence.checks import Checked, Verdict, check_frames
from pisa_capc.evidence.checks.naming import pooled
from tests.evidence.checks.sets import Plain, small_scene


@pytest.fixture(scope="module", params=["wifi", "lora", "wifi-own-place", "lora-own-place"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Checked]:
    folder = tmp_path_factory.mktemp("scene")
    return request.param, check_frames(small_scene(request.param, folder))


def test_the_room_is_the_only_fault_and_only_where_devices_have_places_of_their_own(scene: tuple[str, Checked]) -> None:
    name, checked = scene
    faults = [what for what, finding in checked.findings.items() if finding.verdict == Verdict.FAULT]
    assert faults == (["room"] if name.endswith("own-place") else [])
    assert checked.fit == (not faults)


def test_channels_name_devices_within_recordings_and_never_in_others(scene: tuple[str, Checked]) -> None:
    name, checked = scene
    places = checked.evidence.room
    assert places is not None
    later, elsewhere = (pooled(getattr(place, question) for place in places) for question in ("later", "elsewhere"))
    assert later is not None
    assert elsewhere is not None
    assert elsewhere.low < elsewhere.chance < elsewhere.high
    still = [place.later for place in places if not place.name.endswith("/M") and place.later is not None]
    if name.endswith("own-place"):
        assert later.surely_beyond_chance > 0.3
        assert np.mean([own.accuracy for own in still]) > 0.75
    else:
        assert later.low < later.chance


def test_the_array_alone_says_the_same_where_no_preamble_is_known(scene: tuple[str, Checked]) -> None:
    name, checked = scene
    unknown = Plain.of(checked.evidence.frames.where(capture=["L1", "L3"]))
    unknown.sample_rate_hz = 7e6
    again = check_frames(unknown.frames())
    assert "ratios between antennas" in again.evidence.found.about
    assert again.findings["room"].verdict == (Verdict.FAULT if name.endswith("own-place") else Verdict.FINE)
    assert "was not measured" in again.findings["snr"].found
