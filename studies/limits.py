"""How near the closed form comes to an informed receiver, in every environment of the four scenes.

    make study-limits ARGS="--out results/studies/limits.json"

The sets are simulated anew at full size and thrown away. The informed receiver (`pisa limit`) and the closed form,
which is learnt from each pair and from each single other environment, decide on the same frames, evenly spread over
each recording.
Intervals are of 95 %, by recordings drawn again with replacement among those of each device, since the frames of one
recording share a place; `behind` is the limit less the closed form in the same draws. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc import load
from pisa_capc.cli.output import print_table
from pisa_capc.core.provenance import machine, made
from pisa_capc.core.randomness import generator
from pisa_capc.data.scores import f1_per_class
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.store.native import Dataset
from pisa_capc.evidence.limit import decide, receiver_of, scene_of
from pisa_capc.signal.measurement import FlawEstimator
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.waveforms import WAVEFORMS
from studies.closed_form import SCENES, measured

FRAMES = 128  # of each recording
SAMPLES = 320
DRAWS = 2000

Counts = NDArray[np.int64]


def rows_of(counts: list[int], frames: int) -> NDArray[np.int64]:
    """The frames that `evidence.limit.decide` looks at, of recordings that lie one after the other."""
    first = np.cumsum([0, *counts])
    return np.concatenate(
        [
            at + np.linspace(0, own - 1, min(frames, own)).astype(np.int64)
            for at, own in zip(first, counts, strict=False)
        ]
    )


def confusions(guess: NDArray[np.int64], device: NDArray[np.int64], recording: NDArray[np.int64], kinds: int) -> Counts:
    """(R, K, K) of each recording."""
    found = np.zeros((recording.max() + 1, kinds, kinds), dtype=np.int64)
    np.add.at(found, (recording, device, guess), 1)
    return found


def drawn_again(counts: int, owner: NDArray[np.int64], random: np.random.Generator) -> Counts:
    """(DRAWS, R) how often each recording is drawn, as many of each device as it has."""
    found = np.zeros((DRAWS, counts), dtype=np.int64)
    for device in np.unique(owner):
        mine = np.flatnonzero(owner == device)
        found[:, mine] = random.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), size=DRAWS)
    return found


def macro(confusion: Counts) -> NDArray[np.float64]:
    """(…,) Macro-F1 of confusions (…, K, K)."""
    return np.asarray(f1_per_class(confusion).mean(-1))


def interval(values: NDArray[np.float64]) -> list[float]:
    return [round(float(v), 4) for v in np.quantile(values, [0.025, 0.975])]


def scene_row(scene: str, seed: int, scale: float) -> dict[str, Any]:
    """By target environment: the limit, and the closed form of each source on the same frames."""
    with tempfile.TemporaryDirectory() as folder:
        generate(scene, folder, seed=seed, scale=scale, show_progress=False)
        frames, dataset = load(folder).segment(SAMPLES), Dataset.read(Path(folder))
        one = measured(frames, FlawEstimator(WAVEFORMS[SCENES[scene]], SAMPLES))
        receiver, _ = receiver_of(*scene_of(dataset, Path(folder)), list(one.devices), SAMPLES, False)
        informed = [decide(Path(folder), dataset, spec, receiver, SAMPLES, FRAMES)[1] for spec in dataset.captures]
    rows = rows_of([spec.frames for spec in dataset.captures], FRAMES)
    guess = np.concatenate(informed).argmax(axis=1)
    recording = np.repeat(np.arange(len(informed)), [len(own) for own in informed])
    device, environment = one.device[rows], frames.environment[rows]
    if [one.devices[own] for own in device] != [dataset.captures[own].device for own in recording]:
        raise SystemExit("the limit and the closed form looked at different frames")
    names, found = frames.environments, dict[str, Any]()
    for number, target in enumerate(names):
        here = environment == number
        _, local = np.unique(recording[here], return_inverse=True)
        owner = device[here][np.unique(local, return_index=True)[1]]
        random = generator(seed, "limits", scene, target)
        again = drawn_again(len(owner), owner, random)
        best = confusions(guess[here], device[here], local, len(one.devices))
        best_again = macro(np.tensordot(again, best, 1))
        others = [other for other in range(len(names)) if other != number]
        sources = {}
        for source in (others, *([other] for other in others)):
            backend = one.fit(np.isin(frames.environment, source))
            outputs = backend.log_likelihood(one.evidence(backend, rows[here]))
            own = confusions(outputs.argmax(axis=1), device[here], local, len(one.devices))
            own_again = macro(np.tensordot(again, own, 1))
            sources[",".join(names[other] for other in source)] = {
                "macro_f1": round(float(macro(own.sum(0))), 4),
                "interval": interval(own_again),
                "behind": round(float(macro(best.sum(0)) - macro(own.sum(0))), 4),
                "behind_interval": interval(best_again - own_again),
            }
        found[target] = {
            "frames": int(here.sum()),
            "limit": round(float(macro(best.sum(0))), 4),
            "interval": interval(best_again),
            "closed_form": sources,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1.0)")
    parser.add_argument("--seed", type=int, default=2026, help="of the simulated sets")
    parser.add_argument("--out", type=Path, help="file that keeps the last line")
    options = parser.parse_args()
    scenes, rows = {}, []
    for scene in SCENES:
        scenes[scene] = scene_row(scene, options.seed, options.scale)
        print(scene, json.dumps(scenes[scene]), flush=True)
        rows += [
            [scene, target, f"{own['limit']:.4f}", *(f"{each['macro_f1']:.4f}" for each in own["closed_form"].values())]
            for target, own in scenes[scene].items()
        ]
    print_table(
        "Limit and closed form", ["scene", "target", "limit", "from two", "from one", "from another"], rows,
        left=("scene", "target"),
    )  # fmt: skip
    record = json.dumps(
        {"study": "limits", "machine": machine(), "made": made(), "scale": options.scale, "set_seed": options.seed,
         "samples": SAMPLES, "frames": FRAMES, "scenes": scenes}
    )  # fmt: skip
    if options.out is not None:
        write_text_atomic(options.out, record + "\n")
    print(record)


if __name__ == "__main__":
    main()
