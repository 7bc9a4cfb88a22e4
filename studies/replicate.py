"""Recorded runs once more on another device: a kernel or a compiler that computes something else shows here.

    python -m studies.replicate external-baselines --data DIR --only method=mixup,mmd [--epochs 30] [--device cpu]

Of every method, variant and encoder that is chosen and recorded for the dataset, the run with the first of the chosen
seeds is trained here as it was there, apart from device and precision, and scored on the target. What was stopped goes
on from its last epoch. The last line is one JSON object with the figures; --out adds the rows to a file that may hold
those of other calls, and takes the place of rows of the same runs there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.report import begin, show

from pisa_capc.core.provenance import machine, made
from pisa_capc.data.frames import load
from pisa_capc.data.protocol import DIRECT
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.store.native import fingerprint
from pisa_capc.evidence.benchmark.plan import plan, select
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.benchmark.records import Record, read_records
from pisa_capc.evidence.evaluation import infer
from pisa_capc.model.training import Run, fit

Row = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="KEY=VALUE choices, as of pisa bench run")
    parser.add_argument("--epochs", type=int, help="fewer than recorded, to see the beginning only")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path, default=Path("results/records"))
    parser.add_argument("--work", type=Path, default=Path("work/replicate"))
    parser.add_argument("--out", type=Path, help="record to add the rows to, as results/studies/replicate-2core.json")
    options = parser.parse_args()
    protocol = read_protocol(options.protocol)
    wanted = {(run.cell, (run.split_seed, run.seed)) for run in select(plan(protocol), options.only)}
    dataset, folder = fingerprint(options.data), options.results / protocol.name
    chosen: dict[tuple[str, ...], Record] = {}
    for record in sorted(read_records(folder), key=lambda record: record.seeds):
        if record.conditions.dataset == dataset and (record.cell, record.seeds) in wanted:
            chosen.setdefault(record.cell, record)
    if not chosen:
        parser.error(f"{folder}: holds no such record of {options.data} ({dataset}). Choose other --only or --results.")
    rows = []
    for cell, record in chosen.items():
        rows.append(_replicated(record, options))
        print(f"{' '.join(cell[1:])}: source validation {rows[-1]['validation F1']}", flush=True)
    facts = {"protocol": protocol.name, "dataset": dataset, "device": options.device, "epochs": options.epochs}
    if options.out is not None:
        add_rows(options.out, rows)
    show(f"recorded runs of {protocol.name}, and the same on {options.device}", rows, facts)


def add_rows(path: Path, rows: Sequence[Row]) -> None:
    """The record at `path` with these rows, which take the place of those of the same runs."""

    def runs(row: Row) -> tuple[object, ...]:
        return tuple(row.get(key) for key in ("method", "variant", "encoder", "data", "run"))

    new = {runs(row) for row in rows}
    there = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    kept = [row for row in there if runs(row) not in new]
    record = {
        "benchmark": "recorded runs, and the same on another device",
        "machine": machine(),
        "made": made(),
        "rows": [*kept, *rows],
    }
    write_text_atomic(path, json.dumps(record) + "\n")


def _replicated(record: Record, options: argparse.Namespace) -> Row:
    run, epochs = record.run, record.run.training.epochs
    training = replace(run.training, epochs=min(options.epochs or epochs, epochs))
    parts = run.recipe.split(load(options.data))
    [model] = fit(
        [Run(parts, run.seed)],
        method=run.method,
        variant=run.variant,
        encoder=run.encoder,
        settings=run.settings,
        training=training,
        device=options.device,
        out=options.work / f"{record.name}-{training.epochs}",
        dataset=record.conditions.dataset,
    )
    [(_, direct)] = infer([model], [parts], {}, options.device, 512)
    return {
        "method": run.method,
        "variant": run.variant,
        "encoder": run.encoder,
        "data": record.dataset,
        "run": run.name,
        "recorded on": f"{record.conditions.device}, {record.conditions.precision}",
        "epochs": training.epochs,
        "recorded validation F1": round(record.validation_f1, 4),
        "validation F1": round(model.run.metrics.validation_f1, 4),
        "recorded target F1": round(record.stages["direct"]["macro_f1"], 4),
        "target F1": round(direct.scores()[DIRECT].macro_f1, 4),
    }


if __name__ == "__main__":
    begin(main)
