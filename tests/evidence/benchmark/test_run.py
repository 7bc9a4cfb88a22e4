"""Running a protocol: records, skipping, failing, being killed, and the commands."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import load
from pisa_capc.evidence.benchmark import job as jobs
from pisa_capc.evidence.benchmark.plan import Conditions, plan, select
from pisa_capc.evidence.benchmark.protocols import DataSource, Simulated
from pisa_capc.evidence.benchmark.records import read_records
from pisa_capc.evidence.benchmark.run import Options, Summary, dry_run, estimate, how_long, run_protocol
from pisa_capc.model.training.trainer import Trainer
from pisa_capc.signal.formats.transfer import export_dataset
from tests.evidence.benchmark.tools import QUICK, quick, write_protocol
from tests.problems import write_small


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("data") / "small")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the work and the records of the protocol, not to be written to."""
    folder = tmp_path_factory.mktemp("whole")
    assert run_protocol(quick(folder), options(folder, data)) == Summary(4, 0, 4)
    return folder


@pytest.fixture
def done(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(whole, tmp_path / "done"))


def options(folder: Path, data: Path, **others: Any) -> Options:
    return Options(data=data, results=folder / "results", work=folder / "work", device="cpu", **others)


def scores(folder: Path) -> dict[str, tuple[float, dict[str, Any]]]:
    """What the records in a folder say, without times."""
    return {r.name: (r.validation_f1, r.stages) for r in read_records(folder / "results" / "quick")}


def test_a_protocol_becomes_records_and_a_second_start_does_nothing(data: Path, tmp_path: Path, done: Path) -> None:
    protocol, chosen = quick(tmp_path), options(done, data)
    assert len(dry_run(protocol, options(tmp_path, data)).missing) == 4
    records = read_records(done / "results" / "quick")
    assert {(r.run.method, r.run.seed, *r.stages) for r in records} == {
        ("single", 1, "direct"),
        ("single", 2, "direct"),
        ("pisa", 1, "direct", "paper"),
        ("pisa", 2, "direct", "paper"),
    }
    assert {r.conditions for r in records} == {Conditions(records[0].conditions.dataset, "cpu", "float32")}
    assert all(0 <= r.stages["direct"]["macro_f1"] <= 1 and r.seconds["training"] > 0 for r in records)
    before = {path: path.stat().st_mtime_ns for path in (done / "results").rglob("*.json")}
    assert len(before) == 4
    assert run_protocol(protocol, chosen) == Summary(4, 4, 0)
    assert dry_run(protocol, chosen).missing == []
    assert before == {path: path.stat().st_mtime_ns for path in (done / "results").rglob("*.json")}


def test_records_of_another_device_are_named_and_not_taken(data: Path, tmp_path: Path) -> None:
    protocol, chosen = quick(tmp_path), options(tmp_path, data, only=("method=single",))
    run_protocol(protocol, chosen)
    for record in read_records(tmp_path / "results" / "quick"):
        record.path(tmp_path / "results" / "quick").unlink()
        replace(record, conditions=replace(record.conditions, device="cuda", precision="bfloat16")).write(
            tmp_path / "results" / "quick"
        )
    found = dry_run(protocol, chosen)
    assert len(found.missing) == 2
    assert found.note == "Recorded already: 2 for cuda in bfloat16. Those for cpu in float32 are made besides."
    simulated = replace(protocol, dataset=DataSource("small", Simulated("wifi", scale=0.01, seed=1)))
    found = dry_run(simulated, replace(chosen, data=None, work=tmp_path / "elsewhere"))
    assert "yet to be made. Recorded already, of a set that may be the same: 2 for cuda in bfloat16." in found.note


