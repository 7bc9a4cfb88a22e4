"""Calibrations of trained models in deployments as they are, from embeddings that `studies.embeddings` has kept.

    python -m studies.calibrations --embeddings work/embeddings        # on source environments, to choose by
    python -m studies.calibrations --switch --only E2-2026.2026 --work work/switch --out work/switch.json
    python -m studies.calibrations --embeddings work/embeddings --target E1 --out results/studies/calibrations.json

Without --target a model of one source environment meets the other one: source data of the models that have both. What
is scored is kept by model in --work and not made again, so that processes may share the work: --only pisa-cnn takes
the models with that in their names. A model that has not learnt its own source is left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.report import begin, machine, made
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.cli.output import print_table
from pisa_capc.core.errors import DataError
from pisa_capc.core.progress import progress
from pisa_capc.data.chance import at_chance
from pisa_capc.data.deployments import Deployment, Drawn, draw_frames
from pisa_capc.data.scores import confusion_matrix, mean_f1
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.calibration import UCAPC, Calibrator, Careful, SourceStatistics, calibrators, find_groups
from pisa_capc.decide.calibration.careful import NEVER
from pisa_capc.decide.calibration.peers import LDA
from studies.embeddings import kept_in
from studies.joint import Fit, Gated, Joint
from studies.rehearsals import Rehearsals, learn_thresholds, rehearse
from studies.safe import Guard, Safe

SOURCE = ("E2", "E3")
LOST = 0.02  # of Macro-F1: a capture that lost more is counted
# As of protocols/calibration-study.yaml, with fewer frames where 128 of a device are kept, and what it lacks.
DEPLOYMENTS = (
    Deployment("balanced"),
    Deployment("dirichlet-1", frames=256, dirichlet=1.0, repeats=2),
    Deployment("dirichlet-0.3", frames=256, dirichlet=0.3, repeats=2),
    Deployment("missing", frames=256, missing=0.3),
    Deployment("captures-32", frames=32, repeats=2),
    Deployment("captures-128", frames=128),
    Deployment("captures-512", frames=512),
    Deployment("two-devices", frames=256, devices=2),
    Deployment("one-device", frames=256, devices=1),
    Deployment("bursts", frames=128, bursts=6, repeats=2),
    Deployment("stays", frames=256, stays=True, repeats=2),
    Deployment("joined", frames=512, joined=2),
    Deployment("small-skewed", frames=32, dirichlet=1.0, repeats=2),
)
MIXED = Deployment("mixed", frames=256)  # as many frames again of the source, which a model knows
# Where devices are there that a model does not know; frames of these are calibrated and not scored.
STRANGERS = (
    Deployment("captures-512", frames=512),
    Deployment("unknown-0.1", frames=512, unknown=0.1),
    Deployment("unknown-0.3", frames=512, unknown=0.3),
)
SWITCH = (0.9, 0.94, 0.96, 0.97, 0.98, 0.99)  # evenness from which careful believes in a balance
WITHHELD = Deployment("withheld", identifiers=False)
TWO = ("safe", "joint", "gated", "pt-map", "transclip")  # for the main table alone: nothing to rehearse on, or long


class Name(NamedTuple):
    """What the name of a file says of its model."""

    waveform: str
    devices: str
    enrolled: str
    method: str
    encoder: str
    source: str
    run: str  # the seeds of its split and of its training, as 2026.2027

    @classmethod
    def of(cls, path: Path) -> Name:
        waveform, devices, enrolled, *method, encoder, source, run = path.stem.split("-")
        return cls(waveform, devices, enrolled, "-".join(method), encoder, source, run)

    @property
    def seed(self) -> int:
        """Of the training."""
        return int(self.run.split(".")[-1])

    @property
    def kind(self) -> tuple[str, int, bool]:
        """What models of a table have in common: waveform, source environments, and whether there are strangers."""
        return self.waveform, len(self.environments), self.devices != self.enrolled

    @property
    def environments(self) -> tuple[str, ...]:
        return tuple(self.source.split("+"))

    def __str__(self) -> str:
        return "-".join(self)


@dataclass(frozen=True)
class Model:
    """Frames (N) that a model has not been trained on, as it sees them, and what it knows of its source."""

    name: Name
    embedding: NDArray[np.float32]
    device: NDArray[np.int64]
    environment: NDArray[np.str_]
    capture: NDArray[np.str_]
    frame: NDArray[np.int64]
    source: SourceStatistics

    @classmethod
    def read(cls, path: Path) -> Model:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        environment = arrays["environments"][arrays["environment"]]
        capture = np.char.add(np.char.add(environment, "/"), arrays["capture"].astype(str))
        device, frame = (arrays[name].astype(np.int64) for name in ("device", "frame"))
        z, source = arrays["z"].astype(np.float32), SourceStatistics.from_arrays(arrays)
        return cls(Name.of(path), z, device, environment, capture, frame, source)

    @property
    def classes(self) -> int:
        return len(self.source.weight)  # type: ignore[arg-type]

    @cached_property
    def logits(self) -> NDArray[np.float32]:
        bias = 0.0 if self.source.bias is None else self.source.bias
        return (self.embedding @ np.asarray(self.source.weight).T + bias).astype(np.float32)

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Whether frames are of devices that the model knows."""
        return self.device < self.classes

    def at(self, environments: Iterable[str]) -> NDArray[np.int64]:
        """Rows of the frames of these environments, of devices that the model knows."""
        return np.flatnonzero(np.isin(self.environment, list(environments)) & self.known)

    def draw(self, deployment: Deployment, rows: NDArray[np.int64], rng: np.random.Generator) -> Drawn:
        own = (self.device[rows], self.capture[rows], self.frame[rows])
        strange = np.flatnonzero(np.isin(self.capture, self.capture[rows]) & ~self.known)
        drawn = draw_frames(deployment, *own, self.classes, self.capture[strange], rng)
        group = np.unique(drawn.group, return_inverse=True)[1]
        return Drawn(rows[drawn.rows], strange[drawn.unknown], group)

    def withheld(self, rows: NDArray[np.int64]) -> Drawn:
        """Frames as a receiver sees them, their captures found."""
        drawn = self.draw(WITHHELD, rows, np.random.default_rng(0))
        order = drawn.rows
        groups = find_groups(self.embedding[order], self.logits[order], None, self.frame[order])
        return drawn._replace(group=np.unique(groups, return_inverse=True)[1])

    def cells(self, environment: str) -> Iterator[tuple[str, Drawn]]:
        """The frames of every kind of deployment in an environment."""
        rng = np.random.default_rng([self.name.seed, len(environment)])
        there, home = self.at([environment]), self.at(self.name.environments)
        if not self.known.all():
            yield from ((deployment.name, self.draw(deployment, there, rng)) for deployment in STRANGERS)
            return
        for deployment in DEPLOYMENTS:
            yield deployment.name, self.draw(deployment, there, rng)
        new, known = (self.draw(MIXED, rows, rng) for rows in (there, home))
        shared = known.group <= new.group.max()
        pairs = [np.concatenate((a, b[shared])) for a, b in zip(new, known, strict=True) if len(b)]
        yield MIXED.name, Drawn(pairs[0], new.unknown, pairs[1])
        yield WITHHELD.name, self.withheld(there)


