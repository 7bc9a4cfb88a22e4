"""The figures on the page about checks are those of the committed record, and it names every check."""

from __future__ import annotations

import json
from pathlib import Path

from pisa_capc.evidence.checks import CHECKS, Verdict
from pisa_capc.evidence.checks.naming import QUESTIONS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/check.md").read_text(encoding="utf-8")
RECORD = json.loads((ROOT / "results/studies/check.json").read_text(encoding="utf-8"))
TITLES = {"wifi": "Wi-Fi", "lora": "LoRa"}


def test_the_page_quotes_the_record() -> None:
    for row in RECORD["rows"]:
        own = [row["preamble"][question] for question in QUESTIONS]
        shares = " | ".join(f"{one['accuracy']:.2f} ({one['low']:.2f}–{one['high']:.2f})" for one in own)
        name = f"{TITLES[row['waveform']]} | {row['way']} | {row['preamble']['room']}"
        assert f"| {name} | {shares} | {row['array']['later']['accuracy']:.2f} |" in PAGE


def test_the_page_names_every_check() -> None:
    table = PAGE.split("## The other checks")[1].split("##")[0]
    assert all(name in table for name in CHECKS.parts(search=False) if name not in ("room", "neighbours"))


def test_in_full_the_scenes_of_the_place_have_no_fault_and_those_of_the_device_one() -> None:
    for row in RECORD["rows"]:
        if row["way"] == "own place":
            assert row["preamble"]["faults"] == row["array"]["faults"] == ["room"]
        if "the scene" in row["way"]:
            assert row["preamble"]["faults"] == row["array"]["faults"] == []
            assert row["preamble"]["room"] == row["array"]["room"] == Verdict.FINE
