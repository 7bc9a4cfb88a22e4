"""The study of real radios: what it decides, and a section whose numbers are those of its record."""

from __future__ import annotations

import numpy as np
import pytest
from pages import radios as page
from studies import radios


def test_what_could_not_be_measured_is_wrong() -> None:
    rng = np.random.default_rng(0)
    device = np.repeat([0, 1], 20)
    value = rng.normal(size=(40, 2)) + 20 * device[:, None]
    value[39] = np.nan
    learnt = np.arange(40) % 2 == 0
    answer = radios.decided(value, np.tile(0.1 * np.eye(2), (40, 1, 1)), device, np.zeros(40, int), learnt, ~learnt)
    assert (answer == [0] * 10 + [1] * 9 + [-1]).all()
    own = radios.scored(device[~learnt], answer)
    assert (own["right"], own["of"]) == (19, 20)
    assert own["macro_f1"] == pytest.approx((1 + 18 / 19) / 2)
    assert own["interval"][0] < own["macro_f1"] <= own["interval"][1]
    assert own["right_interval"] == pytest.approx([0.7513, 0.9987], abs=1e-3)  # Clopper and Pearson of 19 in 20


def test_the_numbers_of_the_section_are_those_of_the_record() -> None:
    text, sets = page.section(), page.record()["sets"]
    own = sets["pluto"]["leave one capture out"]
    for kind in page.PLUTO_ROWS:
        assert f"{own[kind]['right']} of {own[kind]['of']} | {own[kind]['macro_f1']:.3f}" in text
    for which in sets["sl109h"]["results"].values():
        for kind in page.SENSOR_ROWS:
            assert f"{which[kind]['right']} of {which[kind]['of']} | {which[kind]['macro_f1']:.3f}" in text


def test_what_the_section_says_of_the_offset_holds() -> None:
    """The offset tells most; without it less is left."""
    late = page.record()["sets"]["sl109h"]["results"]["early to late"]
    assert late["offset alone"]["right"] >= late["all"]["right"] > late["without offset"]["right"]
    images = {}
    for row in page.record()["sets"]["pluto"]["captures"]:
        images.setdefault(row["device"], []).extend(complex(*value) for value in row["image"])
    angles = [np.degrees(np.angle(np.mean(own))) for own in images.values()]
    assert np.ptp(angles) > 60


def test_groups_of_frames_are_apart_by_their_scatter() -> None:
    rng = np.random.default_rng(0)

    def frames(image: complex, cfo_hz: float) -> list[dict[str, object]]:
        noise = rng.normal(scale=0.01, size=(100, 4))
        return [
            {"image": [image.real + n[0], image.imag + n[1]], "leakage": [n[2], n[3]], "cfo_hz": cfo_hz + 1e4 * n[0]}
            for n in noise
        ]

    same, other = radios.apart(frames(0, 0), frames(0, 0)), radios.apart(frames(0, 0), frames(0.03 + 0.04j, 1e3))
    assert max(same[f"{name}_errors"] for name in ("image", "leakage", "cfo")) < 3.5
    assert other["image"] == pytest.approx(0.05, abs=0.005)
    assert other["image_errors"] == pytest.approx(0.05 / (0.01 * np.sqrt(2 / 100)), rel=0.15)
    assert other["cfo_errors"] > 20 > 3.5 > other["leakage_errors"]


def test_what_is_said_of_the_wifi_recordings_holds() -> None:
    """One radio agrees with itself within a recording; its image and leakage do not carry over to another."""
    pairs = page.record()["sets"]["openofdm"]["pairs"]
    for name in ("cable: its data frames and its answers", "air: earlier and later frames"):
        assert max(pairs[name]["image_errors"], pairs[name]["leakage_errors"]) < 5
    assert pairs["air: its frames and those of others"]["cfo_errors"] > 10
    both = pairs["cable and air"]
    assert min(both["image_errors"], both["leakage_errors"]) > 10
    assert both["cfo_hz"] < 1000
