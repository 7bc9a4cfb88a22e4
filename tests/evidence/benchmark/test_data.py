"""What the dataset of a protocol is called, never what it is not; and what is said of it before a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.native import fingerprint
from pisa_capc.data.store.seal import sealed
from pisa_capc.evidence.benchmark.data import dataset_name, note_on_search, source_dataset
from pisa_capc.evidence.benchmark.protocols import DataSource, Simulated
from tests.evidence.benchmark.tools import QUICK, quick, write_protocol
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
    path.write_text(json.dumps(sealed({**described, "provenance": provenance})), encoding="utf-8")
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
    linked = data.parent / "linked"
    linked.symlink_to(data)
    assert dataset_name(MADE, linked) == "linked"


def test_a_search_on_other_frames_is_told_of(data: Path, tmp_path: Path) -> None:
    search = {"epochs": 1, "split_seed": 1, "seeds": [1], "grid": {"single": {"embedding": [64, 8]}}}
    protocol = quick(tmp_path, changes={**QUICK, "search": search})
    record, work = tmp_path / "quick-search.json", tmp_path / "work"
    assert note_on_search(protocol, data, tmp_path, work) == ""  # there was no search
    for dataset, note in ((fingerprint(source_dataset(data, ("E2", "E3"), work)), ""), ("0123", "another dataset")):
        record.write_text(json.dumps({"conditions": {"dataset": dataset}}), encoding="utf-8")
        found = note_on_search(protocol, data, tmp_path, work)
        assert note in found
        assert bool(found) == bool(note)
        assert note_on_search(replace(protocol, search=None), data, tmp_path, work) == ""
    record.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="not the record of a search"):
        note_on_search(protocol, data, tmp_path, work)


def test_the_command_says_it_in_a_line_before_it_runs(
    pisa: Callable[..., tuple[int, str, str]], data: Path, tmp_path: Path
) -> None:
    search = {"epochs": 1, "split_seed": 1, "seeds": [1], "grid": {"single": {"embedding": [64, 8]}}}
    path = write_protocol(tmp_path, changes={**QUICK, "search": search, "seeds": [1]})
    record = tmp_path / "results" / "quick-search.json"
    record.parent.mkdir()
    record.write_text('{"conditions": {"dataset": "0123"}}', encoding="utf-8")
    places = ("--results", record.parent, "--work", tmp_path / "work", "--data", data, "--device", "cpu")
    code, _, notes = pisa("bench", "run", path, *places, "--only", "method=single")
    assert code == 0
    assert notes.index("the search was made on another dataset than") < notes.index("1/1 single")
