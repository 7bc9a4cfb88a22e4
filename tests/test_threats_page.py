"""What the security page says of attacks is what its record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.report import read
from pages import threats

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found() -> Any:
    return read(threats.RECORD)


def test_the_page_has_what_the_record_says() -> None:
    assert threats.measured() in (ROOT / "docs/security.md").read_text(encoding="utf-8")


def test_what_security_md_says_holds_and_does_not(found: Any) -> None:
    preamble, imitated = found["replay"]["preamble"], found["imitation"]["preamble"]
    assert preamble["the device itself"]["reported"] == 0
    assert preamble["a stranger"]["accepted"] == 0  # what holds
    assert preamble["a stranger"]["reported"] == 1
    for part in threats.PARTS:
        own = found["replay"][part]
        assert own["beside it, 1"]["reported"] == own["beside it, 0.3"]["reported"] == 1
        assert own["beside it, 0.03"]["accepted"] > 0.9  # what does not
        assert found["imitation"][part]["1, 0"]["reported"] == 1
        assert found["imitation"][part]["3, 0"]["accepted"] > 0.9
    across = found["replay"]["preamble"]["across the room, 0.1"]
    assert abs(across["suspected"] - preamble["the device itself"]["suspected"]) < 0.1  # the fit does not find it
    assert imitated["3, 0.3"]["accepted"] < imitated["3, 0.1"]["accepted"] < imitated["3, 0"]["accepted"]
    assert set(found["drift"]["months"]["10"]["refused"][1:]) == {1.0}
    yearly = found["drift"]["months"]["3"]
    assert yearly["updated, accepted"][-1] > yearly["fixed, accepted"][-1]
    attacks = found["drift"]["attacks"]
    assert attacks["its own frames"]["refused"] == 1
    assert attacks["step by step"]["attacker reported"] == 1
    assert attacks["step by step"]["device accepted"] < 0.5
    pairs = found["imitation"]["antennas, frames, error"]
    assert all(pairs[f"{antennas}, {frames}, 0"] > 0.9 for antennas in (1, 2, 4) for frames in (1, 3, 10, 30))


@pytest.mark.usefixtures("own_parts")  # its waveform is as good an explanation of Wi-Fi frames as their own
def test_the_study_gives_the_same_again_for_one_attacker() -> None:
    from studies.threats.imitation import imitated
    from studies.threats.world import World

    from pisa_capc.core.randomness import generator

    world = World(2026)
    victim, own = world.profile("D01"), world.profile("X00")
    exact = imitated(victim, own, world.scene.hardware, 3, 0.0, generator(0, "test"))
    assert exact.iq_gain_db == victim.iq_gain_db
    assert exact.dc_offset_db == pytest.approx(victim.dc_offset_db)
    assert exact.pa_am_pm_deg == victim.pa_am_pm_deg
    assert exact.cfo_ppm == own.cfo_ppm
    assert imitated(victim, own, world.scene.hardware, 0, 0.0, generator(0, "test")) == own
