"""Calibrations and deployments as axes of a protocol: records, resuming, tables and pictures as of any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.evidence.benchmark.job import Job
from pisa_capc.evidence.benchmark.plan import plan
from pisa_capc.evidence.benchmark.protocols import Protocol, read_protocol
from pisa_capc.evidence.benchmark.records import read_records, record_name
from pisa_capc.evidence.benchmark.render import as_csv
from pisa_capc.evidence.benchmark.results import Mean, deployed, load_results
from pisa_capc.evidence.benchmark.run import Options, Summary, run_protocol
from pisa_capc.evidence.benchmark.tables import flat_rows, make_tables
from pisa_capc.model.training.trainer import Trainer
from tests.evidence.benchmark.tools import CPU, PROTOCOLS, QUICK, all_runs, made_up, quick
from tests.problems import write_small

FROZEN = {"name": "frozen", "scored": "second-half", "frozen": True, "calibration": ["paper", "safe"]}
DEPLOYMENTS: list[dict[str, Any]] = [
    {"name": "balanced"},
    {"name": "missing", "frames": 32, "missing": 0.3},
    {"name": "unknown-30", "frames": 32, "unknown": 0.3},
    FROZEN,
]
STAGES = ["paper", "safe", "lame"]


def settings(**changes: Any) -> dict[str, Any]:
    """The calibration study on a set of a few frames."""
    study = yaml.safe_load((PROTOCOLS / "calibration-study.yaml").read_text(encoding="utf-8"))
    return {
        **QUICK,
        "dataset": {
            "name": "small",
            "simulate": {**study["dataset"]["simulate"], "scale": 0.02},
            "strangers": {"devices": 2, "scale": 0.02},
        },
        "seeds": [1],
        "training": {"epochs": 1, "batch": 64, "samples": 32},
        "methods": [{**study["methods"][0], "calibration": STAGES}],
        "deployments": DEPLOYMENTS,
        **changes,
    }


def study(folder: Path, **changes: Any) -> Protocol:
    return quick(folder, "calibration-study", settings(**changes))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the work and the records of the study."""
    folder = tmp_path_factory.mktemp("study")
    assert run_protocol(study(folder), options(folder)) == Summary(1, 0, 1)
    return folder


def options(folder: Path, **others: Any) -> Options:
    return Options(**{"results": folder / "results", "work": folder / "work", "device": "cpu", **others})


def test_every_stage_of_every_deployment_is_in_the_record(made: Path) -> None:
    [record] = read_records(made / "results" / "quick")
    made_today = ("direct", "paper", "lame")  # without the safe stage of earlier versions
    everywhere = [f"{stage}@{place}" for place in ("missing", "unknown-30") for stage in made_today]
    assert sorted(record.stages) == sorted([*made_today, *everywhere, "direct@frozen", "paper@frozen"])
    assert set(record.stages["paper@missing"]) == {"macro_f1"}  # small
    assert "confusion" in record.stages["lame"]
    assert record.run.strangers == {"devices": 2, "scale": 0.02}
    assert record.run.deployments[1] == {"name": "missing", "frames": 32, "missing": 0.3}
    assert record.run.code["deployments"] == 1
    assert len(record.strangers) == 16
    assert run_protocol(study(made), options(made)) == Summary(1, 1, 0)


def test_the_training_is_that_of_the_same_protocol_without_deployments(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "train", lambda *_: pytest.fail("trained again"))
    base = {key: value for key, value in settings().items() if key not in ("deployments", "methods")}
    plain = quick(tmp_path, "wifi-sim", base)
    chosen = options(made, results=tmp_path / "plain", only=("method=pisa",), trained_on="cpu")
    assert run_protocol(plain, chosen).recorded == 1
    [record] = read_records(tmp_path / "plain" / "quick")
    [whole] = read_records(made / "results" / "quick")
    assert [whole.stages[stage] for stage in record.stages] == list(record.stages.values())
    assert run_protocol(study(tmp_path), options(made, results=tmp_path / "again", trained_on="cpu")).recorded == 1
    [again] = read_records(tmp_path / "again" / "quick")
    assert again.stages == whole.stages


def test_other_deployments_and_another_order_are_another_run(tmp_path: Path) -> None:
    [run] = plan(study(tmp_path))
    swapped = [DEPLOYMENTS[0], DEPLOYMENTS[2], DEPLOYMENTS[1], FROZEN]
    larger = [*DEPLOYMENTS[:1], {**DEPLOYMENTS[1], "frames": 64}, *DEPLOYMENTS[2:]]
    dataset = {**settings()["dataset"], "strangers": {"devices": 3, "scale": 0.02}}
    changed = [
        *(study(tmp_path, deployments=listed) for listed in (swapped, larger, DEPLOYMENTS[:3])),
        study(tmp_path, dataset=dataset),
    ]
    others = [plan(protocol)[0] for protocol in changed]
    assert len({record_name(one, CPU) for one in (run, *others)}) == 1 + len(others)
    assert {digest_of_training(one, tmp_path) for one in others} == {digest_of_training(run, tmp_path)}
    [plain] = plan(study(tmp_path, deployments=[]))
    assert {"deployments", "strangers"}.isdisjoint(plain.to_json())


def digest_of_training(run: Any, folder: Path) -> str:
    return Job((run,), CPU, folder, "", "cpu", folder).folder.name


