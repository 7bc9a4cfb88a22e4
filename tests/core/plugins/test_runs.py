"""Runs of parts that plugins bring: named in model.json and records, refused where the plugin is absent or another."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from pisa_capc.core import plugins
from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.core.registry import forget
from pisa_capc.evidence.benchmark.plan import plan
from pisa_capc.evidence.benchmark.records import read_records, record_name, sort_out
from pisa_capc.evidence.benchmark.results import load_results
from pisa_capc.evidence.benchmark.run import Options, Summary, dry_run, run_protocol
from pisa_capc.evidence.benchmark.tables import make_tables
from pisa_capc.model.inference import load_model
from pisa_capc.model.methods import plugins_used
from pisa_capc.model.training import fit
from tests.core.plugins.tools import write_encoder
from tests.evidence.benchmark.tools import CPU, QUICK, made_up, quick
from tests.model.training.tools import FAST, Killed, kill_in_epoch
from tests.problems import runs, small_frames, write_small

pytestmark = pytest.mark.usefixtures("own_parts")
MINE = FAST | {"encoder": "mine", "method": "single"}


def unload() -> None:
    for origin in plugins._files.values():
        forget(origin)
    plugins._files.clear()


def test_a_model_names_the_plugins_of_its_parts_and_of_no_others(tmp_path: Path) -> None:
    origin = plugins.load_file(write_encoder(tmp_path))
    these = runs(small_frames())
    fit(these, **MINE, out=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "model.json").read_text(encoding="utf-8"))
    assert kept["plugins"] == [{"name": "mine", "version": "1.2", "digest": origin.digest}]
    [own] = fit(these, **FAST, out=tmp_path / "own")
    assert "plugins" not in own.run.to_json()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(tmp_path / "run")
        load_model(tmp_path / "own")


def test_a_model_whose_plugin_is_absent_says_which_and_how_to_give_it(tmp_path: Path) -> None:
    origin = plugins.load_file(write_encoder(tmp_path))
    fit(runs(small_frames()), **MINE, out=tmp_path / "run")
    unload()
    with pytest.raises(ModelError) as found:
        load_model(tmp_path / "run")
    assert str(found.value) == (
        f"{tmp_path / 'run' / 'model.json'}: its encoder 'mine' is not known here. It was trained with mine 1.2 "
        f"(SHA-256 {origin.digest[:12]}…). Give the plugin with --plugin FILE, or install it."
    )
    with pytest.raises(ConfigError, match="unknown encoder 'mine'"):
        fit(runs(small_frames()), **MINE, out=tmp_path / "run")


def test_another_version_of_the_plugin_infers_with_a_warning_and_never_counts_as_trained(tmp_path: Path) -> None:
    these = runs(small_frames())
    before = plugins.load_file(write_encoder(tmp_path))
    fit(these, **MINE, out=tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        kill_in_epoch(patch, 1)
        with pytest.raises(Killed):
            fit(these, **MINE, out=tmp_path / "unfinished")
    after = plugins.load_file(write_encoder(tmp_path, "# changed"))
    with pytest.warns(
        UserWarning, match=rf"{before.digest[:12]}…\), used with mine 1\.2 \(SHA-256 {after.digest[:12]}"
    ):
        load_model(tmp_path / "run")
    with pytest.warns(UserWarning, match="used with"), pytest.raises(ModelError, match="already holds another model"):
        fit(these, **MINE, out=tmp_path / "run")
    with pytest.raises(ModelError, match="holds the checkpoint of another training"):
        fit(these, **MINE, out=tmp_path / "unfinished")


def test_a_part_of_the_same_name_that_is_of_no_plugin_does_not_count_as_trained(tmp_path: Path) -> None:
    from torch import nn

    from pisa_capc.model.encoders import register_encoder

    these = runs(small_frames())
    plugins.load_file(write_encoder(tmp_path))
    fit(these, **MINE, out=tmp_path / "run")
    unload()
    register_encoder("mine", ordinary=True)(lambda channels: nn.Conv1d(channels, 32, 5, padding=2))
    with (
        pytest.warns(UserWarning, match="used with none"),
        pytest.raises(ModelError, match=r"plugins: \[\{.* None here"),
    ):
        fit(these, **MINE, out=tmp_path / "run")


def test_records_are_named_by_the_plugins_they_use(tmp_path: Path) -> None:
    changes = {**QUICK, "encoders": ["cnn", "mine"], "seeds": [1]}
    without = {run.encoder: run for run in plan(quick(tmp_path, changes=changes))}
    plugins.load_file(write_encoder(tmp_path))
    one = {run.encoder: run for run in plan(quick(tmp_path, changes=changes))}
    plugins.load_file(write_encoder(tmp_path, "# changed"))
    other = {run.encoder: run for run in plan(quick(tmp_path, changes=changes))}
    names = [{encoder: record_name(run, CPU) for encoder, run in d.items()} for d in (without, one, other)]
    assert len({found["cnn"] for found in names}) == 1  # what uses none is named as ever
    assert len({found["mine"] for found in names}) == 3
    assert "plugins" not in one["cnn"].to_json()
    assert one["mine"].to_json()["plugins"] == list(one["mine"].plugins)
    assert one["mine"].training_json() != other["mine"].training_json()


def test_a_record_of_a_plugin_that_is_absent_is_not_counted_and_says_why(tmp_path: Path) -> None:
    changes = {**QUICK, "encoders": ["mine"], "seeds": [1]}
    plugins.load_file(write_encoder(tmp_path))
    record = made_up(plan(quick(tmp_path, changes=changes))[0], {"direct": 0.5})
    unload()
    _, [(_, why)] = sort_out([record], plan(quick(tmp_path, changes=changes)))
    assert why.startswith("made with mine 1.2 (SHA-256 ")
    assert why.endswith("which is not here: --plugin FILE gives it")
    plugins.load_file(write_encoder(tmp_path, "# changed"))
    _, [(_, why)] = sort_out([record], plan(quick(tmp_path, changes=changes)))
    assert ", now mine 1.2 (SHA-256 " in why


def test_a_protocol_with_a_plugin_is_run_recorded_and_skipped_like_any_other(tmp_path: Path) -> None:
    data = write_small(tmp_path / "data")
    protocol = quick(tmp_path, changes={**QUICK, "encoders": ["mine"], "seeds": [1]})
    options = Options(data, tmp_path / "results", tmp_path / "work", device="cpu", only=("method=single",))
    with pytest.raises(ConfigError, match="unknown encoder 'mine'"):
        dry_run(protocol, options)
    plugins.load_file(write_encoder(tmp_path))
    assert run_protocol(protocol, options) == Summary(1, 0, 1)
    [record] = read_records(tmp_path / "results" / "quick")
    assert list(record.run.plugins) == plugins_used("single", "mine")
    assert run_protocol(protocol, options) == Summary(1, 1, 0)
    results = load_results(protocol, tmp_path / "results" / "quick")
    tables = make_tables(protocol, results)
    assert any("Mine" in map(str, row) for table in tables for row in table.rows)
    plugins.load_file(write_encoder(tmp_path, "# changed"))
    assert len(dry_run(protocol, options).missing) == 1
    unload()
    with pytest.raises(DataError, match="holds no records of quick"):
        load_results(protocol, tmp_path / "results" / "quick")
