"""The page about the house names every room that there is, in the order that the contract holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_page_names_every_room_from_the_lowest_to_the_highest() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [{name} for name in contract[0]["layers"] if name == "cli"]
    for package in contract[1:]:
        within = package["containers"][0].removeprefix("pisa_capc.")
        layers += [{f"{within}.{name}" for name in layer.split(" | ")} for layer in package["layers"]]
    layers.reverse()
    section = PAGE.split("## Rooms")[1].split("##")[0]
    rows = [re.findall(r"`([a-z_.]+)`", row.split("|")[1]) for row in section.splitlines() if row.startswith("| `")]
    height = {room: i for i, layer in enumerate(layers) for room in layer}
    named = [room for row in rows for room in row]
    assert sorted(named) == sorted(height)
    for row in rows:
        assert row, "a row names a room"
    lowest = [min(height[room] for room in row) for row in rows]
    assert lowest == sorted(lowest)


def test_the_contract_covers_the_whole_package() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    assert contract[0]["exhaustive"]
    assert contract[0]["exhaustive_ignores"] == ["__main__"]
