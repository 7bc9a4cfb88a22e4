"""What names a run, what is kept of it, and what is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pisa_capc.core import revisions
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.scores import score
from pisa_capc.evidence.benchmark.plan import Conditions, as_first_named, jobs_of, plan, select
from pisa_capc.evidence.benchmark.protocols import protocol_files, read_protocol
from pisa_capc.evidence.benchmark.records import by_training, read_records, record_name, sort_out
from pisa_capc.evidence.benchmark.results import load_results
from pisa_capc.evidence.benchmark.tables import make_tables
from tests.evidence.benchmark.tools import CPU, QUICK, ROOT, made_up, quick


def test_everything_that_determines_a_run_is_in_its_name(tmp_path: Path) -> None:
    run = plan(quick(tmp_path))[-1]
    changed = [
        replace(run, seed=9),
        replace(run, split_seed=9),
        replace(run, encoder="tcn"),
        replace(run, target=("E2",)),
        replace(run, training=replace(run.training, epochs=2)),
        replace(run, settings={**run.settings, "model": {**run.settings["model"], "beta": 0.5}}),
        replace(run, calibration={"paper": {**run.calibration["paper"], "top": 3}}),
        replace(run, split=replace(run.split, few_shot=3)),
        replace(run, code={**run.code, "training": 2}),
    ]
    names = {record_name(other, CPU) for other in (run, *changed)}
    conditions = [Conditions("f", "cpu", "float32"), replace(CPU, device="cuda"), replace(CPU, precision="bfloat16")]
    names |= {record_name(run, other) for other in conditions}
    assert len(names) == 1 + len(changed) + len(conditions)


def test_one_and_one_point_zero_are_the_same_setting(tmp_path: Path) -> None:
    run = plan(quick(tmp_path))[0]
    whole = replace(run, training=replace(run.training, weight_decay=1))
    pointed = replace(run, training=replace(run.training, weight_decay=1.0))
    assert record_name(whole, CPU) == record_name(pointed, CPU)


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


def test_a_record_says_where_the_same_training_ended_elsewhere(tmp_path: Path) -> None:
    """Of another protocol, whose calibrations are others; what differs in rounding alone has repeated."""
    one, other = plan(quick(tmp_path))[:2]
    record = made_up(one, {"direct": 0.5})
    known = [made_up(replace(one, calibration={}), {"direct": f1}) for f1 in (0.5, 0.9)]
    for i, before in enumerate((*known, made_up(other, {"direct": 0.1}))):
        before.write(tmp_path / "results" / str(i))
    found = by_training(sorted((tmp_path / "results").iterdir()))
    assert record.beside(found[record.training]).repeats == (0.5, 0.9)
    assert record.beside(known[:1]) == record
    new = replace(record.beside(known), made={"commit": "0", "time": "2026-01-01T00:00:00+00:00"})
    new.write(tmp_path / "records")
    assert read_records(tmp_path / "records") == [new]


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


def test_a_changed_score_is_named_with_both_digests(tmp_path: Path) -> None:
    path = written(tmp_path)
    rewrite(path, lambda values: values["stages"]["direct"].update(macro_auroc=0.9))
    with pytest.raises(DataError, match=r"its content has the digest \w{16} and says \w{16}; it was changed\. Remove"):
        read_records(path.parent)


def test_a_record_of_an_earlier_version_is_read_with_a_warning(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = read_records(path.parent)
    rewrite(path, lambda values: values.pop("digest"))
    with pytest.warns(UserWarning, match="1 of 1 records: without a digest"):
        assert read_records(path.parent) == before


def test_every_record_of_this_repository_has_a_digest() -> None:
    found = list((ROOT / "results" / "records").glob("*/*.json"))
    assert found
    assert [path for path in found if '"digest": "' not in path.read_text(encoding="utf-8")] == []


SENSELESS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "stages.direct: expected scores by name, found 'x'": lambda v: v["stages"].update(direct="x"),
    "stages: expected direct, paper, safe, found direct, safe": lambda v: v["stages"].pop("paper"),
    "stages: expected direct, paper, safe, found direct, paper, safe, other": lambda v: v["stages"].update(other={}),
    "not a whole record (KeyError: 'macro_f1')": lambda v: v["stages"].update(direct={}),
    "stages.direct.macro_f1: expected a number from 0 to 1, found 1.5": lambda v: direct(v, macro_f1=1.5),
    "stages.direct.macro_f1: expected a number from 0 to 1, found nan": lambda v: direct(v, macro_f1=float("nan")),
    "stages.direct.macro_f1: expected a number from 0 to 1, found None": lambda v: direct(v, macro_f1=None),
    "stages.direct.macro_auroc: expected a number from 0 to 1, found '1'": lambda v: direct(v, macro_auroc="1"),
    "stages.direct.eer: expected a number from 0 to 1, found 2": lambda v: direct(v, eer=2),
    "stages.direct.cllr: expected a number from 0 on, found -1": lambda v: direct(v, cllr=-1),
    "stages.direct: macro_f1 is 0.7; its confusion gives": lambda v: direct(v, macro_f1=0.7),
    "stages.direct: accuracy is 0.1; its confusion gives 0.75": lambda v: direct(v, accuracy=0.1),
    "stages.direct: per_device.D2 is 0.1; its confusion gives": lambda v: v["stages"]["direct"]["per_device"].update(
        D2=0.1
    ),
    "stages.direct: frames of per_capture is 5; its confusion gives 4": lambda v: v["stages"]["direct"]["per_capture"][
        "E1/L1"
    ].update(frames=5),
    "stages.direct.confusion: expected counts of 2 × 2 devices": lambda v: direct(v, confusion=[[1, 2]]),
    "stages.safe.guard.E1/L1.price: expected a number from 0 on, found nan": lambda v: v["stages"]["safe"]["guard"][
        "E1/L1"
    ].update(price=float("nan")),
    "validation_f1: expected a number from 0 to 1, found -0.1": lambda v: v.update(validation_f1=-0.1),
    "best_epoch: expected a number from 1 to 1, found 2": lambda v: v.update(best_epoch=2),
    "seconds.training: expected a number from 0 on, found -1": lambda v: v["seconds"].update(training=-1),
    "machine: expected a mapping, found 'here'": lambda v: v.update(machine="here"),
    "dataset: expected a str, found 3": lambda v: v.update(dataset=3),
    "written with schema 2; this version reads 1": lambda v: v.update(schema=2),
}


def direct(values: dict[str, Any], **scores: Any) -> None:
    values["stages"]["direct"].update(scores)


def written(folder: Path) -> Path:
    """A whole record of PISA, with the confusion of four frames and a guard's decision."""
    run = plan(quick(folder))[-1]
    scores = score([[1, 0], [1, 0], [0, 1], [1, 0]], np.array([0, 0, 1, 1]), ("D1", "D2"), np.array(["E1/L1"] * 4))
    stages = {stage: scores.to_json() for stage in ("direct", "paper", "safe")}
    stages["safe"]["guard"] = {"E1/L1": {"level": "mild", "price": 0.25}}
    record = replace(made_up(run, {}), stages=stages)
    record.write(folder / "records")
    return record.path(folder / "records")


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


