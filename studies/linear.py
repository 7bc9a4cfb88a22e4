"""Linear discriminants on the four scenes: on the samples as received, and on the flaws that the closed form measures.

    make study-linear ARGS="--out results/studies/linear.json"

Trained in E2 and E3 and scored in E1, on the splits of the protocols (three split seeds), at full size. The samples of
a frame are its I and Q on all antennas. The covariance is shrunk as little as can be inverted. Nothing is chosen.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pisa_capc import load
from pisa_capc.core.progress import console
from pisa_capc.core.provenance import machine, made
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.protocol import split
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.store.native import fingerprint
from pisa_capc.signal.measurement import FlawEstimator
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.waveforms import WAVEFORMS
from studies.closed_form import SCENES, SEEDS, measured

SHRUNK = 1e-6
THINNED = 4  # of the training frames, every so many are learnt from as samples: 2,560 numbers each


def samples(frames: UnlabelledFrames) -> NDArray[np.float32]:
    """(N, 2 A T) I and Q of every antenna."""
    return np.asarray(frames.iq).view(np.float32).reshape(len(frames), -1)


def scores(folder: Path, waveform: str) -> dict[str, list[float]]:
    """Macro-F1 in E1 by what is seen, one for each split seed."""
    frames = load(folder)
    estimator = FlawEstimator(WAVEFORMS[waveform], frames.samples)
    found: dict[str, list[float]] = {"samples": [], "flaws": []}
    for seed in SEEDS:
        parts = split(frames, ("E2", "E3"), "E1", seed)
        few = parts.train.select(np.arange(0, len(parts.train), THINNED))
        learnt = measured(parts.train, estimator)
        new, _ = estimator.measure(parts.target.iq).features()
        seen = {
            "samples": (samples(few.unlabelled()), few.device, samples(parts.target)),
            "flaws": (learnt.value, learnt.device, new),
        }
        for name, (value, device, asked) in seen.items():
            by = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=SHRUNK).fit(value, device)
            found[name].append(round(parts.evaluator.score(by.predict_proba(asked)).macro_f1, 4))
        console.print(f"{folder.name}, split {seed}: {found}", highlight=False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1)")
    parser.add_argument("--seed", type=int, default=2026, help="seed of the scenes (2026)")
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    rows: dict[str, Any] = {}
    for scene, waveform in SCENES.items():
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / scene
            generate(scene, data, seed=options.seed, scale=options.scale, workers=1, show_progress=False)
            rows[scene] = {"dataset": fingerprint(data), "macro_f1": scores(data, waveform)}
    record = {
        "study": "linear", "machine": machine(), "made": made(), "scale": options.scale, "set_seed": options.seed,
        "split_seeds": SEEDS, "shrinkage": SHRUNK, "thinned": THINNED, "scenes": rows,
    }  # fmt: skip
    if options.out is not None:
        write_text_atomic(options.out, json.dumps(record) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
