"""The calibration study as records of its protocol, without training or scoring anything again.

    git show 6452c80:results/studies/calibration-study-wifi.json > wifi.json      # and -lora
    python -m studies.rekey_calibration_study wifi.json lora.json

The study was a program of its own before calibrations and deployments were part of a protocol, and kept its scores of
all models in one file for each dataset; these are in the history as above. What `protocols/calibration-study.yaml` says
is what the program did, to the draw. So each model's scores become a record of that protocol: the run is the
protocol's; conditions, validation, times and machine are those of the recorded training that the model is from.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import RECORDS, begin

from pisa_capc.core.errors import DataError
from pisa_capc.evidence.benchmark.plan import PlannedRun, plan
from pisa_capc.evidence.benchmark.protocols import Protocol, read_protocol
from pisa_capc.evidence.benchmark.records import Record, read_records

FROZEN, UNFROZEN = "frozen", ", not frozen"  # a cell, and what its stages were called that it is held against


def rekey(study: Mapping[str, Any], trained: Sequence[Record], protocol: Protocol) -> list[Record]:
    """A record for each model of a study. trained: the records of the models' own protocol."""
    settings = study["settings"]
    if settings["frames"] is not None:
        raise DataError(f"the study is of {settings['frames']} frames of each capture; expected all of them.")
    own = {_model(record.run): record for record in trained if _is_of(record, settings["dataset"])}
    runs = {_model(run): run for run in plan(protocol)}
    found = []
    for model, cells in study["models"].items():
        if model not in own or model not in runs:
            raise DataError(f"{model}: not recorded on {settings['dataset']}, or not of {protocol.name}.")
        record, run = own[model], runs[model]
        if record.run.training_json() != run.training_json():
            raise DataError(f"{model}: {record.name} is of another training than {protocol.name}.")
        if {part: run.code[part] for part in settings["code"]} != settings["code"]:
            raise DataError(f"{model}: scored by other code, {settings['code']}; now {run.code}.")
        stages = {stage: {"macro_f1": f1} for stage, f1 in _stages(cells, protocol).items()}
        kept = {name: getattr(record, name) for name in ("validation_f1", "best_epoch", "seconds", "machine")}
        found.append(Record(run, record.conditions, record.dataset, stages, **kept))
    return found


def _is_of(record: Record, dataset: str) -> bool:
    return record.conditions.dataset == dataset and record.run.method == "pisa"


def _model(run: PlannedRun) -> str:
    """What the study called a model: cnn/split2026-seed2027."""
    return f"{run.encoder}/{run.name}"


def _stages(cells: Mapping[str, Mapping[str, float]], protocol: Protocol) -> dict[str, float]:
    """Macro-F1 by stage of the protocol, of Macro-F1 by cell and calibration."""
    found = {}
    for deployment in protocol.deployments:
        if deployment.scored == "all" or deployment.frozen:
            scores = {name: f1 for name, f1 in cells[deployment.name].items() if not name.endswith(UNFROZEN)}
        else:
            scores = {name.removesuffix(UNFROZEN): f1 for name, f1 in cells[FROZEN].items() if name.endswith(UNFROZEN)}
            scores["direct"] = cells[FROZEN]["direct"]
        found |= {deployment.stage(name): f1 for name, f1 in scores.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="+", help="files of the study")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of all records, to read and to write")
    options = parser.parse_args()
    protocol = read_protocol("calibration-study")
    for path in options.studies:
        study = json.loads(path.read_text(encoding="utf-8"))
        records = rekey(study, read_records(options.records / study["settings"]["protocol"]), protocol)
        for record in records:
            record.write(options.records / protocol.name)
        print(f"{path}: {len(records)} records in {options.records / protocol.name}")


if __name__ == "__main__":
    begin(main)
