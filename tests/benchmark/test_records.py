"""What names a run, what is kept of it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pisa_capc import revisions
from pisa_capc.benchmark.lock import only_runner
from pisa_capc.benchmark.plan import Conditions, jobs_of, plan, select
from pisa_capc.benchmark.records import read_records, record_name, sort_out
from pisa_capc.errors import ConfigError, DataError
from tests.benchmark.tools import CPU, QUICK, made_up, quick


def test_everything_that_determines_a_run_is_in_its_name(tmp_path: Path) -> None:
    run = plan(quick(tmp_path))[-1]
    changed = [
        replace(run, seed=9),
        replace(run, split_seed=9),
        replace(run, encoder="tcn"),
        replace(run, target=("E2",)),
        replace(run, training={**run.training, "epochs": 2}),
        replace(run, settings={**run.settings, "model": {**run.settings["model"], "beta": 0.5}}),
        replace(run, calibration={"paper": {**run.calibration["paper"], "top": 3}}),
        replace(run, split={**run.split, "few_shot": 3}),
        replace(run, code={**run.code, "training": 2}),
    ]
    names = {record_name(other.to_json(), CPU) for other in (run, *changed)}
    conditions = [Conditions("f", "cpu", "float32"), replace(CPU, device="cuda"), replace(CPU, precision="bfloat16")]
    names |= {record_name(run.to_json(), other) for other in conditions}
    assert len(names) == 1 + len(changed) + len(conditions)


def test_one_and_one_point_zero_are_the_same_setting(tmp_path: Path) -> None:
    run = plan(quick(tmp_path))[0]
    whole = replace(run, training={**run.training, "weight_decay": 1})
    pointed = replace(run, training={**run.training, "weight_decay": 1.0})
    assert record_name(whole.to_json(), CPU) == record_name(pointed.to_json(), CPU)


def test_a_calibration_does_not_change_what_is_trained(tmp_path: Path) -> None:
    run = plan(quick(tmp_path))[-1]
    assert replace(run, calibration={}).training_json() == run.training_json()


def test_runs_can_be_chosen(tmp_path: Path) -> None:
    runs = plan(quick(tmp_path))
    assert {(r.method, r.seed) for r in select(runs, ["method=pisa", "seed=1,2"])} == {("pisa", 1), ("pisa", 2)}
    with pytest.raises(ConfigError, match=r"unknown key 'metod'\. Did you mean 'method'"):
        select(runs, ["metod=pisa"])
    with pytest.raises(ConfigError, match=r"--only 'encoder': expected KEY=VALUE\[,VALUE…\], as encoder=cnn,tcn"):
        select(runs, ["encoder"])
    with pytest.raises(ConfigError, match=r"unknown method 'pissa'\. Did you mean 'pisa'"):
        select(runs, ["method=pissa"])


def test_seeds_of_a_cell_are_one_job_where_they_are_stacked(tmp_path: Path) -> None:
    runs = plan(quick(tmp_path))
    assert [[r.seed for r in job] for job in jobs_of(runs, stacked=True)] == [[1, 2], [1, 2]]
    assert [[r.seed for r in job] for job in jobs_of(runs, stacked=False)] == [[1], [2], [1], [2]]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = made_up(plan(quick(tmp_path))[0], {"direct": 0.5})
    record.write(tmp_path / "records")
    assert read_records(tmp_path / "records") == [record]
    assert read_records(tmp_path / "nowhere") == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 1, "conditions": 3}'])
def test_a_corrupt_record_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "0123.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"0123\.json: not a whole record .* Remove the file"):
        read_records(tmp_path)


def test_a_changed_record_is_named(tmp_path: Path) -> None:
    record = made_up(plan(quick(tmp_path))[0], {"direct": 0.5})
    record.write(tmp_path / "records")
    path = record.path(tmp_path / "records")
    path.write_text(path.read_text(encoding="utf-8").replace('"seed": 1', '"seed": 7'), encoding="utf-8")
    with pytest.raises(DataError, match="it was changed or renamed"):
        read_records(tmp_path / "records")


def test_records_of_other_code_and_settings_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = quick(tmp_path)
    old = made_up(plan(protocol)[0], {"direct": 0.5})
    monkeypatch.setattr(revisions, "TRAINING", revisions.TRAINING + 1)
    new = made_up(plan(protocol)[0], {"direct": 0.5})
    current, others = sort_out([old, new], plan(protocol))
    assert (current, others) == ([new], [(old, "code.training is 1, now 2")])
    longer = plan(quick(tmp_path, changes={**QUICK, "training": {**QUICK["training"], "epochs": 5}}))
    assert sort_out([new], longer) == ([], [(new, "training.epochs is 1, now 5")])


def test_a_folder_has_one_runner(tmp_path: Path) -> None:
    with only_runner(tmp_path), pytest.raises(DataError, match="another runner is at work here"), only_runner(tmp_path):
        pass
    with only_runner(tmp_path):
        pass
