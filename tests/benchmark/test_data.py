"""What the dataset of a protocol is called: never what it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pisa_capc.benchmark.data import dataset_name
from pisa_capc.benchmark.protocols import DataSource, Simulated
from pisa_capc.benchmark.search import source_dataset
from tests.problems import write_small

RECORDED = DataSource("measured-wifi", None)
MADE = DataSource("wifi-sim", Simulated("wifi", 1.0, 2026))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small(tmp_path / "mine")


def told(data: Path, **provenance: Any) -> Path:
    """The dataset, saying this of its making."""
    path = data / "dataset.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**described, "provenance": provenance}), encoding="utf-8")
    return data


def test_a_simulated_set_is_not_called_measured(data: Path, tmp_path: Path) -> None:
    told(data, command="pisa simulate wifi", seed=2026)
    assert dataset_name(RECORDED, data) == "mine (simulated)"
    part = source_dataset(data, ("E2", "E3"), tmp_path / "work")
    assert dataset_name(RECORDED, part) == f"{part.name} (simulated)"


def test_recordings_are_what_a_protocol_of_recordings_names(data: Path, tmp_path: Path) -> None:
    assert dataset_name(RECORDED, told(data, command="import mat")) == "measured-wifi"
    assert dataset_name(RECORDED, tmp_path) == "measured-wifi"  # a folder of MAT files, yet to be imported


def test_what_takes_the_place_of_a_simulated_set_goes_by_its_folder(data: Path) -> None:
    assert dataset_name(MADE, None) == "wifi-sim"
    assert dataset_name(MADE, told(data, command="import mat")) == "mine"
    assert dataset_name(MADE, told(data, command="pisa simulate lora")) == "mine"
