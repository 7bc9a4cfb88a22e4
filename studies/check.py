"""What `pisa check` says of scenes whose channels are known to be of the device, or of the place.

    make study-check ARGS="--out results/studies/check.json"

Each scene is simulated in full and looked at twice: by the preamble, and as if none were known, by the array alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import yaml
from benchmarks.report import machine, made

from pisa_capc import simulate
from pisa_capc.cli.output import print_table
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.evidence.checks import Checked, Verdict, check_frames
from pisa_capc.evidence.checks.naming import QUESTIONS, pooled
from pisa_capc.evidence.checks.sounding import ArraySounder
from pisa_capc.signal.simulation.scene import load_scene


def still(phases: str) -> dict[str, Any]:
    """Settings over a scene of the place: people move as little as in the own-place scenes."""
    own = {name: {"moving_fraction": 0.1} for name in load_scene("wifi").captures}
    return {"propagation": {"rays": "place", "phases": phases}, "captures": own}


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "own place": ("{}-own-place", {}),
    "rays of the place, phases of the device, still": ("{}", still("device")),
    "rays of the place, phases of the device, moving (the scene)": ("{}", {}),
    "rays and phases of the place, still": ("{}", still("place")),
}


def told(checked: Checked) -> dict[str, Any]:
    places = checked.evidence.room or []
    answers = {question: pooled(getattr(place, question) for place in places) for question in QUESTIONS}
    return {
        "room": checked.findings["room"].verdict,
        "faults": [name for name, finding in checked.findings.items() if finding.verdict == Verdict.FAULT],
        **{question: None if own is None else own.to_json() for question, own in answers.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1)")
    parser.add_argument("--seed", type=int, default=2026, help="seed of everything (2026)")
    parser.add_argument("--workers", type=int, help="processes that simulate; one per core unless told")
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    rows = []
    for waveform in ("wifi", "lora"):
        for way, (scene, settings) in WAYS.items():
            with TemporaryDirectory() as folder:
                override = Path(folder) / "settings.yaml"
                override.write_text(yaml.safe_dump(settings))
                frames = simulate(
                    scene.format(waveform), f"{folder}/set", seed=options.seed, scale=options.scale, scene=override,
                    workers=options.workers,
                )  # fmt: skip
                found = {"preamble": told(check_frames(frames, show_progress=True))}
                with patch(
                    "pisa_capc.evidence.checks.measure.choose_sounder", lambda iq, *_: ArraySounder.of_frames(iq)
                ):
                    found["array"] = told(check_frames(frames, show_progress=True))
            rows.append({"waveform": waveform, "way": way, **found})
    cells = [[row["waveform"], row["way"], row["preamble"]["room"], *_shares(row)] for row in rows]
    headings = ["", "channel", "room", *QUESTIONS, *(f"{question}, array" for question in QUESTIONS)]
    print_table("Devices named by channels alone", headings, cells, left=headings[:3])
    if options.out:
        record = {"scale": options.scale, "seed": options.seed, "machine": machine(), "made": made(), "rows": rows}
        write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")


def _shares(row: dict[str, Any]) -> list[str]:
    return [f"{row[by][question]['accuracy']:.2f}" for by in ("preamble", "array") for question in QUESTIONS]


if __name__ == "__main__":
    main()