@pytest.mark.parametrize("message", SENSELESS)
def test_what_no_run_can_have_given_is_refused_where_there_is_no_digest(tmp_path: Path, message: str) -> None:
    path = written(tmp_path)
    rewrite(path, lambda values: (values.pop("digest"), SENSELESS[message](values)))
    with pytest.raises(DataError, match=re.escape(message)) as error:
        read_records(path.parent)
    assert str(error.value).startswith(f"{path}: ")
    assert str(error.value).endswith("Remove the file; `pisa bench run` makes the record again.")


def test_all_corrupt_records_are_named_at_once(tmp_path: Path) -> None:
    path = written(tmp_path)
    for name in ("00", "11"):
        (path.parent / f"{name}.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"2 of 3 records cannot be used\. Remove these files") as error:
        read_records(path.parent)
    assert [line.split(": ")[0] for line in str(error.value).splitlines()[1:]] == [
        str(path.parent / f"{name}.json") for name in ("00", "11")
    ]


def test_the_committed_records_are_whole_and_each_is_of_its_protocol() -> None:
    """Whatever changes in how protocols are written, the names of the records stay."""
    folders = [folder for folder in (ROOT / "results/records").iterdir() if folder.is_dir()]
    committed = {folder.name: read_records(folder) for folder in folders}
    assert all(committed.values())
    counts = {}
    for name in committed.keys() & protocol_files():
        records, others = sort_out(committed[name], plan(read_protocol(name)))
        assert not others
        counts |= Counter((name, record.dataset) for record in records)
    both = {"calibration-ablation": 9, "calibration-study": 63, "component-ablation": 63, "external-baselines": 153}
    expected = {(name, dataset): n for name, n in both.items() for dataset in ("wifi-sim", "lora-sim")}
    expected |= {("wifi-sim", "wifi-sim"): 126, ("lora-sim", "lora-sim"): 126, ("wifi-sim-float32", "wifi-sim"): 9}
    assert expected.items() <= counts.items()


def test_calibrations_are_named_as_they_first_were() -> None:
    assert as_first_named({"method": "ucapc", "top": 3}) == {"top": 3}
    assert as_first_named({"method": "safe", "group": "capture"}) == {"guard": True, "group": "capture"}
    lame = {"method": "lame", "group": "none"}
    assert as_first_named(lame) == lame
    for recorded in ({"top": 3}, {"guard": True, "group": "capture"}):
        assert as_first_named(recorded) == recorded


def test_records_of_other_code_and_settings_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = quick(tmp_path)
    old = made_up(plan(protocol)[0], {"direct": 0.5})
    monkeypatch.setattr(revisions, "TRAINING", revisions.TRAINING + 1)
    new = made_up(plan(protocol)[0], {"direct": 0.5})
    current, others = sort_out([old, new], plan(protocol))
    assert (current, others) == ([new], [(old, "code.training is 1, now 2")])
    others = sort_out([old], plan(quick(tmp_path, changes={**QUICK, "encoders": ["tcn", "cnn"]})))[1]
    assert others == [(old, "code.training is 1, now 2")]  # not the same code with another encoder
    longer = plan(quick(tmp_path, changes={**QUICK, "training": {**QUICK["training"], "epochs": 5}}))
    assert sort_out([new], longer) == ([], [(new, "training.epochs is 1, now 5")])


def test_records_of_earlier_code_stand_in_by_name_until_there_are_newer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seeds_of(method: str) -> list[int]:
        return [seed for key, runs in found.runs.items() if key.method == method for _, seed in runs]

    stages = {"single": {"direct": 0.2}, "pisa": {"direct": 0.5, "paper": 0.6, "safe": 0.6}}
    protocol = quick(tmp_path)
    for raised in (0, 1, 3):  # PISA is changed, and of its second version and a later one only one seed is recorded
        monkeypatch.setitem(revisions.WITH_ENCODER, ("pisa", "cnn"), raised)
        for run in plan(protocol):
            if (run.method, run.seed) != ("pisa", 2) or raised == 0:
                made_up(run, stages[run.method]).write(tmp_path / "records")
    monkeypatch.setitem(revisions.WITH_ENCODER, ("pisa", "cnn"), 2)
    found = load_results(protocol, tmp_path / "records")
    assert (seeds_of("single"), seeds_of("pisa")) == ([1, 2], [1])  # versions are not mixed
    remark = "Of earlier code, until `pisa bench run` makes them again: pisa cnn (code.method is 2, now 3)."
    assert found.remark() == remark
    assert all(table.note.endswith(remark) for table in make_tables(protocol, found))
    assert sorted(why for _, why in found.others) == [*["code.method is 1, now 3"] * 2, "code.method is 4, now 3"]

    made_up(plan(protocol)[-1], stages["pisa"]).write(tmp_path / "records")
    found = load_results(protocol, tmp_path / "records")
    assert (seeds_of("single"), seeds_of("pisa")) == ([1, 2], [2])
    assert found.remark() == ""
