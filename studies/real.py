"""Real cards: who is told from whom in places, and sessions, that no method has seen.

    git clone https://github.com/YanDawei101/WiFi_device_fingerprint
    git clone https://github.com/TUDA-wise/RF-Veil
    make study-real DATA=FOLDER

FOLDER holds the sets as `location-intel5300/` (data_deviceN_locationM.dat, locations 1, 3, 4, 9 and 10),
`environment-nexmon/` (DEVICE_con_NN.pcap), and if wanted `cross-session-phones/` (A_sXXX.csv, B_sXXX.csv: of RF-Veil,
data/confusion_matrix/data/1000 AC sXXX.csv and data/privacy_attack/data/02 privacy attack reference sXXX_sorted.csv).

Each place in turn is the only source, and is asked about from all others. All methods of a cell get the same `FRAMES`
source frames and are scored on the same frames of each target place. Nothing is chosen by a score. What has been
computed is kept in --work, so a study that was stopped goes on; --networks takes those of a record as computed, so that
closed form and LDA alone are made again. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.report import begin
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pisa_capc import Frames, load
from pisa_capc.core.progress import console, progress
from pisa_capc.core.provenance import machine, made
from pisa_capc.core.randomness import generator
from pisa_capc.data.deployments import draw_shares
from pisa_capc.data.protocol import split
from pisa_capc.data.scores import as_probability, macro_f1, openset_score
from pisa_capc.data.store.dataset import SUBCARRIERS, Subcarriers
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.data.trials import VerificationScores, claim_scores, verification_score
from pisa_capc.decide.calibration import UCAPC, Careful
from pisa_capc.model.gaussian import fit_backend
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.methods.closed_form import ChannelInClosedForm
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.formats import CsiOptions, ImportOptions, import_dataset

SETS = {
    "location-intel5300": "data_device{device}_location{environment}.dat",
    "environment-nexmon": "{device}_con_{environment}.pcap",
}
PHONES = "cross-session-phones"
FRAMES = 400  # of each device from a source, evenly over its places and times
ASKED = 100  # of each device in a target place
EPOCHS, SEED = 10, 2026
SHRUNK = {"LDA": 1e-6, "LDA, shrunk": 1e-3}  # part by which a covariance is shrunk: it can just be inverted; as ours
NOMINAL = 0.05
FALSE_ACCEPTS = [round(float(rate), 5) for rate in np.geomspace(5e-4, 0.9, 40)]  # at which misses are recorded
DRAWS, DRAWN = 2, 100  # captures of a kind drawn from a target place, and their frames
CAPTURES: dict[str, dict[str, Any]] = {
    "balanced": {},
    "dirichlet-1": {"dirichlet": 1.0},
    "dirichlet-0.3": {"dirichlet": 0.3},
    "one missing": {"missing": 0.25},
    "one alone": {"devices": 1},
}
CALIBRATIONS = {"u-capc": UCAPC(), "careful": Careful()}
CLOSED = "closed form"
NETWORKS = {f"{name}, {front}": (name, front) for front in ("antenna", "common") for name in ("pisa", "single")}

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Cell:
    """Which places are learnt from, and which are asked."""

    name: str
    source: tuple[str, ...]
    target: tuple[str, ...]


def cells(places: tuple[str, ...]) -> list[Cell]:
    others = {place: tuple(other for other in places if other != place) for place in places}
    one = [Cell(f"one/{place}", (place,), others[place]) for place in places]
    return one + [Cell(f"others/{place}", others[place], (place,)) for place in places]


def evenly(frames: Frames, places: tuple[str, ...], count: int) -> Frames:
    """So many frames of each device, evenly over the places and their times."""
    rows = []
    for place in places:
        for device in range(len(frames.devices)):
            here = (frames.environment == frames.environments.index(place)) & (frames.device == device)
            own = np.flatnonzero(here)
            rows.append(own[np.linspace(0, len(own) - 1, min(count // len(places), len(own))).astype(int)])
    return frames.select(np.sort(np.concatenate(rows)))


def run_of(frames: Frames, cell: Cell) -> Run:
    chosen = Frames.concatenate([evenly(frames, cell.source, FRAMES), asked(frames, cell)])
    return Run(split(chosen, cell.source, cell.target, SEED, few_shot=0), SEED)


def asked(frames: Frames, cell: Cell) -> Frames:
    return evenly(frames, cell.target, ASKED * len(cell.target))


def network(frames: Frames, cell: Cell, method: str, front: str) -> dict[str, Any]:
    how = {"encoder": "cnn", "epochs": EPOCHS, "device": "cpu", "threads": 1, "show": False}
    [trained] = fit(run_of(frames, cell), method=method, front=front, **how)
    return {f"{method}, {front}": scored(trained, asked(frames, cell), cell)}


def closed_form(frames: Frames, cell: Cell) -> dict[str, Any]:
    """And LDA on the very values that it measures."""
    run = run_of(frames, cell)
    [trained] = fit(run, method="closed-form", device="cpu", threads=1, show=False)
    there, train = asked(frames, cell), run.split.train
    probability = by_lda(trained, train, there)
    found = {CLOSED: scored(trained, there, cell)}
    for name, own in probability.items():
        classes = own.argmax(axis=1)
        found[name] = in_captures({"direct": lambda rows, classes=classes: classes[rows]}, there, cell)  # type: ignore[misc]
    probability[CLOSED] = as_probability(embed(trained, there, "cpu").logits)
    found["claims"] = {name: verified(claim_scores(there.device, own)) for name, own in probability.items()}
    if len(cell.source) > 1:
        found["strangers"] = strangers(trained, train, there)
    return found


def by_lda(trained: TrainedModel, train: Frames, there: Frames) -> dict[str, NDArray[np.float64]]:
    """(N, C) class probabilities of linear discriminants on what the closed form measures."""
    (value, _), (new, _) = measured(trained, train), measured(trained, there)
    return {
        name: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=part).fit(value, train.device).predict_proba(new)
        for name, part in SHRUNK.items()
    }


def verified(found: VerificationScores | None) -> dict[str, Any]:
    """EER, Cllr, and misses at the false accepts of `FALSE_ACCEPTS`."""
    assert found is not None, "there are several devices"
    misses = np.interp(FALSE_ACCEPTS, found.false_accept[::-1], found.miss[::-1])
    return {**{name: round(value, 4) for name, value in found.to_json().items()}, "miss": misses.round(4).tolist()}


def measured(trained: TrainedModel, frames: Frames) -> Any:
    assert isinstance(trained.model, ChannelInClosedForm)
    return trained.model.measured(trained.seen(frames).iq)


def scored(trained: TrainedModel, there: Frames, cell: Cell) -> dict[str, Any]:
    """Macro-F1 by target place, kind of capture and calibration."""
    outputs = embed(trained, there, "cpu")

    def calibrated(calibration: Any) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
        def decide(rows: NDArray[np.int64]) -> NDArray[np.int64]:
            part = outputs.embedding[rows], outputs.logits[rows], outputs.capture[rows]
            return np.asarray(calibration.calibrate(*part, outputs.statistics).prediction)

        return decide

    direct = outputs.logits.argmax(axis=1)
    return in_captures(
        {"direct": lambda rows: direct[rows]} | {k: calibrated(v) for k, v in CALIBRATIONS.items()}, there, cell
    )


def in_captures(
    stages: Mapping[str, Callable[[NDArray[np.int64]], NDArray[np.int64]]], there: Frames, cell: Cell
) -> dict[str, dict[str, dict[str, float]]]:
    """By place, kind of capture and stage; the draws are the same for all methods."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    classes = len(there.devices)
    for place in cell.target:
        here = np.flatnonzero(there.environment == there.environments.index(place))
        found[place] = {}
        for kind, how in CAPTURES.items():
            scores: dict[str, list[float]] = {stage: [] for stage in stages}
            for rows in drawn(here, there.device[here], classes, how, f"{cell.name} {place} {kind}"):
                for stage, decide in stages.items():
                    scores[stage].append(macro_f1(there.device[rows], decide(rows), classes, present=True))
            found[place][kind] = {stage: round(float(np.mean(values)), 4) for stage, values in scores.items()}
    return found


