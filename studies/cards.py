"""How often cards are right about whether it is the same radio; and what two real recordings read.

    make study-cards ARGS="--out results/studies/cards.json"

Simulated scenes: a card of each device from all frames of one environment, held against what is measured of each
device in another environment, in all of its captures or in ten frames of one. Counted is how often one radio is called
another, and how often another one can be the same. --recordings names a folder with two recordings of openofdm (github
jhshi/openofdm, `testing_inputs`, as .cs16); without it they are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from benchmarks.report import machine, made

from pisa_capc import Card, Frames, detect, measure, open_recording, simulate
from pisa_capc.cli.output import print_table
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.signal.detection.dataset import read_frames
from pisa_capc.signal.measurement.cards import DIFFERENT

SCENES = ("wifi", "lora", "wifi-own-place", "lora-own-place")
FEW = 10  # frames of a device in one capture
REAL = ("conducted-11a-6mbps.cs16", "radiated-11n-6.5mbps.cs16")
ALL, SOME = "all frames of an environment", f"{FEW} frames of one capture"


def compared(frames: Frames) -> Iterator[dict[str, Any]]:
    """A row for each amount of frames that is held against cards of another environment."""
    kept = {name: measure(frames.where(environment=name)).cards for name in frames.environments}
    few = {name: [card for own in captures(frames, name) for card in measure(own).cards] for name in kept}
    for amount, seen in ((ALL, kept), (SOME, few)):
        same, others = list[float](), list[float]()
        for now, before in permutations(kept, 2):
            for new in seen[now]:
                for card in kept[before]:
                    (same if new.name == card.name else others).append(new.compared(card).p_value)
        yield {
            "frames": amount,
            "one radio": len(same),
            "called another": float(np.mean(np.array(same) < DIFFERENT)),
            "p, median": float(np.median(same)),
            "two radios": len(others),
            "can be one": float(np.mean(np.array(others) >= DIFFERENT)),
        }


def captures(frames: Frames, environment: str) -> Iterator[Frames]:
    """The first frames of each device in each capture of an environment."""
    for capture in frames.captures:
        own = frames.where(environment=environment, capture=capture)
        yield own.select(own.frame < FEW)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """A row per sender of a real recording: its image, and how its frames scatter around that."""
    found = detect(open_recording([path], sample_rate_hz=20e6, carrier_hz=5.2e9, antennas=1))
    frames, each = read_frames([found])
    senders = [(frame.header.fcs and frame.header.transmitter) or "(none)" for frame in each]
    measured = measure(frames, "wifi", senders)
    value, _ = measured.measurement.features()
    half = value.shape[1] // 2
    for number, card in enumerate(measured.cards):
        own = value[measured.sender == number]
        yield {
            "recording": path.name,
            "sender": card.name,
            **named(card),
            "scatter": [float(np.std(own[:, i], ddof=1)) for i in (0, half)],
            "suspected": card.suspected,
        }


def named(card: Card) -> dict[str, Any]:
    image = card.theta["image"]
    return {"frames": card.frames, "image": [image.real, image.imag], "cfo_hz": card.cfo_hz, "snr_db": card.snr_db}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1)")
    parser.add_argument("--seed", type=int, default=2026, help="seed of the scenes (2026)")
    parser.add_argument("--workers", type=int, help="processes that simulate; one per core unless told")
    parser.add_argument("--recordings", type=Path, help="folder of the real recordings")
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    rows = []
    for scene in SCENES:
        with TemporaryDirectory() as folder:
            frames = simulate(scene, f"{folder}/set", seed=options.seed, scale=options.scale, workers=options.workers)
            rows += [{"scene": scene, **row} for row in compared(frames)]
    headings = list(rows[0])
    cells = [[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    print_table("Is it the same radio?", headings, cells, left=headings[:2])
    real = [] if options.recordings is None else [row for name in REAL for row in read(options.recordings / name)]
    for row in real:
        print(json.dumps(row))
    if options.out:
        record = {
            "scale": options.scale,
            "seed": options.seed,
            "machine": machine(),
            "made": made(),
            "rows": rows,
            "real": real,
        }
        write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
