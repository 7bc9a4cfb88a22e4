"""What the calibration study had found becomes records of its protocol, number by number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies.rekey_calibration_study import rekey

from pisa_capc.core.errors import DataError
from pisa_capc.evidence.benchmark.plan import plan
from pisa_capc.evidence.benchmark.protocols import Protocol, read_protocol
from pisa_capc.evidence.benchmark.records import Record, read_records
from tests.evidence.benchmark.tools import CPU, all_runs, made_up

MODEL = "cnn/split2026-seed2027"


@pytest.fixture
def protocol() -> Protocol:
    return read_protocol("calibration-study")


@pytest.fixture
def trained() -> list[Record]:
    """Two recorded runs of the models' own protocol."""
    runs = all_runs(read_protocol("wifi-sim"), method="pisa", encoder="cnn", split_seed=2026)[:2]
    return [made_up(run, {"direct": 0.5, "paper": 0.6, "safe": 0.5}, 0.7) for run in runs]


def study(protocol: Protocol, **settings: Any) -> dict[str, Any]:
    """One model as the program kept it: scores by cell and calibration, each number another."""
    names = ["direct", *protocol.calibration]
    cells = {
        deployment.name: {name: 0.01 * i + 0.001 * k for k, name in enumerate(names)}
        for i, deployment in enumerate(protocol.deployments)
        if deployment.scored == "all"
    }
    frozen = {"direct": 0.5, "paper": 0.6, "paper, not frozen": 0.61, "safe": 0.55, "safe, not frozen": 0.56}
    code = {"calibration": 1, "guard": 1}
    about = {"protocol": "wifi-sim", "dataset": CPU.dataset, "frames": None, "code": code}
    return {"settings": {**about, **settings}, "machine": {}, "models": {MODEL: {**cells, "frozen": frozen}}}


def test_a_model_becomes_a_record_of_the_protocol(protocol: Protocol, trained: list[Record], tmp_path: Path) -> None:
    given = study(protocol)
    [record] = rekey(given, trained, protocol)
    [run] = [run for run in plan(protocol) if (run.encoder, run.split_seed, run.seed) == ("cnn", 2026, 2027)]
    assert record.run == run
    assert (record.conditions, record.validation_f1, record.seconds) == (CPU, 0.7, trained[1].seconds)
    cells = given["models"][MODEL]
    assert record.stages["lame"]["macro_f1"] == cells["balanced"]["lame"]
    assert record.stages["bbse@one-device"]["macro_f1"] == cells["one-device"]["bbse"]
    frozen = {stage: record.stages[stage]["macro_f1"] for stage in record.stages if "frozen" in stage}
    assert frozen == {
        **{"direct@frozen": 0.5, "paper@frozen": 0.6, "safe@frozen": 0.55},
        **{"direct@not-frozen": 0.5, "paper@not-frozen": 0.61, "safe@not-frozen": 0.56},
    }
    record.write(tmp_path)
    [again] = read_records(tmp_path)  # which checks that every stage is there
    assert again.name == record.name


def test_what_the_protocol_does_not_say_is_refused(protocol: Protocol, trained: list[Record]) -> None:
    for settings, message in (
        ({"frames": 256}, "of 256 frames of each capture; expected all"),
        ({"dataset": "elsewhere"}, f"{MODEL}: not recorded on elsewhere"),
        ({"code": {"calibration": 2}}, "scored by other code"),
    ):
        with pytest.raises(DataError, match=message):
            rekey(study(protocol, **settings), trained, protocol)
    other = replace(trained[1], run=replace(trained[1].run, training=replace(trained[1].run.training, epochs=3)))
    with pytest.raises(DataError, match="is of another training"):
        rekey(study(protocol), [trained[0], other], protocol)
    lost = study(protocol)
    lost["models"][MODEL].pop("missing")
    with pytest.raises(KeyError, match="missing"):
        rekey(lost, trained, protocol)
