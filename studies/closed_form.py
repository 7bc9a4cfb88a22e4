"""What the closed form tells: devices, strangers and few frames, of the four scenes, in places never seen.

    make study-closed_form ARGS="--out results/studies/closed-form.json"

The sets are simulated anew at full size and thrown away. Nothing is trained in epochs and nothing is chosen: each row
is three split seeds, which differ in the source frames that are learnt from. Rows:

- all six pairs of source and target environments, one source or two;
- three frames of each device from one capture, twenty draws;
- three of ten devices unknown, ten draws: AUROC by likelihood ratio, strangers accepted and known devices rejected at a
  nominal 5 %, frame by frame and from ten frames of a sender;
- how many clean frames the goodness of fit suspects at 1 %.

- LoRa by how much of its eight upchirps is used (`LENGTHS`), at an eighth of the usual signal-to-noise ratio too.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from pisa_capc import Frames, load
from pisa_capc.cli.output import print_table
from pisa_capc.core.provenance import machine, made
from pisa_capc.core.randomness import generator
from pisa_capc.data.protocol import split
from pisa_capc.data.scores import macro_f1, openset_score
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.model.gaussian import GaussianBackend, Observations, fit_backend
from pisa_capc.signal.measurement import FlawEstimator
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.waveforms import WAVEFORMS

SCENES = {"wifi": "wifi", "lora": "lora", "wifi-own-place": "wifi", "lora-own-place": "lora"}
SEEDS = (2026, 2027, 2028)
FEW, FEW_DRAWS = 3, 20
UNKNOWN, UNKNOWN_DRAWS = 3, 10
NOMINAL = 0.05
TOGETHER = 10  # frames of a sender, decided as one
SUSPECTED = 0.01
BATCH = 4096  # frames in memory

DRAWN = 20_000  # frames of known devices that a threshold is drawn by
LENGTHS, LONG_SCALE = (320, 1024, 2048, 4096, 8192), 0.06  # samples; part of the frames
QUIETER_DB = 9.0

Real = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Measured:
    """What was measured of frames: value (N, d), the error of each, device and place (N,)."""

    value: Real
    own: Real
    device: NDArray[np.int64]
    place: NDArray[np.int64]
    devices: tuple[str, ...]
    suspected: float = float("nan")

    def fit(self, which: NDArray[Any], known: Sequence[int] | None = None) -> GaussianBackend:
        """A back-end of some frames, those of some devices alone; its devices have the numbers of `known`."""
        known = range(len(self.devices)) if known is None else known
        rows = np.flatnonzero(which & np.isin(self.device, known))
        number = np.searchsorted(known, self.device[rows])
        names = [self.devices[each] for each in known]
        return fit_backend(self.value[rows], self.own[rows], number, self.place[rows], names)

    def evidence(self, backend: GaussianBackend, which: NDArray[Any]) -> Observations:
        return backend.evidence(self.value[which], self.own[which])


def measured(frames: Frames, estimator: FlawEstimator, quieter_db: float = 0.0) -> Measured:
    """All frames of a simulated set, with more noise where it is asked for; a place is an environment and a capture."""
    parts = []
    for number, part in enumerate(frames.batches(BATCH)):
        iq = part.iq
        if quieter_db:
            random = generator(SEEDS[0], "closed form, more noise", number)
            noise = estimator.measure(iq).noise * (10 ** (quieter_db / 10) - 1)
            more = random.standard_normal((*iq.shape, 2), dtype=np.float32) @ np.array([1, 1j], dtype=np.complex64)
            iq = iq + np.sqrt(noise / 2, dtype=np.float32)[..., None] * more
        parts.append(estimator.measure(iq))
    found = parts[0].joined(parts[1:])
    value, own = found.features()
    place = frames.environment * len(frames.captures) + frames.capture
    if not found.measured.all():
        raise SystemExit(f"{(~found.measured).sum()} simulated frames could not be measured")
    suspected = float(np.mean(found.suspicion < SUSPECTED))
    return Measured(value, own, frames.device, place, frames.devices, suspected)


def mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)


def directions(frames: Frames, estimator: FlawEstimator) -> dict[str, list[float]]:
    """Macro-F1 of the target by direction, one for each split seed, learnt from the source's training part."""
    names = frames.environments
    others = {name: tuple(other for other in names if other != name) for name in names}
    pairs = [(others[target], target) for target in names]
    pairs += [((source,), target) for target in names for source in others[target]]
    found: dict[str, list[float]] = {}
    for source, target in pairs:
        scores = found.setdefault(f"{','.join(source)}→{target}", [])
        for seed in SEEDS:
            parts = split(frames, source, target, seed)
            learnt = measured(parts.train, estimator)
            backend = learnt.fit(np.ones(len(learnt.device), dtype=bool))
            value, own = estimator.measure(parts.target.iq).features()
            outputs = backend.log_likelihood(backend.evidence(value, own))
            scores.append(round(parts.evaluator.score(outputs).macro_f1, 4))
    return found