def drawn(
    here: NDArray[np.int64], device: NDArray[np.int64], classes: int, how: Mapping[str, Any], name: str
) -> Iterator[NDArray[np.int64]]:
    """Rows of drawn captures; all rows of a balanced one."""
    if not how:
        yield here
        return
    for draw in range(DRAWS):
        random = generator(SEED, "real", name, draw)
        counts = np.round(draw_shares(classes, random, **how) * DRAWN).astype(int)
        rows = [random.permutation(here[device == number])[:count] for number, count in enumerate(counts)]
        yield np.sort(np.concatenate(rows))


def strangers(trained: TrainedModel, train: Frames, there: Frames) -> dict[str, Any]:
    """Each device in turn is left out of the closed form: AUROC, and what is accepted and rejected at 5 %; and by the
    likelihood ratio of a known against an unknown device, all devices' frames together.
    """
    (value, error), (new, own) = measured(trained, train), measured(trained, there)
    assert isinstance(trained.model, ChannelInClosedForm)
    rows: dict[str, list[float]] = {"auroc": [], "accepted": [], "rejected": []}
    ratios: dict[bool, list[NDArray[np.float64]]] = {True: [], False: []}
    for left_out in range(len(train.devices)):
        kept = train.device != left_out
        names, number = np.unique(train.device[kept], return_inverse=True)
        place = train.environment[kept]
        expected = trained.model.expected()
        backend = fit_backend(value[kept], error[kept], number, place, [str(name) for name in names], **expected)
        evidence = backend.evidence(new, own)
        nearest, p = backend.distance(evidence).min(axis=1), backend.p_value(evidence)
        stranger = there.device == left_out
        right = np.ones(int((~stranger).sum()), dtype=bool)
        rows["auroc"].append(openset_score(nearest[~stranger], right, nearest[stranger]).auroc)
        rows["accepted"].append(float(np.mean(p[stranger] >= NOMINAL)))
        rows["rejected"].append(float(np.mean(p[~stranger] < NOMINAL)))
        ratio = -backend.strangeness(evidence)
        ratios[True].append(ratio[~stranger])
        ratios[False].append(ratio[stranger])
    means = {name: round(float(np.mean(values)), 4) for name, values in rows.items()}
    return {**means, "ratio": verified(verification_score(*map(np.concatenate, ratios.values())))}