def test_a_given_simulated_set_has_its_strangers_and_recordings_have_none(made: Path, tmp_path: Path) -> None:
    [data] = [path for path in (made / "work" / "data").iterdir() if path.is_dir() and "strangers" not in path.name]
    chosen = options(made, results=tmp_path / "given", data=data, trained_on="cpu")
    assert run_protocol(study(tmp_path), chosen).recorded == 1
    [given], [before] = (read_records(folder / "quick") for folder in (tmp_path / "given", made / "results"))
    assert (given.stages, given.strangers) == (before.stages, before.strangers)
    recorded = options(tmp_path, data=write_small(tmp_path / "recorded"))
    with pytest.raises(ConfigError, match=r"recorded: was not simulated in this form, so further radios"):
        run_protocol(study(tmp_path), recorded)
    assert not (tmp_path / "results").exists()


def test_senseless_lists_of_deployments_are_refused(tmp_path: Path) -> None:
    def refused(message: str, **changes: Any) -> None:
        with pytest.raises(ConfigError, match=message):
            study(tmp_path, **changes)

    first = r"expected the captures as they are first, as \{name: balanced\}, and only there"
    refused(r"deployments\.missing: " + first, deployments=DEPLOYMENTS[1:])
    refused(r"deployments\.again: " + first, deployments=[*DEPLOYMENTS, {"name": "again"}])
    refused(r"deployments\.frozen: more than once", deployments=[*DEPLOYMENTS, FROZEN])
    refused("unknown setting 'dirichlett'. Did you mean 'dirichlet'", deployments=[{"name": "a", "dirichlett": 1.0}])
    mistaken = {**FROZEN, "calibration": ["saef"]}
    refused("unknown calibration 'saef'. Did you mean 'safe'", deployments=[{"name": "balanced"}, mistaken])
    dataset = {**settings()["dataset"], "strangers": None}
    refused(r"deployments\.unknown-30: unknown devices need dataset\.strangers", dataset=dataset)
    with pytest.raises(ConfigError, match="lame cannot be frozen"):
        run_protocol(
            study(tmp_path, deployments=[{"name": "balanced"}, {**FROZEN, "calibration": []}]), options(tmp_path)
        )


def test_tables_have_a_row_for_each_deployment(tmp_path: Path) -> None:
    protocol = recorded_study(tmp_path)
    results = load_results(protocol, tmp_path / "quick")
    [table] = make_tables(protocol, results)
    named = ["U-CAPC" if stage == "paper" else "U-CAPC, safe" if stage == "safe" else stage for stage in STAGES]
    assert table.headings == ("Deployment", "direct", *named)
    assert [row[0] for row in table.rows] == ["balanced", "missing", "unknown-30", "frozen"]
    assert table.rows[1][1:3] == [pytest.approx(Mean(0.5, None)), pytest.approx(Mean(0.45, None))]
    assert table.rows[3][4] is None  # lame is not scored there
    assert "mean of 4 runs with CNN, TCN" in table.note
    [found] = deployed(protocol, results, results.places()[0])
    missing = protocol.deployments[1]
    assert found.gain(missing, "paper", "cnn") == pytest.approx(-0.1)
    assert found.worst(missing, "paper") == (pytest.approx(-0.1), "cnn")
    text = as_csv(flat_rows(results))
    assert "pisa,full,cnn,paper@missing,0.4," in text


def recorded_study(folder: Path) -> Protocol:
    """Two encoders, two runs each; U-CAPC loses 0.1 of the CNN where devices are missing."""
    protocol = study(folder, encoders=["cnn", "tcn"], seeds=[1, 2])
    for run in all_runs(protocol):
        scores = dict.fromkeys(run.stages, 0.5)
        scores["paper@missing"] = 0.4 if run.encoder == "cnn" else 0.5
        made_up(run, scores).write(folder / "quick")
    return protocol


def test_a_record_without_a_deployment_of_its_run_is_refused(tmp_path: Path) -> None:
    run = plan(study(tmp_path))[0]
    assert run.stages[:4] == ("direct", *STAGES)
    record = made_up(run, dict.fromkeys(run.stages, 0.5))
    short = replace(record, stages={"direct": record.stages["direct"]})
    short.write(tmp_path / "short")
    with pytest.raises(DataError, match="stages: expected direct, lame, paper, safe, direct@missing"):
        read_records(tmp_path / "short")


def test_the_commands(pisa: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    recorded_study(tmp_path)
    chosen = (tmp_path / "quick.yaml", "--results", tmp_path)
    code, text, _ = pisa("bench", "tables", *chosen)
    assert code == 0
    assert "| missing | 0.5000 | 0.4500 | 0.5000 | 0.5000 |" in text
    code, text, _ = pisa("bench", "figures", *chosen, "--as", "svg", "--out", tmp_path / "figures")
    assert (code, text.split()) == (0, [str(tmp_path / "figures" / "deployments-1-pisa.svg")])
    picture = (tmp_path / "figures" / "deployments-1-pisa.svg").read_text(encoding="utf-8")
    assert all(
        words in picture for words in ("U-CAPC as published", "safe preset", "30 % unknown devices", "-.10", "TCN")
    )
    assert pisa("report", *chosen, "--out", tmp_path / "page.html")[0] == 0


def test_lora_and_wifi_share_the_protocol() -> None:
    protocol = read_protocol("calibration-study")
    assert protocol.dataset.strangers is not None
    wifi, lora = (
        [run.training_json() for run in plan(read_protocol(name)) if run.method == "pisa"]
        for name in ("wifi-sim", "lora-sim")
    )
    assert [run.training_json() for run in plan(protocol)] == wifi == lora
