"""The words of the page on shared channels hold by its records."""

from __future__ import annotations

from pages import controls
from pages.against_paper import NO_GAIN, section
from pages.shared_channel import CARRY_OVER, ranked
from pages.sides import RECORDS, recorded

from pisa_capc.data.protocol import DIRECT
from pisa_capc.evidence.benchmark.results import Key


def test_the_methods_that_carry_over_lead_and_most_pairs_are_decided() -> None:
    [wifi] = [found for found in ranked() if found.dataset == "wifi"]
    assert tuple(wifi.scores)[: len(CARRY_OVER)] == CARRY_OVER
    assert wifi.scores[CARRY_OVER[-1]] > 2 * sorted(wifi.scores.values())[-len(CARRY_OVER) - 1]
    assert wifi.decided > wifi.pairs / 2


def test_a_method_that_equals_single_is_shown_as_no_gain_and_counted_nowhere() -> None:
    text = section("baselines-place", RECORDS)
    lines = [line for line in text.splitlines() if "GAD" in line or "DANN" in line]
    rows = [line for line in lines if line.startswith("| Transformer:")]
    assert len(rows) == 4  # two methods on two sets
    assert all(line.count(NO_GAIN) == 4 for line in rows)
    said = [line for line in lines if line.startswith("- ") and "No gain found for GAD and DANN" not in line]
    assert not [line for line in said if "The paper's order" not in line]


def test_rows_of_another_device_are_marked_and_never_paired() -> None:
    text = section("baselines-place", RECORDS)
    rows = [line for line in text.splitlines() if "(CPU)" in line]
    assert any("Closed form (CPU)" in line for line in rows)
    assert not any("+0." in line or "(-0." in line for line in rows)
    assert "another fingerprint" in text
    assert controls.lines("wifi", "wifi", "E1,E2 → E3", ["cnn"]) == []  # of another direction


def test_the_control_lies_between_single_and_pisa() -> None:
    """What the section says of one encoder for all antennas."""
    runs = [(encoder, record) for encoder, record in controls._runs("wifi")]
    assert runs
    own = recorded("wifi-place")
    for encoder, record in runs:
        single, pisa = (
            own.f1(Key("wifi", controls.DIRECTION, method, "full", encoder), DIRECT)[record.seeds]
            for method in ("single", "pisa")
        )
        assert single < record.direct_f1 < pisa
    assert "explains most of PISA's gain" in " ".join(controls.section(lambda heads, rows: "").split())
