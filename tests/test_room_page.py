"""The words of the page on what the room gives away hold by its records."""

from __future__ import annotations

import pytest
from pages.room import FULL_SIZE, Room
from pages.sides import recorded
from studies.placement import WAYS

from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.evidence.benchmark.results import mean


@pytest.fixture(scope="module")
def room() -> Room:
    return Room()


def known(value: float | None) -> float:
    assert value is not None
    return value


STILL = ("device", "place-device-phases", "place-device-phases-moving")


@pytest.mark.parametrize("method", ["single", "pisa"])
def test_the_score_of_the_source_falls_as_that_of_the_new_place_rises(room: Room, method: str) -> None:
    source = [known(room.validation("wifi", way, method)) for way in STILL]
    target = [known(room.target("wifi", way, method)) for way in STILL]
    assert source == sorted(source, reverse=True)
    assert target == sorted(target)


def test_calibration_adds_most_where_the_phases_are_the_devices(room: Room) -> None:
    added = {
        way: known(room.target("wifi", way, "pisa", PAPER)) - known(room.target("wifi", way, "pisa"))
        for way in tuple(WAYS)[:4]
    }
    assert max(added, key=added.__getitem__) == "place-device-phases"


def test_an_equaliser_on_wifi_and_alignment_on_lora_do_not_mind_whose_the_channel_is(room: Room) -> None:
    for waveform, method in (("wifi", "equalised"), ("wifi", "pisa-equalised"), ("lora", "aligned")):
        scores = [score for way in WAYS if (score := room.target(waveform, way, method)) is not None]
        assert len(scores) >= 3
        assert max(scores) - min(scores) < 0.05
        assert min(scores) > known(room.target(waveform, "place-device-phases", "single"))


@pytest.mark.parametrize("encoder", ["cnn", "transformer"])
@pytest.mark.parametrize("method", ["single", "pisa"])
def test_noise_and_validation_change_the_source_and_not_the_new_place(method: str, encoder: str) -> None:
    source, target = {}, {}
    for name in FULL_SIZE:
        found = recorded(name)
        [key] = [k for k in found.runs if k[2:] == (method, "full", encoder)]
        source[name], target[name] = (
            known(getattr(mean(values), "mean", None)) for values in (found.source_f1(key), found.f1(key, DIRECT))
        )
    assert max(target.values()) - min(target.values()) < 0.02
    assert max(source.values()) == source["wifi-place"]