def few(one: Measured, environment: NDArray[np.int64], scene: str) -> dict[str, Any]:
    """From `FEW` frames of each device of one capture, to the first environment."""
    all_there = [len(np.unique(one.device[own])) == len(one.devices) for own in groups(one.place)]
    places = np.intersect1d(np.unique(one.place)[all_there], one.place[environment != 0])
    target, scores = environment == 0, []
    for draw in range(FEW_DRAWS):
        random = generator(SEEDS[0], "closed form, few frames", scene, draw)
        here = one.place == random.choice(places)
        rows = [
            random.choice(np.flatnonzero(here & (one.device == number)), FEW, replace=False)
            for number in range(len(one.devices))
        ]
        which = np.zeros(len(here), dtype=bool)
        which[np.concatenate(rows)] = True
        backend = one.fit(which)
        outputs = backend.log_likelihood(one.evidence(backend, target))
        scores.append(macro_f1(one.device[target], outputs.argmax(axis=1), len(one.devices)))
    return {"macro_f1": mean(scores), "least": round(min(scores), 4), "draws": FEW_DRAWS}


def strangers(one: Measured, environment: NDArray[np.int64], scene: str) -> dict[str, Any]:
    """Some devices unknown; learnt from all other environments and asked in the first.

    By the likelihood ratio, which the software uses, and by the distance from the nearest device. Which of them is used
    was chosen on the source: learnt from each other environment and asked in the other.
    """
    own = asked(one, environment != 0, environment == 0, scene)
    source = [asked(one, environment == a, environment == b, scene) for a, b in ((1, 2), (2, 1))]
    pairs = {name: [row[name] for row in source] for name in source[0]}
    return {
        **{name: mean(values) for name, values in own.items()},
        "source": {name: mean(np.concatenate(values).tolist()) for name, values in pairs.items()},
        "draws": UNKNOWN_DRAWS,
        "nominal": NOMINAL,
    }


