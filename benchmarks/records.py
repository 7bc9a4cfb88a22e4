"""Make the records in `results/speed` that two cores can make again: `make speed-records [NAMES="measure files"]`.

Each is the last line of its benchmark, kept where the benchmark came to its end. Nothing else may run on the machine.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

from benchmarks.report import RESULTS
from pisa_capc.core.errors import ConfigError, unknown_name

RECORDS = {
    "measure-2core": "measure",
    "files-2core": "files",
    "listen-closed-form-2core": "listen --method closed-form --runs 5 --every-pace --paces 1 2 --seconds 10 --kills 0 "
    "--frames 0",
    "calibrate-2core": "calibrate",
    "calibrate-1M-2core": "calibrate --only-large '1M x 1000'",
    "calibrate-10M-2core": "calibrate --only-large '10M x 10'",
    "simulate-2core": "simulate",
    "detect-lora-2core": "detect_lora",
    "online-1core": "online",
}


def main(names: list[str]) -> None:
    known = {name.rpartition("-")[0]: name for name in RECORDS}
    for name in names:
        if name not in known:
            raise SystemExit(f"error: {ConfigError(unknown_name('record', name, known))}")
    for name in names or known:
        record = known[name]
        name, *words = shlex.split(RECORDS[record])
        print(f"{record}: python -m benchmarks.{RECORDS[record]}", flush=True)
        said = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *words], stdout=subprocess.PIPE)
        print(said.stdout.decode(), flush=True)
        if said.returncode:
            raise SystemExit(f"error: {record} is left as it was: its benchmark ended with {said.returncode}.")
        line = said.stdout.decode().strip().splitlines()[-1]
        json.loads(line)
        (RESULTS / "speed" / f"{record}.json").write_text(line + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