def guard_of(models: Sequence[Model], seed: int) -> Guard:
    """As `studies.rehearsals.learn_guard`: models that lack an environment there, and the model on held-out frames."""
    parts = []
    for model in models:
        missing = [name for name in SOURCE if name not in model.name.environments]
        rows = model.at(missing or SOURCE)
        at = (model.embedding[rows], model.logits[rows], model.device[rows], model.capture[rows])
        parts.append(rehearse(*at, seed))
    return learn_thresholds(Rehearsals.join(parts))


class Once:
    """The fits of the newest frames, for both that need them."""

    _of, _fits = b"", None

    def fits(self, embedding: Tensor, *more: Any) -> Fit:
        if (now := embedding.numpy().tobytes()) != Once._of:
            Once._of, Once._fits = now, super().fits(embedding, *more)  # type: ignore[misc]
        return Once._fits  # type: ignore[return-value]


class OnceJoint(Once, Joint):
    title = Joint.title


class OnceGated(Once, Gated):
    title = Gated.title


def methods() -> dict[str, Calibrator]:
    """Every registered calibration by capture, those of the studies, and U-CAPC without a prior."""
    named = {name: kind(group="capture") for name, kind in calibrators().items()}  # type: ignore[call-arg]
    named |= {"safe": Safe(), "joint": OnceJoint(), "gated": OnceGated()}
    named |= {"careful": Careful(watch=False)}  # as when the records were made
    return {**named, "without-prior": UCAPC(prior="none")}


def switched() -> dict[str, Calibrator]:
    """Careful that believes in a balance sooner or later, or never."""
    width = Careful.full - Careful.even
    moved = {f"from {x:g}": Careful(few=min(Careful.few, x), even=x, full=x + width, watch=False) for x in SWITCH}
    return {**moved, "never": Careful(even=NEVER, watch=False)}


