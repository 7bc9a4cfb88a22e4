"""Noise that names the device, and validation frames that share it: what the CFO descriptor gives away.

    make study-noise ARGS="--out results/studies/noise.json"

The Wi-Fi scene draws the SNR and the CFO jitter of a recording for each device in it. They stay over the recording, the
descriptor measures them over 32 frames, and random validation frames lie in the windows of training frames. So the
scene is also made with noise of the place, and both are also split by blocks of time:

- the descriptor alone, its four numbers in a random forest, at full size;
- PISA with a CNN, with and without CFO dynamics, on a tenth of the frames and for few epochs, one seed: far from its
  level at full size.

Trained in E2 and E3, target E1. What has been computed is kept in --work. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from sklearn.ensemble import RandomForestClassifier

from pisa_capc import Frames, load
from pisa_capc.core.progress import console
from pisa_capc.core.provenance import machine, made
from pisa_capc.data.descriptors import cfo_descriptors
from pisa_capc.data.protocol import HELD_OUT, split
from pisa_capc.data.scores import macro_f1
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.evidence.evaluation import evaluate
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.simulation.scene import OWNERS
from studies.real import kept

SOURCE, TARGET = ("E2", "E3"), ("E1",)
TREES, LEAF = 50, 5
# Of the networks: split, and variant of PISA.
CASES = (("random", "full"), ("random", "no-cfo-dynamics"), ("block", "full"))


def make(noise: str, work: Path, scale: float, seed: int) -> Frames:
    """The Wi-Fi scene with noise of the device or of the place."""
    scene, folder = work / f"{noise}.yaml", work / f"{noise}-{scale:g}"
    write_text_atomic(scene, yaml.safe_dump({"propagation": {"noise": noise}}))
    generate("wifi", folder, seed=seed, scale=scale, scene=scene, workers=1, show_progress=False)
    return load(folder)


def by_descriptor(frames: Frames, held_out: str, seed: int) -> dict[str, Any]:
    """Macro-F1 of the descriptor alone on the source validation and on the target."""
    parts = split(frames, SOURCE, TARGET, seed, held_out=held_out)
    forest = RandomForestClassifier(TREES, min_samples_leaf=LEAF, random_state=seed, n_jobs=1)
    forest.fit(cfo_descriptors(parts.train.unlabelled()), parts.train.device)
    decided = forest.predict(cfo_descriptors(parts.validation.unlabelled()))
    there = parts.evaluator.score(forest.predict_proba(cfo_descriptors(parts.target)))
    validation = macro_f1(parts.validation.device, decided, len(frames.devices))
    return {"validation_f1": validation, "target_f1": there.macro_f1, "training_frames": len(parts.train)}


def by_network(frames: Frames, held_out: str, variant: str, options: argparse.Namespace) -> dict[str, Any]:
    """Macro-F1 of PISA."""
    parts = split(frames, SOURCE, TARGET, options.seed, held_out=held_out)
    training = {"epochs": options.epochs, "batch": options.batch}
    how = {"device": "cpu", "threads": 1, "show": False}
    runs = [Run(parts, options.seed)]
    [trained] = fit(runs, method="pisa", encoder=options.encoder, variant=variant, training=training, **how)
    [scores] = evaluate([(Path(variant), trained)], frames, TARGET, "cpu", show=False)
    found = trained.run.metrics
    return {
        "validation_f1": found.validation_f1,
        "best_epoch": found.best_epoch,
        "target_f1": scores.stages["direct"].macro_f1,
        "seconds": round(trained.run.seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1, help="part of the frames that networks see (0.1)")
    parser.add_argument("--encoder", default="cnn", help="of the networks (cnn)")
    parser.add_argument("--epochs", type=int, default=8, help="of a network (8)")
    parser.add_argument("--batch", type=int, default=32, help="frames of a step (32)")
    parser.add_argument("--seed", type=int, default=2026, help="seed of scene, split and training (2026)")
    parser.add_argument(
        "--work", type=Path, default=Path("work/noise"), help="folder of what was computed (work/noise)"
    )
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    alone, networks = [], []
    for noise in OWNERS:
        whole = make(noise, options.work, 1.0, options.seed)
        for held_out in HELD_OUT:
            alone.append({"noise": noise, "held_out": held_out, **by_descriptor(whole, held_out, options.seed)})
            console.print(alone[-1])
    parts = {noise: make(noise, options.work, options.scale, options.seed) for noise in OWNERS}
    for (held_out, variant), (noise, frames) in product(CASES, parts.items()):
        which = {"noise": noise, "held_out": held_out, "variant": variant}
        path = options.work / f"{'-'.join(which.values())}.json"
        found = kept(path, lambda h=held_out, v=variant, f=frames: by_network(f, h, v, options))  # type: ignore[misc]
        networks.append({**which, **found})
        console.print(networks[-1])
    record = {
        "study": "noise", "machine": machine(), "made": made(), "seed": options.seed, "scale": options.scale,
        "encoder": options.encoder, "epochs": options.epochs, "batch": options.batch, "trees": TREES, "leaf": LEAF,
        "descriptor": alone, "networks": networks,
    }  # fmt: skip
    if options.out is not None:
        write_text_atomic(options.out, json.dumps(record) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
