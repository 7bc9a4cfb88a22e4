"""The words of the page on shared channels hold by its records."""

from __future__ import annotations

from pages.shared_channel import CARRY_OVER, ranked


def test_the_methods_that_carry_over_lead_and_most_pairs_are_decided() -> None:
    [wifi] = [found for found in ranked() if found.dataset == "wifi"]
    assert tuple(wifi.scores)[: len(CARRY_OVER)] == CARRY_OVER
    assert wifi.scores[CARRY_OVER[-1]] > 2 * sorted(wifi.scores.values())[-len(CARRY_OVER) - 1]
    assert wifi.decided > wifi.pairs / 2
