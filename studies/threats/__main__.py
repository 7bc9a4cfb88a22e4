"""Threats, each with a figure: replay, imitation, poisoned enrolment, drift and updates.

    make study-threats ARGS="--out results/studies/threats.json"

Simulated, with the flaws and channels of the Wi-Fi scene, and decided by the closed form (`studies.threats.world`).
Every attacker is on the air in E1, where nothing was learnt, and knows the address, the protocol and the software. Each
figure is a mean over `--worlds` draws of radios and rooms with `--pairs` attackers each. A few minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.report import begin, machine

from pisa_capc.cli.output import print_table
from pisa_capc.core.provenance import made
from pisa_capc.data.store.files import write_text_atomic
from studies.threats import drift, enrolment, imitation, replay
from studies.threats.world import ALPHA, REJECTED, TOGETHER, World


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=2, help="draws of radios and rooms (2)")
    parser.add_argument("--pairs", type=int, default=10, help="attackers in each (10)")
    parser.add_argument("--frames", type=int, default=40, help="of each attacker (40)")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    worlds, begun = [World(options.seed + number) for number in range(options.worlds)], time.monotonic()
    found = {}
    for name, own in (
        ("replay", lambda: replay.study(worlds, options.pairs, options.frames)),
        ("imitation", lambda: imitation.study(worlds, options.pairs, options.frames)),
        ("enrolment", lambda: enrolment.study(worlds, options.pairs)),
        ("drift", lambda: drift.study(worlds, options.pairs)),
    ):
        found[name] = own()
        print(name, f"{time.monotonic() - begun:.0f} s", json.dumps(found[name]), flush=True)
    rows = [
        [name, *(f"{found['replay'][part][name][key]:.2f}" for part in ("preamble", "whole frame") for key in own)]
        for name, own in found["replay"]["preamble"].items()
    ]
    heads = [
        f"{key}, {part}" for part in ("preamble", "whole") for key in next(iter(found["replay"]["preamble"].values()))
    ]
    print_table("Replay: share of frames", ["front end", *heads], rows)
    settings = {"worlds": options.worlds, "pairs": options.pairs, "frames": options.frames, "seed": options.seed}
    limits = {"rejected": REJECTED, "together": TOGETHER, "alpha": ALPHA}
    record = {
        "machine": machine(),
        "made": made(),
        "seconds": round(time.monotonic() - begun),
        **settings,
        **limits,
        **found,
    }
    if options.out:
        write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    begin(main)
