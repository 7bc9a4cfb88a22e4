"""How near the closed form comes to an informed receiver, of the small scenes: ADS-B, IEEE 802.15.4, Bluetooth LE.

    make study-waveforms ARGS="--out results/studies/waveforms.json"

Each set is simulated anew and thrown away. The closed form learns two of its three environments and decides on the
third, by default frames of 320 samples; the informed receiver (`pisa limit`), which knows the hardware of every device,
decides on the same frames, FRAMES of each recording, evenly spread. Nothing is chosen. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc import load
from pisa_capc.cli.output import print_table
from pisa_capc.core.provenance import machine, made
from pisa_capc.data.frames import groups_of
from pisa_capc.data.scores import macro_f1
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.evidence.limit import limit
from pisa_capc.model.gaussian import fit_backend
from pisa_capc.signal.measurement import estimator_of
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.waveforms import WAVEFORMS

SCENES = ("ieee802154", "ble", "adsb")
FRAMES = 16  # of each recording
SAMPLES = 320


def compared(scene: str, folder: Path) -> list[dict[str, Any]]:
    """A row for each target: Macro-F1 of the closed form and of the limit."""
    generate(scene, folder, workers=1, show_progress=False)
    frames = load(folder).segment(SAMPLES)
    some = np.concatenate([own[np.linspace(0, len(own) - 1, FRAMES).astype(np.int64)] for own in groups_of(frames)])
    frames = frames.select(np.sort(some))
    estimator = estimator_of(WAVEFORMS[scene], SAMPLES)
    found = estimator.measure(frames.iq)
    value, error = found.features()
    error = error * np.maximum(1, found.misfit)[:, None, None]
    place = frames.environment * len(frames.captures) + frames.capture
    rows = []
    for number, target in enumerate(frames.environments):
        source = found.measured & (frames.environment != number)
        aim = found.measured & (frames.environment == number)
        backend = fit_backend(value[source], error[source], frames.device[source], place[source], frames.devices)
        scores = backend.log_likelihood(backend.evidence(value[aim], error[aim]))
        informed = limit(folder, environment=target, samples=SAMPLES, frames=FRAMES, workers=1, show_progress=False)
        rows.append(
            {
                "scene": scene,
                "target": target,
                "devices": len(frames.devices),
                "frames": int(np.sum(frames.environment == number)),
                "measured": int(aim.sum()),
                "samples": estimator.samples,
                "flaws": list(estimator.flaws),
                "closed_form": round(macro_f1(frames.device[aim], scores.argmax(1), len(frames.devices)), 4),
                "limit": round(informed.scores.macro_f1, 4),
                "limit_samples": informed.samples,
                "suspected": round(float(np.mean(found.suspicion[aim] < 0.01)), 4),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file that keeps the last line")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for scene in SCENES:
        with tempfile.TemporaryDirectory() as folder:
            rows += compared(scene, Path(folder) / scene)
    columns = ("scene", "target", "frames", "closed_form", "limit", "suspected")
    print_table("Macro-F1", columns, [[str(row[name]) for name in columns] for row in rows])
    record = {"rows": rows, "per_recording": FRAMES, "machine": machine(), "made": made()}
    if asked.out is not None:
        write_text_atomic(asked.out, json.dumps(record) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
