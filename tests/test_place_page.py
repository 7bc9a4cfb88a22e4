"""The words of the page on shared channels hold by its records."""

from __future__ import annotations

from pages import controls
from pages.against_paper import NO_GAIN, section
from pages.shared_channel import CARRY_OVER, ranked
from pages.sides import RECORDS

from pisa_capc.evidence.benchmark.results import paired_difference


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


def test_what_is_said_of_the_control_is_what_its_records_show() -> None:
    found = controls.compared()
    assert len(found) == 4
    gain = {title: paired_difference(one.control, one.single) for title, one in found.items()}
    assert all(difference is not None and difference.low > 0 for difference in gain.values())
    rest = {title: paired_difference(one.pisa, one.control) for title, one in found.items()}
    text = " ".join(controls.section(lambda heads, rows: "").split())
    for title, difference in rest.items():
        assert difference is not None
        if "CNN" in title:
            assert difference.low > 0.1  # "With a CNN these add much"
        else:
            assert difference.low <= 0  # "with a Transformer … a control has it"
    assert "PISA is better than the control with Wi-Fi, CNN and LoRa, CNN" in text
    assert "the control is better than PISA with LoRa, Transformer" in text
    assert "the difference is undecided with Wi-Fi, Transformer" in text
    control, pisa = found["LoRa, Transformer"].control, found["LoRa, Transformer"].pisa
    assert min(control.values()) > 0.9
    assert min(pisa.values()) < 0.2  # some runs of PISA never learn