def scored(model: Model, environment: str, chosen: dict[str, Calibrator]) -> dict[str, Any]:
    """By cell and method: Macro-F1 of all frames, and of each capture, over the devices that are there and known."""
    found: dict[str, Any] = {}
    for cell, drawn in model.cells(environment):
        tables: dict[str, list[NDArray[np.int64]]] = {name: [] for name in chosen}
        every = np.concatenate((drawn.rows, drawn.unknown))
        for rows in (every[drawn.group == g] for g in range(drawn.group.max() + 1)):
            known, at = model.known[rows], (model.embedding[rows], model.logits[rows])
            truth = model.device[rows][known]
            for name, calibration in chosen.items():
                decided = np.asarray(calibration.calibrate(*at, source=model.source).prediction)
                tables[name].append(confusion_matrix(truth, decided[known], model.classes))
        found[cell] = {
            name: {
                "f1": round(mean_f1(np.sum(own, axis=0), present=True), 5),
                "captures": [round(mean_f1(t, present=True), 4) for t in own],
            }
            for name, own in tables.items()
        }
    return found


def score_all(
    paths: Sequence[Path], target: str | None, work: Path, only: str, names: Sequence[str]
) -> dict[Name, dict[str, Any]]:
    """What every model scored, by its name; only what is not in `work` is made."""
    work.mkdir(parents=True, exist_ok=True)
    by_name = {Name.of(path): path for path in paths}
    wanted = [
        name
        for name in by_name
        if only in str(name) and (target not in name.environments if target else len(name.environments) == 1)
    ]
    found = {}
    with progress("calibrations", len(wanted)) as bar:
        for name in wanted:
            environment = target or next(e for e in SOURCE if e not in name.environments)
            kept = work / f"{name}-{environment}.json"
            old = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
            chosen = {
                n: c
                for n, c in (methods() | switched()).items()
                if n in names and n not in next(iter(old.values()), {})
            }
            if name.kind[1:] != (2, False):
                chosen = {n: c for n, c in chosen.items() if n not in TWO}
            model = Model.read(by_name[name])
            bar.advance()
            if at_chance(str(name), np.asarray(model.source.confusion).T):
                continue
            alike = [by_name[n] for e in SOURCE if (n := name._replace(source=e)) in by_name]
            if len(alike) < len(SOURCE):
                chosen.pop("safe", None)  # nothing to rehearse on
            if chosen:
                if "safe" in chosen:
                    chosen["safe"] = Safe(guard_of([*map(Model.read, alike), model], name.seed).thresholds)
                for cell, scores in scored(model, environment, chosen).items():
                    old.setdefault(cell, {}).update(scores)
                write_text_atomic(kept, json.dumps(old))
            found[name] = old
    return found


def kept_scores(target: str | None, work: Path, only: str) -> dict[Name, dict[str, Any]]:
    """What was scored before, by the name of the model, whether its embeddings are still there or not."""
    found = {}
    for path in sorted(work.glob("*.json")):
        name, _, environment = path.stem.rpartition("-")
        if only in name and target in (None, environment):
            found[Name.of(Path(f"{name}.npz"))] = json.loads(path.read_text(encoding="utf-8"))
    return found


def summary(results: dict[Name, dict[str, Any]]) -> list[dict[str, Any]]:
    """One table for every kind of model, and its weakest model: what it has by direct inference in the first cell, and
    without it the least mean change of an encoder in a cell, by method."""
    tables = []
    for kind in sorted({name.kind for name in results}):
        own = {n: r for n, r in results.items() if n.kind == kind}
        first = next(iter(next(iter(own.values()))))
        weakest = min(own, key=lambda name: own[name][first]["direct"]["f1"])
        others = by_cell({n: r for n, r in own.items() if n != weakest or len(own) == 1})
        about = dict(zip(("waveform", "sources", "strangers"), kind, strict=True))
        about |= {
            "models": len(own),
            "encoders": list(dict.fromkeys(name.encoder for name in own)),
            "runs": sorted({name.run for name in own}),
            "weakest": {
                "model": str(weakest),
                "direct": round(own[weakest][first]["direct"]["f1"], 4),
                "worst_without": {m: min(scores[m]["worst"] for scores in others.values()) for m in others[first]},
            },
        }
        tables.append({**about, "cells": by_cell(own)})
    return tables


