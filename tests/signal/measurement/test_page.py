"""The figures on the page about measuring are those of the committed record, and they say what the page says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pisa_capc.signal.measurement import FLAWS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/measure.md").read_text(encoding="utf-8")
RECORD = json.loads((ROOT / "results/studies/cards.json").read_text(encoding="utf-8"))
TITLES = {"wifi": "Wi-Fi", "lora": "LoRa"}


def test_the_page_quotes_the_record() -> None:
    for row in RECORD["rows"]:
        waveform, own = row["scene"].split("-")[0], "own" in row["scene"]
        title = TITLES[waveform] + ", channels of each device" * own
        wrong = f"{row['called another']:.1%} of {row['one radio']}"
        missed = f"{row['can be one']:.2%} of {row['two radios']:,}"
        assert f"| {title} | {row['frames']} | {wrong} | {missed} |" in PAGE
    for row in RECORD["real"]:
        real, imaginary = (f"{part:+.3f}".replace("-", "−") for part in row["image"])
        image = f"{real} {imaginary[0]} {imaginary[1:]}j"
        cfo = f"{row['cfo_hz'] / 1e3:.1f}".replace("-", "−")
        cells = [row["recording"], row["sender"], str(row["frames"]), image, f"{max(row['scatter']):.3f}", cfo]
        assert f"| {' | '.join(cells)} |" in PAGE


def test_the_page_has_every_row_of_the_small_scenes() -> None:
    titles = {"ieee802154": "IEEE 802.15.4", "ble": "Bluetooth LE", "adsb": "ADS-B"}
    record = json.loads((ROOT / "results/studies/waveforms.json").read_text(encoding="utf-8"))
    for row in record["rows"]:
        scores = f"{row['closed_form']:.3f} | {row['limit']:.3f} | {row['suspected']:.1%}"
        assert f"| {titles[row['scene']]} | {row['target']} | {scores} |" in PAGE
        assert row["measured"] == row["frames"] == 288
        assert row["closed_form"] > row["limit"] - 0.03  # two standard deviations of 288 frames at 0.93


def test_the_page_says_what_the_information_puts_out_of_reach() -> None:
    record = json.loads((ROOT / "results/studies/information.json").read_text(encoding="utf-8"))
    titles = TITLES | {"ieee802154": "IEEE 802.15.4", "ble": "Bluetooth LE", "adsb": "ADS-B"}
    shown = ("image", "leakage", "compression", "offset", "index", "drift", "pulse")
    for name, title in titles.items():
        own = {row["flaw"]: row for row in record["rows"] if row["waveform"] == name}
        cells = [
            "" if (row := own.get(flaw)) is None else f"{100 * row['bar']:.2g}" if row["reach"] else "out of reach"
            for flaw in shown
        ]
        assert f"| {title} | {own['image']['samples']:,} | {' | '.join(cells)} |" in PAGE
    hidden = {(row["waveform"], row["flaw"]) for row in record["rows"] if not row["reach"]}
    assert {(name, "compression") for name in ("lora", "ieee802154", "ble")} < hidden
    assert ("adsb", "image") in hidden


def test_cards_are_right() -> None:
    """One radio is called another about as rarely as the threshold says, and another hardly ever can be the same."""
    for row in RECORD["rows"]:
        assert row["called another"] < 0.02
        assert row["can be one"] < 0.002


def test_real_recordings_read_as_another_implementation_read_them() -> None:
    images = {(row["recording"], row["sender"]): complex(*row["image"]) for row in RECORD["real"]}
    cable = [image for (name, _), image in images.items() if name.startswith("conducted")]
    assert np.abs(np.array(cable) - (-0.036 - 0.024j)).max() < 0.004
    [strong] = [image for (name, who), image in images.items() if name.startswith("radiated") and who != "(none)"]
    assert abs(strong - (-0.011 - 0.003j)) < 0.004


def test_the_page_has_every_flaw() -> None:
    assert all(flaw.title.split(",")[0].split()[-1] in PAGE for flaw in FLAWS.parts(search=False).values())
