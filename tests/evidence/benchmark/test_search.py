"""Choosing hyperparameters: without the target, with the same budget for every method, and resumable."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import load
from pisa_capc.evidence.benchmark import job as jobs
from pisa_capc.evidence.benchmark.data import source_dataset
from pisa_capc.evidence.benchmark.plan import plan
from pisa_capc.evidence.benchmark.protocols import Protocol, Search, read_protocol
from pisa_capc.evidence.benchmark.records import read_records
from pisa_capc.evidence.benchmark.run import Options
from pisa_capc.evidence.benchmark.search import Point, SearchResult, point_protocols, search_protocol
from tests.evidence.benchmark.tools import CPU, QUICK, ROOT, quick, write_protocol
from tests.problems import write_small

GRID: dict[str, dict[str, tuple[Any, ...]]] = {"coral": {"weight": (0.1, 1.0)}, "mixup": {"alpha": (0.2, 1.0)}}
SHORT = Search(epochs=1, split_seed=5, seeds=(6,), grid=GRID)


def small_protocol(folder: Path, **changes: Any) -> Protocol:
    protocol = quick(folder, "external-baselines")
    rows = tuple(row for row in protocol.methods if row.method in ("single", "coral", "mixup"))
    return replace(protocol, **{"methods": rows, "search": SHORT, **changes})


def options(folder: Path, data: Path) -> Options:
    return Options(data=data, results=folder / "results", work=folder / "work", device="cpu")


def without_target(folder: Path) -> Path:
    """A dataset whose description lists E1 and whose files of E1 do not exist, or are no data."""
    data = write_small(folder / "small")
    (data / "E1" / "D1" / "L1.h5").unlink()
    (data / "E1" / "D2" / "L1.h5").write_bytes(b"poison")
    return data


def test_the_search_trains_on_sources_alone_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol, chosen = small_protocol(tmp_path), options(tmp_path, without_target(tmp_path))
    whole, calls = jobs.train_and_score, []

    def stops_at_the_sixth(job: jobs.Job) -> Any:
        calls.append(job)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return whole(job)

    monkeypatch.setattr(jobs, "train_and_score", stops_at_the_sixth)
    with pytest.raises(KeyboardInterrupt):
        search_protocol(protocol, chosen)
    found = search_protocol(protocol, chosen)
    assert len(calls) == 2 * 2 * 2 + 1  # methods, points, environments left out; the one that was stopped
    assert len(read_records(tmp_path / "results" / "quick-search")) == 8
    monkeypatch.setattr(jobs, "train_and_score", lambda job: pytest.fail("trained again"))
    assert search_protocol(protocol, chosen) == found

    record = json.loads((tmp_path / "results" / "quick-search.json").read_text(encoding="utf-8"))
    assert record == json.loads(json.dumps(found.to_json()))
    assert (record["domains"], record["epochs"], record["split_seed"], record["seeds"]) == ("captures", 1, 5, [6])
    for method, values in record["methods"].items():
        points = values["points"]
        assert [point["settings"] for point in points] == SHORT.points(method)
        assert all(point["mean"] == pytest.approx(mean(point["macro_f1"].values())) for point in points)
        assert values["chosen"] == max(points, key=lambda point: point["mean"])["settings"]


def test_no_run_of_the_search_names_the_target(tmp_path: Path) -> None:
    protocol = small_protocol(tmp_path)
    data = source_dataset(write_small(tmp_path / "small"), ("E2", "E3"), tmp_path / "work")
    assert load(data).environments == ("E2.L1", "E2.L2", "E3.L1", "E3.L2")
    protocol = replace(protocol, search=replace(SHORT, seeds=(6, 7)))
    runs = [run for point in point_protocols(protocol, data) for run in plan(point)]
    assert {run.direction for run in runs} == {"E3.L1,E3.L2 → E2.L1,E2.L2", "E2.L1,E2.L2 → E3.L1,E3.L2"}
    assert {run.training.epochs for run in runs} == {1}
    assert [run.settings["weight"] for run in runs if run.method == "coral"] == [0.1] * 4 + [1.0] * 4
    assert {(run.split_seed, run.seed) for run in runs} == {(5, 6), (5, 7)}


def test_three_sources_stay_environments(tmp_path: Path) -> None:
    protocol = small_protocol(tmp_path)
    direction = replace(protocol.directions[0], source=("E2", "E3", "E4"))
    data = write_small(tmp_path / "small", ("E1", "E2", "E3", "E4"))
    view = source_dataset(data, direction.source, tmp_path / "work")
    points = point_protocols(replace(protocol, directions=(direction,)), view)
    assert [d.name for d in points[0].directions] == ["E3,E4 → E2", "E2,E4 → E3", "E2,E3 → E4"]


def test_what_was_found_on_another_dataset_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results" / "quick-search.json"
    path.parent.mkdir()
    chosen = options(tmp_path, write_small(tmp_path / "small"))
    for text, message in (('{"conditions": {"dataset": "0123"}}', "is of other frames"), ("{}", "not the record of")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            search_protocol(small_protocol(tmp_path), chosen)
        assert path.read_text(encoding="utf-8") == text


def test_a_failed_training_leaves_no_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(job: jobs.Job) -> Any:
        raise DataError("no more disk.")

    monkeypatch.setattr(jobs, "train_and_score", fails)
    with pytest.raises(DataError, match=r"8 jobs of the search failed, first .*: no more disk\."):
        search_protocol(small_protocol(tmp_path), options(tmp_path, write_small(tmp_path / "small")))
    assert not (tmp_path / "results" / "quick-search.json").exists()


def test_every_method_gets_the_same_budget(tmp_path: Path) -> None:
    def refused(message: str, grid: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            small_protocol(tmp_path, search=replace(SHORT, grid=grid))

    refused("same number of points; found coral 2, mixup 3", {**GRID, "mixup": {"alpha": (0.1, 0.2, 1.0)}})
    refused("expected methods, each with one or more values", {"coral": {"weight": ()}})
    refused("unknown method 'corall'. Did you mean 'coral'?", {"corall": {"weight": (1.0,)}})
    refused("search.grid.coral: unknown setting 'wait'. Did you mean 'weight'?", {"coral": {"wait": (1.0,)}})


def test_what_cannot_be_searched_is_said(tmp_path: Path) -> None:
    protocol, data = small_protocol(tmp_path), write_small(tmp_path / "small")

    def refused(message: str, **changes: Any) -> None:
        with pytest.raises(ConfigError, match=message):
            search_protocol(replace(protocol, **changes), options(tmp_path, data))

    [direction] = protocol.directions
    refused("has no section `search`", search=None)
    refused("needs one direction, found 2", directions=(direction, replace(direction, target=("E4",))))
    refused("needs two or more, found one", directions=(replace(direction, source=("E2",)),))
    refused("unknown environment 'E9'", directions=(replace(direction, source=("E2", "E9")),))


def test_the_command_says_what_it_chose(pisa: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    search = {"epochs": 1, "split_seed": 1, "seeds": [1], "grid": {"single": {"embedding": [64, 8]}}}
    path = write_protocol(tmp_path, changes={**QUICK, "search": search})
    places = ("--results", tmp_path / "results", "--work", tmp_path / "work", "--data", write_small(tmp_path / "small"))
    code, text, notes = pisa("bench", "select", path, *places, "--device", "cpu")
    assert code == 0
    assert "so captures stand in for environments: E2.L1 is one." in notes
    record = json.loads((tmp_path / "results" / "quick-search.json").read_text(encoding="utf-8"))
    chosen = record["methods"]["single"]["chosen"]["embedding"]
    assert f"single: embedding {chosen} ({'as the protocol has it' if chosen == 64 else 'the protocol has'}" in text
    assert all(f"{point['mean']:.4f}" in text for point in record["methods"]["single"]["points"])


def test_a_tie_is_said(
    pisa: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = {"epochs": 1, "split_seed": 1, "seeds": [1], "grid": {"single": {"embedding": [8, 64, 32]}}}
    path = write_protocol(tmp_path, changes={**QUICK, "search": search})
    points = [Point({"embedding": e}, {"E2": f1, "E3": f1}) for e, f1 in ((8, 0.2), (64, 0.5), (32, 0.5))]
    found = SearchResult("quick", Search(**search), ("cnn",), CPU, "captures", {"single": points})
    monkeypatch.setattr("pisa_capc.evidence.benchmark.search.search_protocol", lambda *_: found)
    text = pisa("bench", "select", path)[1]
    marks = {row.split()[2]: row.split()[6:] for row in text.splitlines() if row.startswith("  single")}
    assert marks == {"8": [], "64": ["chosen,", "tied"], "32": ["tied"]}
    tie = "as the protocol has it; tied with embedding 32, the first in the grid is chosen"
    assert f"single: embedding 64 ({tie})" in text
    assert json.loads(pisa("bench", "select", path, "--json")[1])["single"] == {
        "chosen": {"embedding": 64},
        "mean": 0.5,
    }


def test_protocols_have_the_values_that_their_searches_chose() -> None:
    for path in (ROOT / "results" / "records").glob("*-search.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        settings = {row.method: row.settings for row in read_protocol(record["protocol"]).methods}
        for method, found in record["methods"].items():
            assert {key: settings[method][key] for key in found["chosen"]} == found["chosen"], method