def asked(one: Measured, learnt: NDArray[np.bool_], target: NDArray[np.bool_], scene: str) -> dict[str, list[float]]:
    """One figure for each draw of unknown devices."""
    rows: dict[str, list[float]] = {}
    for draw in range(UNKNOWN_DRAWS):
        random = generator(SEEDS[0], "closed form, strangers", scene, draw)
        known = np.sort(random.choice(len(one.devices), len(one.devices) - UNKNOWN, replace=False))
        backend, mine = one.fit(learnt, known.tolist()), np.isin(one.device, known)
        evidence = one.evidence(backend, target)
        errors = one.own[np.flatnonzero(learnt & mine)[:: max(1, int(learnt.sum()) // DRAWN)]]
        level = np.quantile(backend.strangeness(backend.drawn(DRAWN, random, errors)), 1 - NOMINAL)
        known_here, distance = mine[target], backend.distance(evidence)
        right = known[backend.log_likelihood(evidence).argmax(axis=1)] == one.device[target]
        together = pooled_senders(one.device[target], one.place[target])
        first = np.unique(together, return_index=True)[1]
        for name, score, limit, is_known in (
            ("", backend.strangeness(evidence), level, known_here),
            ("_10", backend.strangeness(evidence.pooled(together)), level, known_here[first]),
            ("_distance", distance.min(axis=1), chi2.isf(NOMINAL, len(backend.frame)), known_here),
        ):
            if len(score) == len(right):  # one a frame
                found = openset_score(score[is_known], right[is_known], score[~is_known])
                rows.setdefault(f"auroc{name}", []).append(found.auroc)
            rows.setdefault(f"accepted{name}", []).append(float(np.mean(score[~is_known] <= limit)))
            rows.setdefault(f"rejected{name}", []).append(float(np.mean(score[is_known] > limit)))
    return rows


def pooled_senders(device: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N,) the same number for `TOGETHER` successive frames of a device in a place."""
    _, group = np.unique(np.stack([device, place]), axis=1, return_inverse=True)
    within = np.zeros(len(group), dtype=np.int64)
    for number in range(group.max() + 1):
        mine = np.flatnonzero(group == number)
        within[mine] = np.arange(len(mine)) // TOGETHER
    return np.asarray(np.unique(np.stack([group, within]), axis=1, return_inverse=True)[1].ravel())


def scene_row(scene: str, seed: int, scale: float) -> dict[str, Any]:
    """One simulated set."""
    with tempfile.TemporaryDirectory() as folder:
        generate(scene, folder, seed=seed, scale=scale, show_progress=False)
        frames = load(folder).segment()
        estimator = FlawEstimator(WAVEFORMS[SCENES[scene]], frames.iq.shape[-1])
        one = measured(frames, estimator)
        return {
            "frames": len(frames),
            "suspected": round(one.suspected, 4),
            "macro_f1": directions(frames, estimator),
            "few": few(one, frames.environment, scene),
            "strangers": strangers(one, frames.environment, scene),
        }


def length_rows(seed: int) -> list[dict[str, Any]]:
    """LoRa by the samples used: error bars, Macro-F1 and strangers of the first environment, also with more noise."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        generate("lora", folder, seed=seed, scale=LONG_SCALE, samples=max(LENGTHS), show_progress=False)
        stored = load(folder)
        for quieter_db in (0.0, QUIETER_DB):
            for samples in LENGTHS:
                frames = stored.segment(samples)
                estimator = FlawEstimator(WAVEFORMS["lora"], samples)
                one = measured(frames, estimator, quieter_db)
                target = frames.environment == 0
                backend = one.fit(~target)
                outputs = backend.log_likelihood(one.evidence(backend, target))
                f1 = macro_f1(one.device[target], outputs.argmax(axis=1), len(one.devices))
                bars = np.median(np.sqrt(2 * one.own.diagonal(0, 1, 2)), axis=0)
                rows.append(
                    {
                        "samples": samples,
                        "more_noise_db": quieter_db,
                        "image_bar": float(f"{bars[0]:.3g}"),
                        "leakage_bar": float(f"{bars[1]:.3g}"),
                        "macro_f1": round(f1, 4),
                        "strangers": strangers(one, frames.environment, "lora"),
                    }
                )
                print(rows[-1], flush=True)
    return rows


def groups(group: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    return [np.flatnonzero(group == number) for number in np.unique(group)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1.0)")
    parser.add_argument("--seed", type=int, default=2026, help="of the simulated sets")
    parser.add_argument("--out", type=Path, help="file that keeps the last line")
    options = parser.parse_args()
    scenes = {}
    for scene in SCENES:
        scenes[scene] = scene_row(scene, options.seed, options.scale)
        print(scene, json.dumps(scenes[scene]), flush=True)
    rows = [
        [
            name,
            *(f"{np.mean(found['macro_f1'][direction]):.3f}" for direction in list(found["macro_f1"])[:3]),
            f"{np.mean([np.mean(v) for v in list(found['macro_f1'].values())[3:]]):.3f}",
            f"{found['few']['macro_f1']:.3f}",
            f"{found['strangers']['auroc']:.3f}",
        ]
        for name, found in scenes.items()
    ]
    heads = ["scene", *list(scenes["wifi"]["macro_f1"])[:3], "from one", f"{FEW} frames", "strangers"]
    print_table("Closed form: Macro-F1 of the target, AUROC of strangers", heads, rows)
    lengths = length_rows(options.seed)
    record = json.dumps(
        {"study": "closed_form", "machine": machine(), "made": made(), "scale": options.scale, "set_seed": options.seed,
         "split_seeds": SEEDS, "scenes": scenes, "lora_by_length": lengths}
    )  # fmt: skip
    if options.out is not None:
        write_text_atomic(options.out, record + "\n")
    print(record)


if __name__ == "__main__":
    main()