def phones(folder: Path) -> Frames:
    """Two sessions of five phones, each cut in two; complex numbers are text."""
    csi, device, part = [], [], []
    for path in sorted(folder.glob("[AB]_s*.csv")):
        lines = path.read_text().splitlines()
        rows = [[complex(each.replace(" ", "").replace("i", "j")) for each in line.split(",")] for line in lines]
        csi.append(np.array(rows)[:, None])
        device += [path.stem[2:]] * len(rows)
        part += [f"{path.stem[0]} {'early' if 10 * i < 7 * len(rows) else 'late'}" for i in range(len(rows))]
    frames = Frames.from_arrays(np.concatenate(csi), device=device, environment=part, sample_rate_hz=20e6)
    numbers = Subcarriers(tuple(number for number in range(-28, 29) if number))
    return replace(frames, domain=SUBCARRIERS, subcarriers=numbers)


def sessions(frames: Frames) -> dict[str, Any]:
    """From the early part of a session to its late part, and to the other session."""
    found = {}
    for own, other in ("AB", "BA"):
        cell = Cell(f"session/{own}", (f"{own} early",), (f"{own} late", f"{other} early", f"{other} late"))
        run = Run(split(frames, cell.source, cell.target, SEED, few_shot=0), SEED)
        [trained] = fit(run, method="closed-form", device="cpu", threads=1, show=False)
        how = {"encoder": "cnn", "epochs": EPOCHS, "device": "cpu", "threads": 1, "show": False}
        [learnt] = fit(run, method="pisa", **how)
        found[own] = {}
        for name, places in (("same session", cell.target[:1]), ("other session", cell.target[1:])):
            there = frames.where(environment=places)
            new, error = measured(trained, there)
            backend = trained.model.backend
            decided = {
                CLOSED: trained.model.backend.log_likelihood(backend.evidence(new, error)).argmax(axis=1),
                **{name: own.argmax(axis=1) for name, own in by_lda(trained, run.split.train, there).items()},
                "pisa, antenna": embed(learnt, there, "cpu").logits.argmax(axis=1),
            }
            p = backend.p_value(backend.evidence(new, error))
            found[own][name] = {
                "frames": len(there),
                "macro_f1": {k: round(macro_f1(there.device, v, len(there.devices)), 4) for k, v in decided.items()},
                "none that I know": round(float(np.mean(p < NOMINAL)), 4),
                "p, median": float(f"{np.median(p):.3g}"),
            }
    return found