def test_a_finished_protocol_is_known_without_torch(data: Path, tmp_path: Path) -> None:
    path = write_protocol(tmp_path)
    run_protocol(quick(tmp_path), options(tmp_path, data, only=("method=single",)))
    places = ["--data", str(data), "--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
    arguments = ["pisa", "bench", "run", str(path), *places, "--only", "method=single"]
    script = (
        f"import sys, atexit; sys.argv = {arguments}; from pisa_capc.cli import main; "
        "atexit.register(lambda: print('with torch' if 'torch' in sys.modules else 'without torch')); main()"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "all 2 runs are recorded" in found.stdout
    assert "without torch" in found.stdout


def test_a_new_calibration_does_not_train_again(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(tmp_path, data, only=("method=pisa", "seed=1"))
    run_protocol(quick(tmp_path), chosen)
    monkeypatch.setattr(Trainer, "train", lambda *_: pytest.fail("trained again"))
    changed = quick(tmp_path, changes={**QUICK, "calibration": {"paper": {"passes": 1}}})
    assert run_protocol(changed, chosen).recorded == 1


def test_a_failed_job_is_reported_and_the_others_go_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = jobs.train_and_score

    def fails_for_single(job: jobs.Job) -> Any:
        if job.runs[0].method == "single" and job.runs[0].seed == 1:
            raise RuntimeError("out of everything")
        return real(job)

    monkeypatch.setattr(jobs, "train_and_score", fails_for_single)
    chosen = options(tmp_path, data, only=("method=single",))
    found = run_protocol(quick(tmp_path), chosen)
    assert (found.recorded, len(found.failed)) == (1, 1)
    name, reason = found.failed[0]
    assert name == "single cnn, E2,E3 → E1, split 1 seed 1"
    assert "RuntimeError: out of everything" in reason
    assert len(list((tmp_path / "work").rglob("failure.txt"))) == 1
    monkeypatch.undo()
    assert run_protocol(quick(tmp_path), chosen) == Summary(2, 1, 1)


def test_a_killed_run_goes_on_and_gives_the_same_records(data: Path, tmp_path: Path, whole: Path) -> None:
    killed, path = tmp_path / "killed", write_protocol(tmp_path)
    places = ["--data", str(data), "--results", str(killed / "results"), "--work", str(killed / "work")]
    only = ("seed=1",)
    command = [sys.executable, "-m", "pisa_capc", "bench", "run", str(path), *places, "--device", "cpu"]
    command += ["--only", *only]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list((killed / "results").rglob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = len(scores(killed))
    assert there >= 1
    assert run_protocol(quick(tmp_path), options(killed, data, only=only)) == Summary(2, there, 2 - there)
    assert scores(killed).items() <= scores(whole).items()


def test_a_stack_is_recorded_whole(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisa_capc.evidence.benchmark.run.jobs_of", lambda runs, stacked: [list(runs)])
    chosen = options(tmp_path, data, only=("method=single",))
    assert run_protocol(quick(tmp_path), chosen).recorded == 2
    lost = read_records(tmp_path / "results" / "quick")[0]
    before = scores(tmp_path)
    lost.path(tmp_path / "results" / "quick").unlink()
    assert run_protocol(quick(tmp_path), chosen) == Summary(2, 1, 1)
    assert scores(tmp_path) == before


def test_a_training_is_shared_and_can_be_scored_elsewhere(data: Path, tmp_path: Path, done: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "work").rglob("model.json")}
    assert before
    changed = {**QUICK, "calibration": {"paper": {"passes": 1}}}
    again = options(done, data, trained_on="cpu")
    assert run_protocol(quick(tmp_path, changes=changed), again) == Summary(4, 2, 2)
    assert before == {path: path.stat().st_mtime_ns for path in (done / "work").rglob("model.json")}
    nowhere = Options(data=data, results=tmp_path / "new", work=tmp_path / "empty", trained_on="cuda")
    found = run_protocol(quick(tmp_path), nowhere)
    assert found.recorded == 0
    assert all("Copy the work folder of the machine that trained" in reason for _, reason in found.failed)
    with pytest.raises(ConfigError, match="expected cpu or cuda"):
        Options(trained_on="gpu")


def test_mat_files_in_the_measured_layout_give_the_same_records(tmp_path: Path) -> None:
    data = write_small(tmp_path / "data", antennas=4)
    export_dataset("mat", load(data), tmp_path / "mat")
    chosen = {"only": ("method=single", "seed=1")}
    run_protocol(quick(tmp_path), options(tmp_path / "native", data, **chosen))
    run_protocol(quick(tmp_path), options(tmp_path / "foreign", tmp_path / "mat", **chosen))
    [native], [foreign] = scores(tmp_path / "native").values(), scores(tmp_path / "foreign").values()
    assert native == foreign
    again = run_protocol(quick(tmp_path), options(tmp_path / "foreign", tmp_path / "mat", **chosen))
    assert again == Summary(1, 1, 0)


def test_a_dataset_is_asked_for_and_checked(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Point at them with --data"):
        run_protocol(quick(tmp_path), Options(results=tmp_path / "results", work=tmp_path / "work"))
    other = quick(tmp_path, changes={**QUICK, "directions": [{"source": ["E2"], "target": ["E4"]}]})
    with pytest.raises(ConfigError, match="unknown environment 'E4'"):
        run_protocol(other, options(tmp_path, data))
    longer = quick(tmp_path, changes={**QUICK, "training": {**QUICK["training"], "samples": 64}})
    with pytest.raises(ConfigError, match="64 of each frame were asked for, and the frames hold 32"):
        run_protocol(longer, options(tmp_path, data))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"neither dataset\.json nor MAT files"):
        run_protocol(quick(tmp_path), options(tmp_path, tmp_path / "empty"))
    assert not (tmp_path / "results").exists()


def test_a_simulated_set_is_checked_before_it_is_made(tmp_path: Path) -> None:
    made = {"name": "small", "simulate": {"scene": "wifi", "scale": 0.02, "seed": 1}}
    places = Options(results=tmp_path / "results", work=tmp_path / "work", device="cpu")
    elsewhere = quick(
        tmp_path, changes={**QUICK, "dataset": made, "directions": [{"source": ["E2"], "target": ["E11"]}]}
    )
    with pytest.raises(ConfigError, match=r"small: unknown environment 'E11'\. Did you mean 'E1'"):
        dry_run(elsewhere, places)
    longer = quick(tmp_path, changes={**QUICK, "dataset": made, "training": {**QUICK["training"], "samples": 5000}})
    with pytest.raises(ConfigError, match="5000 of each frame were asked for, and the frames hold 320"):
        run_protocol(longer, places)
    assert not (tmp_path / "work").exists()
    assert not (tmp_path / "results").exists()


def test_a_dry_run_says_how_long_it_will_take_by_runs_like_these(data: Path, tmp_path: Path, whole: Path) -> None:
    protocol, nowhere, chosen = quick(tmp_path), options(tmp_path, data), options(whole, data)
    assert "No run like these is recorded for cpu" in how_long(protocol, dry_run(protocol, nowhere), nowhere)
    every = replace(dry_run(protocol, chosen), missing=dry_run(protocol, chosen).chosen)
    records = read_records(whole / "results" / "quick")
    assert f"by {len(records)} recorded runs like these" in how_long(protocol, every, chosen)
    found = estimate(every.missing, records[0].dataset, "cpu", chosen.results, protocol.name)
    assert 0 < found.seconds < 600
    assert found.unknown == 0
    assert estimate(every.missing, records[0].dataset, "cuda", chosen.results, protocol.name).unknown == 4


def test_the_commands(pisa: Callable[..., tuple[int, str, str]], data: Path, tmp_path: Path) -> None:
    path, results = write_protocol(tmp_path), ("--results", tmp_path / "results")
    run = ("bench", "run", path, *results, "--data", data, "--work", tmp_path / "work", "--only", "method=single")
    assert "2 of 2 runs are to be computed" in pisa(*run, "--dry-run")[1]
    assert len(json.loads(pisa(*run, "--dry-run", "--json")[1])["missing"]) == 2
    assert "none of 4 runs is recorded" in pisa("bench", "status", path, *results)[1]
    _, text, notes = pisa(*run)
    assert "2 runs recorded, 0 were there" in text
    assert (
        "16 frames of each target recording are set aside, as in the released benchmark; of 6 recordings fewer" in notes
    )
    assert "all 2 runs are recorded" in pisa(*run)[1]
    assert "2 of 4 runs are recorded" in pisa("bench", "status", path, *results)[1]
    _, every, _ = pisa("bench", "status", "--results", Path(__file__).parents[3] / "results/records")
    assert {"component-ablation", "63/63", "measured-wifi", "0/126"} <= set(every.split())
    code, text, _ = pisa("bench", "tables", path, *results, "--as", "csv")
    assert (code, len(text.splitlines())) == (0, 2)
    [row] = json.loads(pisa("bench", "tables", path, *results, "--json")[1])
    assert f",{row['macro_f1_mean']}," in text
    assert pisa("bench", "tables", path, *results, "--out", tmp_path / "tables.md")[0] == 0
    assert "three stages" in (tmp_path / "tables.md").read_text(encoding="utf-8")
    code, _, error = pisa("bench", "tables", path, *results, "--as", "word")
    assert (code, "unknown format 'word'" in error) == (2, True)
    write_protocol(tmp_path, changes={**QUICK, "training": {**QUICK["training"], "epochs": 2}})
    _, _, notes = pisa("bench", "status", path, *results)
    assert "training.epochs is 1, now 2" in notes
    assert f"2 records are of other settings or code and are not counted. `pisa bench run {path}`" in notes


def test_a_stage_that_is_gone_is_left_out_and_what_is_recorded_of_it_counts(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol, only = quick(tmp_path, changes={**QUICK, "seeds": [1]}), ("method=pisa",)
    chosen = options(tmp_path, data, only=only)
    assert run_protocol(protocol, chosen) == Summary(1, 0, 1)
    assert "Left out, because it is gone: safe (use careful" in capsys.readouterr().err
    [record] = read_records(folder := tmp_path / "results" / "quick")
    assert list(record.stages) == ["direct", "paper"]
    assert "guard" not in record.run.code
    assert run_protocol(protocol, chosen) == Summary(1, 1, 0)
    [planned] = select(plan(protocol), only)
    assert record.run.to_json() == planned.today.to_json() != planned.to_json()
    # A record of an earlier version has the stage, and stands for the run as well.
    record.path(folder).unlink()
    earlier = replace(record, run=planned, stages={**record.stages, "safe": record.stages["paper"]})
    earlier.write(folder)
    assert run_protocol(protocol, chosen) == Summary(1, 1, 0)
    assert [found.name for found in read_records(folder)] == [earlier.name]