def by_cell(own: dict[Name, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By cell and method: the mean Macro-F1 and its change, the least mean change of an encoder and whose it is, the
    share of captures that lost more than `LOST`, and how many models it was scored for where that is not all."""
    known = set.union(*(set(next(iter(scores.values()))) for scores in own.values()))
    table: dict[str, dict[str, Any]] = {}
    for cell in next(iter(own.values())):
        table[cell] = {}
        for method in (m for m in methods() | switched() if m in known):
            pairs = [
                (name.encoder, scores[cell][method], scores[cell]["direct"])
                for name, scores in own.items()
                if method in scores[cell]
            ]
            gain = {e: fmean(a["f1"] - d["f1"] for own, a, d in pairs if own == e) for e, _, _ in pairs}
            lost = [x < y - LOST for _, a, d in pairs for x, y in zip(a["captures"], d["captures"], strict=True)]
            worst = min(gain, key=gain.__getitem__)
            table[cell][method] = {
                "f1": round(fmean(a["f1"] for _, a, _ in pairs), 4),
                "gain": round(fmean(a["f1"] - d["f1"] for _, a, d in pairs), 4),
                "worst": [round(gain[worst], 4), worst],
                "lost": round(fmean(lost), 4),
                **({} if len(pairs) == len(own) else {"models": len(pairs)}),
            }
    return table


def head_change(model: Model, environments: Iterable[str]) -> float:
    """What the LDA head changes of Macro-F1 in the place of the trained one, on all frames of these environments."""
    rows = model.at(environments)
    at, truth = (model.embedding[rows], model.logits[rows]), model.device[rows]
    heads = (np.asarray(LDA().calibrate(*at, source=model.source).prediction), at[1].argmax(axis=1))
    lda, own = (mean_f1(confusion_matrix(truth, decided, model.classes), present=True) for decided in heads)
    return lda - own


def heads(paths: Sequence[Path], names: Iterable[Name], target: str) -> list[dict[str, Any]]:
    """Another head, by waveform and number of source environments: its change of Macro-F1 on source validation, between
    source environments where a model has met one alone, and in the target; and of the models that it is better for on
    source validation how many there are, and its change in the target for these."""
    changes: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for path in (path for path in paths if Name.of(path) in set(names) and not Name.of(path).kind[2]):
        model = Model.read(path)
        own = model.name.environments
        other = head_change(model, set(SOURCE) - set(own)) if len(own) == 1 else 0.0
        known = changes.setdefault((model.name.waveform, len(own)), [])
        known.append((head_change(model, own), other, head_change(model, [target])))
    found = []
    for (waveform, sources), values in changes.items():
        validation, between, there = (np.array(column) for column in zip(*values, strict=True))
        better = validation > 0
        of = {"validation": validation.mean(), "target": there.mean()}
        of |= {"between": between.mean()} if sources == 1 else {}
        of |= {"chosen": there[better].mean()} if better.any() else {}
        about = {"waveform": waveform, "sources": sources, "models": len(values), "better": int(better.sum())}
        found.append({**about, **{name: round(float(value), 4) for name, value in of.items()}})
    return found


def show(tables: Sequence[dict[str, Any]]) -> None:
    for table in tables:
        cells = table["cells"]
        names = list(next(iter(cells.values())))
        rows = [[cell, *(f"{scores[name]['gain']:+.3f}" for name in names)] for cell, scores in cells.items()]
        rows.append(["mean", *(f"{fmean(scores[name]['gain'] for scores in cells.values()):+.3f}" for name in names)])
        rows.append(["worst", *(f"{min(s[name]['worst'][0] for s in cells.values()):+.3f}" for name in names)])
        title = f"{table['waveform']}, {table['sources']} source environments, {table['models']} models"
        print_table(f"Change of Macro-F1: {title}", ["cell", *names], rows, left=["cell"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, default=Path("work/embeddings"))
    parser.add_argument("--work", type=Path, default=Path("work/calibrations"), help="what was scored, by model")
    parser.add_argument("--target", help="environment that every model meets; the other of the source unless told")
    parser.add_argument("--only", default="", help="models with this in their names")
    parser.add_argument("--methods", default=",".join(methods()), help="calibrations to score (all)")
    parser.add_argument(
        "--switch", action="store_true", help="instead of --methods: careful, believing sooner or later"
    )
    parser.add_argument("--kept", action="store_true", help="instead of --methods: what was scored before, no more")
    parser.add_argument("--out", type=Path, help="file of the record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = sorted(options.embeddings.glob("*.npz")) if options.kept else kept_in(options.embeddings)
    names = ["direct", "ucapc", *switched()] if options.switch else options.methods.split(",")
    if options.kept:
        results = kept_scores(options.target, options.work, options.only)
    else:
        results = score_all(paths, options.target, options.work, options.only, names)
    if not results:
        raise DataError(
            f"no model was scored: {options.work} and {options.embeddings} have none with {options.only!r}."
        )
    tables = summary(results)
    show(tables)
    if options.out:
        record = {"target": options.target, "lost": LOST, "machine": machine(), "made": made(), "tables": tables}
        if options.target:
            record["heads"] = heads(paths, results, options.target)
        write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    begin(main)