def kept(path: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was computed before, or is now."""
    if not path.is_file():
        write_text_atomic(path, json.dumps(compute()))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def keep_networks(record: dict[str, Any], work: Path) -> dict[str, Any]:
    """Lay the networks of a record where computed ones are kept; how that record was made."""
    for name, own in record["sets"].items():
        for cell, found in own["cells"].items():
            for title in NETWORKS:
                write_text_atomic(path_of(work, name, cell, title), json.dumps({title: found[title]}))
    if "sessions" in record:
        write_text_atomic(work / "sessions.json", json.dumps(record["sessions"]))
    return {"made": record["made"], "machine": record["machine"]}


def path_of(work: Path, name: str, cell: str, title: str) -> Path:
    """Where what was computed of a cell of a set is kept."""
    return work / name / f"{cell.replace('/', '-')}-{title.replace(', ', '-').replace(' ', '-')}.json"


def of_set(name: str, frames: Frames, work: Path) -> dict[str, Any]:
    """Every cell of a set: first what takes seconds, then the networks."""
    plan = cells(frames.environments)
    jobs: list[tuple[Cell, str, Callable[[Cell], dict[str, Any]]]] = [
        (cell, CLOSED, lambda cell: closed_form(frames, cell)) for cell in plan
    ]
    for title, (method, front) in NETWORKS.items():
        jobs += [(cell, title, lambda cell, m=method, f=front: network(frames, cell, m, f)) for cell in plan]  # type: ignore[misc]
    found: dict[str, Any] = {cell.name: {} for cell in plan}
    with progress(name, len(jobs)) as bar:
        for number, (cell, title, compute) in enumerate(jobs, 1):
            path = path_of(work, name, cell.name, title)
            found[cell.name] |= kept(path, lambda compute=compute, cell=cell: compute(cell))  # type: ignore[misc]
            bar.advance(note=f"{title}, {cell.name}")
            if not console.is_terminal:
                print(f"{name}: {number} of {len(jobs)}, {title}, {cell.name}", flush=True)
    assert frames.subcarriers is not None
    about = {"antennas": frames.antennas, "subcarriers": len(frames.subcarriers.used), "devices": len(frames.devices)}
    return {"about": {**about, "frames": len(frames), "places": list(frames.environments)}, "cells": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets, see above")
    parser.add_argument("--work", type=Path, default=Path("work/real"), help="folder of what was computed (work/real)")
    parser.add_argument("--networks", type=Path, help="a record whose networks and sessions are taken as computed")
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    record: dict[str, Any] = {
        "study": "real", "machine": machine(), "made": made(),
        "frames": FRAMES, "asked": ASKED, "epochs": EPOCHS, "seed": SEED,
        "lda_shrinkage": SHRUNK, "nominal": NOMINAL, "draws": DRAWS, "drawn_frames": DRAWN,
        "false_accepts": FALSE_ACCEPTS, "sets": {},
    }  # fmt: skip
    if options.networks is not None:
        record["networks"] = keep_networks(json.loads(options.networks.read_text()), options.work)
    for name, pattern in SETS.items():
        how = ImportOptions(pattern=pattern, csi=CsiOptions(skip_bad=True))
        import_dataset("csi", options.data / name, options.work / "data" / name, how)
        record["sets"][name] = of_set(name, load(options.work / "data" / name), options.work)
    if (options.data / PHONES).is_dir():
        record["sessions"] = kept(options.work / "sessions.json", lambda: sessions(phones(options.data / PHONES)))
    if options.out is not None:
        write_text_atomic(options.out, json.dumps(record) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    begin(main)
