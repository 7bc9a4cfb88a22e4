"""Every sentence of the findings names its record, and what is said of repeated trainings holds by theirs."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.report import RESULTS
from pages import rechecks
from pages.shared_channel import in_full

ROOT = Path(__file__).parents[1]
FIGURE = re.compile(r"\b0\.\d{2,}")
RECORD = re.compile(r"`((?:records|studies)/[^`]+)`")


def test_a_finding_with_a_figure_names_records_that_are_there() -> None:
    listed = (ROOT / "docs/results/findings.md").read_text(encoding="utf-8").partition("## Findings")[2]
    listed = listed.partition("## What cannot be compared")[0]
    bullets = [re.sub(r"\s+", " ", text) for text in re.findall(r"(?:^|\n)- (.*?)(?=\n- |\n\n|\Z)", listed, flags=re.S)]
    assert len(bullets) > 20
    for bullet in bullets:
        names = [name for found in RECORD.findall(bullet) for name in found.split("`, `")]
        assert names or not FIGURE.search(bullet), bullet
        for name in names:
            assert any(RESULTS.glob(name)), name


def test_rows_of_the_first_table_name_records_that_are_there() -> None:
    part = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- results -->")[2]
    rows = [line for line in part.splitlines() if line.startswith("| ") and FIGURE.search(line)]
    for row in rows[1:]:  # the first is chance
        [name] = RECORD.findall(row)
        assert any(RESULTS.glob(name.rstrip("/"))), row


class TestRepeats:
    """The sentences about what repeats."""

    found = rechecks.Repeats()

    def test_a_stack_repeats_in_any_order_and_company(self) -> None:
        rows, alike = self.found.rows, self.found.alike
        for name in ("nine", "alone", "nine, float32", "alone, float32"):
            same, of = alike(rows[name, 0], rows[name, 1])
            assert same == of, name
        assert alike(rows["nine", 0], rows["nine, reversed", 0]) == (9, 9)
        assert alike(rows["nine", 0], rows["copies", 0]) == (1, 1)
        assert alike(*self.found.cpu) == (1, 1)

    def test_its_size_and_the_choice_of_kernels_change_all_bits(self) -> None:
        rows, alike = self.found.rows, self.found.alike
        assert alike(rows["nine", 0], rows["alone", 0]) == (0, 1)
        assert alike(rows["nine, float32", 0], rows["alone, float32", 0]) == (0, 1)
        one, other = (rows["nine, kernels by timing", time]["hashes"] for time in (0, 1))
        assert one["0"] == other["0"]
        assert not set(one["1"]) & set(other["1"])

    def test_a_rounding_step_decides_and_more_epochs_do_not(self) -> None:
        nudged, long = self.found.rows["copies, nudged", 0], self.found.long
        assert 1 <= self.found.learnt(nudged) < len(nudged["runs"])
        assert self.found.learnt(long) == self.found.learnt(self.found.rows["nine", 0])
        assert long["epochs"] >= 5 * self.found.epochs


def test_searches_in_full_gain_nothing_that_is_decided() -> None:
    for (place, method), (_, _, change) in in_full().items():
        if method in ("dann", "gad", "rffcc"):
            assert (abs(change.mean) < 0.03) if place == "wifi" else (change.mean < 0)
            assert change.low <= 0  # "gain nothing that is decided"
