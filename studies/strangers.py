"""Strangers: every score of them in an environment that no model saw, by the frame and by ten frames of one sender.

    python -m studies.strangers --embeddings work/embeddings --out results/studies/strangers.json

Reads what `studies.embeddings` wrote of simulated sets of 40 devices. Which score to use, and its settings, are chosen
on the source alone: of models of the first 15 devices the next five play the strangers, and each source environment in
turn is left out of the statistics and plays the new place. Then models of the first 20 meet the other 20 in the
environment that was never seen. Where files were made before models kept their sessions, these are from every second
validation frame, and thresholds from the others; where they were made before they kept the CFO, it is drawn again as
the simulator drew it. Crystals that wander more than the simulated ones are tried as well, whether or not the source
shows it, and captures in which some send little.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from benchmarks.report import begin
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pisa_capc.core.randomness import generator
from pisa_capc.data.scores import OpenSetScores, openset_score
from pisa_capc.data.sources import groups
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.calibration.openset import DEFAULT, UnknownScore, score_frames, score_senders, unknown_scores
from pisa_capc.decide.calibration.openset.crowd import CrowdDistance
from pisa_capc.decide.calibration.openset.scores import Mahalanobis, scored, single
from pisa_capc.decide.calibration.openset.session import SessionDistance
from pisa_capc.model.inference.statistics import SourceStatistics, openset_statistics
from pisa_capc.signal.simulation.capture import capture_stream, device_profile, temperature_stream
from pisa_capc.signal.simulation.receiver import nominal_cfo_hz
from pisa_capc.signal.simulation.scene import load_scene
from studies.embeddings import kept_in

Rows: TypeAlias = NDArray[np.int64]

ENROLLED, PROXIES = 15, 20  # of a model that the choice is made with: trained on, and before which others are proxies
STRANGERS = 20  # the first device that no choice has seen
TOGETHER = 10  # frames of one sender
KINDS = {"frame": 1, "sender": TOGETHER}
POOLED = (1, 2, 3, 5, 10, 20, 30)
SHARES = (0.01, 0.05)  # of false rejections
CURVE = np.geomspace(0.002, 0.5, 25)  # shares of false rejections at which curves are kept
MOVED = (0.0, 1.0, 3.0, 10.0)  # λ of `session` that were compared
NEAR = (0.2, 0.3, 0.4, 0.5)  # ν of `crowd` that were compared
FEW = 4  # frames of a device in a capture, of those that send little
WANDER = (0.0, 1.0, 2.0, 4.0)  # ppm, standard deviation of how far crystals move between places besides the simulated
SEED, SCALE = 2026, 0.5  # of the sets that the embeddings are of


@dataclass(frozen=True, eq=False)
class Model:
    """Embeddings of one model, all frames."""

    z: torch.Tensor
    logits: torch.Tensor
    cfo_hz: torch.Tensor  # (N,)
    device: Rows
    where: Rows  # (N, 2) environment, capture
    frame: Rows
    environments: tuple[str, ...]
    captures: int
    source: SourceStatistics
    enrolled: int
    seed: str

    @classmethod
    def read(cls, path: Path) -> Model:
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
        source = SourceStatistics.from_arrays(found)
        z = torch.from_numpy(found["z"].astype(np.float64))
        logits = z @ torch.as_tensor(source.weight).double().T + torch.as_tensor(source.bias).double()
        where = np.stack([found["environment"], found["capture"]], axis=1).astype(np.int64)
        names = tuple(str(name) for name in found["environments"])
        device = found["device"].astype(np.int64)
        cfo_hz = found["cfo_hz"] if "cfo_hz" in found else drawn_cfo_hz(path.stem, device, where, found["frame"])
        return cls(
            *(z, logits, torch.from_numpy(cfo_hz), device, where, found["frame"], names, int(where[:, 1].max()) + 1),
            # Named as when there was one split: what is drawn for a model goes by its name.
            *(source, logits.shape[1], path.stem.replace(f"-{SEED}.", "-")),
        )

    def wandering(self, ppm: float, environments: Sequence[int]) -> Model:
        """The same with crystals that are off by so much more in some environments, each by its own."""
        scene = load_scene(self.seed.split("-")[0])
        draw = generator(SEED, "wander", self.seed)
        off = ppm * draw.normal(size=(len(self.environments), int(self.device.max()) + 1))
        off[[e for e in range(len(off)) if e not in environments]] = 0
        more = 1e-6 * scene.waveform.carrier_hz * off[self.where[:, 0], self.device]
        return replace(self, cfo_hz=self.cfo_hz + torch.from_numpy(more))

    @property
    def home(self) -> list[int]:
        """Numbers of the source environments, as the file's name has them."""
        return [self.environments.index(name) for name in self.seed.split("-")[-2].split("+")]

    def rows(self, environments: Sequence[int], first: int, last: int) -> Rows:
        """Frames of devices from `first` to before `last` in some environments."""
        here = np.isin(self.where[:, 0], environments)
        return np.flatnonzero(here & (self.device >= first) & (self.device < last))

    def sessions(self, rows: Rows) -> list[Rows]:
        """The frames of each device in each capture, in order."""
        kind = np.unique(np.column_stack([self.device[rows], self.where[rows]]), axis=0, return_inverse=True)[1].ravel()
        own = (rows[members] for members in groups(kind))
        return [found[np.argsort(self.frame[found], kind="stable")] for found in own]

    def senders(self, rows: Rows, frames: int) -> Rows:
        """(n, frames) successive frames of one device in one capture; what is left over is left out."""
        return np.concatenate([own[: len(own) // frames * frames].reshape(-1, frames) for own in self.sessions(rows)])

    def few(self, rows: Rows) -> Rows:
        """Few frames of each device in each capture, evenly over it."""
        return np.concatenate([own[np.arange(FEW) * len(own) // FEW] for own in self.sessions(rows)])

    def statistics(self, train: Rows, held: Rows) -> SourceStatistics:
        """What a model would keep of training frames `train` and validation frames `held`."""
        frames = (self.z[train], self.device[train], self.z[held], self.logits[held], self.device[held])
        carriers = self.cfo_hz[train], self.cfo_hz[held]
        made = openset_statistics(*frames, self.where[train], self.where[held], *carriers)
        return replace(self.source, **{name: value.numpy() for name, value in made.items()})


def drawn_cfo_hz(name: str, device: Rows, where: Rows, frame: Rows) -> NDArray[np.float64]:
    """(N,) CFO of the frames of the set of a file called `name`, mean over antennas, as the simulator drew it."""
    waveform, devices = name.split("-")[:2]
    scene = replace(load_scene(waveform), devices=int(devices), absent=())
    kinds = [
        list(dict.fromkeys(column))
        for column in zip(*((s.environment, s.device, s.capture) for s in scene.layout(SCALE)), strict=True)
    ]
    traces = {}
    for spec in scene.layout(SCALE):
        key = tuple(
            names.index(own) for names, own in zip(kinds, (spec.environment, spec.device, spec.capture), strict=True)
        )
        time_s = scene.waveform.frame_interval_s * np.arange(spec.frames, dtype=np.float64)
        streams = temperature_stream(scene, SEED, spec), capture_stream(scene, SEED, spec, "cfo")
        profile = device_profile(scene, SEED, spec.device)
        traces[key] = nominal_cfo_hz(profile, scene.frequency, scene.waveform.carrier_hz, time_s, *streams).mean(axis=1)
    rows = zip(where[:, 0].tolist(), device.tolist(), where[:, 1].tolist(), frame.tolist(), strict=True)
    return np.array([traces[e, d, c][i] for e, d, c, i in rows])


@dataclass(frozen=True, eq=False)
class Meeting:
    """Frames of known devices and of strangers in a place, and what is known of the source."""

    model: Model
    source: SourceStatistics
    known: Rows
    unknown: Rows

    def scores(self, score: UnknownScore, frames: int) -> OpenSetScores:
        """Of single frames, or of so many of one sender."""
        senders = self.model.senders(self.known, frames)
        logits = self.model.logits[senders, : self.model.enrolled].mean(dim=1)
        right = logits.argmax(dim=1).numpy() == self.model.device[senders[:, 0]]
        known, unknown = self.unlike(score, frames)
        return openset_score(known, right, unknown)

    def unlike(self, score: UnknownScore, frames: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Unknown scores of known devices and of strangers, who are heard together."""
        known, unknown = (self.model.senders(rows, frames) for rows in (self.known, self.unknown))
        rows = np.concatenate([known, unknown]).ravel()
        seen = self.model.z[rows], self.model.logits[rows]
        function = score.fit(self.source, self.model.enrolled, seen[0])
        if frames == 1:
            capture = torch.from_numpy(self.model.where[rows, 0] * self.model.captures + self.model.where[rows, 1])
            found = scored(function, score.gather(self.source, single(*seen, self.model.cfo_hz[rows]), capture))
        else:
            sender = torch.arange(len(rows) // frames).repeat_interleave(frames)
            found = score_senders(function, *seen, sender, self.model.cfo_hz[rows])[::frames]
        return found[: len(known)].numpy(), found[len(known) :].numpy()

    def at(self, score: UnknownScore, frames: int, alpha: float) -> dict[str, float]:
        """What the threshold of the source does here."""
        limit = score.limit(self.source, self.model.enrolled, self.model.z, alpha).threshold
        known, unknown = self.unlike(score, frames)
        return {
            "known rejected": float((known > limit).mean()),
            "strangers accepted": float((unknown <= limit).mean()),
        }

    def quiet(self, known: bool = False, unknown: bool = False) -> Meeting:
        """The same where known devices, or strangers, send little."""
        few = self.model.few
        here = few(self.known) if known else self.known
        return replace(self, known=here, unknown=few(self.unknown) if unknown else self.unknown)


def proxies(model: Model, halves: bool = False) -> Iterator[Meeting]:
    """Source environments in turn, left out of the statistics; devices that were not trained on play the strangers.

    halves: whether thresholds are asked for, which need frames of their own.
    """
    for place in model.home:
        train = model.rows([e for e in model.home if e != place], 0, model.enrolled)
        source = model.statistics(train[::2], train[1::2]) if halves else model.statistics(train, train)
        known = model.rows([place], 0, model.enrolled)
        yield Meeting(model, source, known, model.rows([place], model.enrolled, PROXIES))


def target(model: Model) -> Meeting:
    """The environment that was not seen, and devices that nothing was chosen by."""
    away = [e for e in range(len(model.environments)) if e not in model.home]
    source = model.source
    if source.session_mean is None:
        held = model.rows(model.home, 0, model.enrolled)
        made = model.statistics(held[::2], held[1::2])
        kept = [name for name in vars(made) if "session" in name or "carrier" in name or name.startswith("validation")]
        source = replace(source, **{name: getattr(made, name) for name in kept})
    last = int(model.device.max()) + 1
    return Meeting(model, source, model.rows(away, 0, model.enrolled), model.rows(away, STRANGERS, last))


def figures(found: OpenSetScores) -> dict[str, float]:
    """The areas, and the share of strangers accepted at shares of false rejections."""
    at = {f"false accepts at {share:g}": found.false_accepts_at(share) for share in SHARES}
    return {"auroc": found.auroc, "oscr": found.oscr, "accuracy": found.accuracy, **at}


def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(float(np.mean([row[name] for row in rows])), 4) for name in rows[0]}


def kinds_of(score: UnknownScore) -> dict[str, int]:
    """Numbers of frames that a score takes together; one that gathers them itself takes single ones."""
    return {"frame": 1} if score.needs_captures else KINDS


def measured(meetings: Sequence[Meeting], score: UnknownScore) -> dict[str, Any]:
    """Mean over meetings, by the frame and by frames of one sender."""
    return {kind: mean([figures(one.scores(score, n)) for one in meetings]) for kind, n in kinds_of(score).items()}


def on_target(meetings: Sequence[Meeting], score: UnknownScore) -> dict[str, Any]:
    """The same, with each model's own figures, curves and what the source's thresholds do."""
    found: dict[str, Any] = {"models": [{} for _ in meetings]}
    for kind, frames in kinds_of(score).items():
        scores = [one.scores(score, frames) for one in meetings]
        for own, of in zip(found["models"], scores, strict=True):
            own[kind] = round(of.auroc, 4)
        curves = [[of.false_accepts_at(share) for share in CURVE] for of in scores]
        found[kind] = {
            **mean([figures(of) for of in scores]),
            "curve": np.mean(curves, axis=0).round(4).tolist(),
            "thresholds": {f"{alpha:g}": mean([one.at(score, frames, alpha) for one in meetings]) for alpha in SHARES},
        }
    return found


def by_capture(meetings: Sequence[Meeting], score: UnknownScore) -> list[dict[str, float]]:
    """Of each capture of the place, by the frame."""

    def part(one: Meeting, capture: int) -> Meeting:
        known, unknown = (rows[one.model.where[rows, 1] == capture] for rows in (one.known, one.unknown))
        return replace(one, known=known, unknown=unknown)

    captures = range(meetings[0].model.captures)
    return [mean([figures(part(one, c).scores(score, 1)) for one in meetings]) for c in captures]


def pooled(meetings: Sequence[Meeting], score: UnknownScore, alpha: float) -> dict[str, dict[str, float]]:
    """What one threshold does to ever more frames of one sender."""

    def row(one: Meeting, n: int) -> dict[str, float]:
        return {"auroc": one.scores(score, n).auroc, **one.at(score, n, alpha)}

    return {str(n): mean([row(one, n) for one in meetings]) for n in POOLED}


def quiet(meetings: Sequence[Meeting], alpha: float) -> dict[str, dict[str, dict[str, float]]]:
    """`session` and `crowd` of single frames where all send much, and where some send little."""
    who: dict[str, dict[str, bool]] = {
        "all send much": {},
        "strangers little": {"unknown": True},
        "known little": {"known": True},
        "all little": {"known": True, "unknown": True},
    }

    def row(one: Meeting, score: UnknownScore) -> dict[str, float]:
        found = one.scores(score, 1)
        return {"auroc": found.auroc, "false accepts": found.false_accepts_at(alpha), **one.at(score, 1, alpha)}

    scores = {"session": SessionDistance(), "crowd": CrowdDistance()}
    return {
        name: {words: mean([row(one.quiet(**of), score) for one in meetings]) for words, of in who.items()}
        for name, score in scores.items()
    }


def wander(models: Sequence[Model], score: UnknownScore, alpha: float) -> dict[str, dict[str, dict[str, float]]]:
    """What a score is worth by the frame where crystals wander, everywhere or only where the source did not see it."""

    def row(one: Meeting) -> dict[str, float]:
        found = one.scores(score, 1)
        return {"auroc": found.auroc, "false accepts": found.false_accepts_at(alpha), **one.at(score, 1, alpha)}

    def rows(ppm: float, everywhere: bool) -> dict[str, float]:
        def places(model: Model) -> list[int]:
            return [e for e in range(len(model.environments)) if everywhere or e not in model.home]

        return mean([row(target(model.wandering(ppm, places(model)))) for model in models])

    kinds = {"everywhere": True, "only in the new place": False}
    return {kind: {f"{ppm:g}": rows(ppm, where) for ppm in WANDER} for kind, where in kinds.items()}


def evidence(one: Meeting, rows: Rows) -> NDArray[np.float64]:
    """(n, 7) every score of the fingerprint of single frames, and the length of their embeddings."""
    scores = [unknown_scores()[name]() for name in fingerprints()]
    z, logits = one.model.z[rows], one.model.logits[rows]
    found = [score_frames(score.fit(one.source, one.model.enrolled, z), z, logits).numpy() for score in scores]
    length = np.log(z.norm(dim=1).numpy())
    squared = (SessionDistance, Mahalanobis)  # of any size
    return np.column_stack(
        [*(np.log(u) if isinstance(s, squared) else u for s, u in zip(scores, found, strict=True)), length]
    )


def fingerprints() -> list[str]:
    """The scores of the fingerprint of a frame, without its carrier or other frames."""
    return [name for name, kind in unknown_scores().items() if not (kind.needs_carrier or kind.needs_captures)]


def rule(source: Sequence[Meeting], unseen: Sequence[Meeting]) -> dict[str, dict[str, float]]:
    """All scores together, weighed by a logistic regression that knows proxies from known devices on the source.

    On the source it is fitted where the other environment plays the new place, for the target on all of it.
    """
    seen = {id(one): tuple(evidence(one, rows) for rows in (one.known, one.unknown)) for one in (*source, *unseen)}
    place = {id(one): int(one.model.where[one.known[0], 0]) for one in source}

    def judged(one: Meeting, others: Sequence[Meeting]) -> dict[str, float]:
        parts = [part for other in others for part in seen[id(other)]]
        label = np.repeat(np.arange(len(parts)) % 2, [len(part) for part in parts])
        fitted = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))
        fitted.fit(np.concatenate(parts), label)
        known, unknown = (fitted.decision_function(part) for part in seen[id(one)])
        right = one.model.logits[one.known].argmax(dim=1).numpy() == one.model.device[one.known]
        return figures(openset_score(known, right, unknown))

    elsewhere = {id(one): [o for o in source if place[id(o)] != place[id(one)]] for one in source}
    return {
        "source": mean([judged(one, elsewhere[id(one)]) for one in source]),
        "target": mean([judged(one, source) for one in unseen]),
    }


def one_place(models: Sequence[Model], score: UnknownScore, alpha: float) -> dict[str, Any]:
    """What the thresholds of one source environment do in another."""
    meetings = [meeting for model in models for meeting in proxies(model, halves=True)]
    found = {kind: [one.at(score, n, alpha) for one in meetings] for kind, n in KINDS.items()}
    worst = {kind: round(max(row["known rejected"] for row in rows), 4) for kind, rows in found.items()}
    return {kind: {**mean(rows), "most known rejected": worst[kind]} for kind, rows in found.items()}


def study(folder: Path, waveform: str, say: Callable[[str], None]) -> dict[str, Any]:
    """One waveform's part of the record."""

    def models(enrolled: int) -> list[Model]:
        paths = kept_in(folder, f"{waveform}-40-{enrolled}-pisa-equalised-transformer-*.npz")
        return [Model.read(path) for path in paths]

    kinds = {name: kind() for name, kind in unknown_scores().items()}
    smaller = models(ENROLLED)
    source = [meeting for model in smaller for meeting in proxies(model)]
    selection = {name: measured(source, score) for name, score in kinds.items()}
    moved = {f"{value:g}": measured(source, SessionDistance(value)) for value in MOVED}
    near = {f"{value:g}": measured(source, CrowdDistance(near=value)) for value in NEAR}
    say(f"{waveform}: chosen on {len(source)} meetings of the source")
    larger = models(STRANGERS)
    unseen = [target(model) for model in larger]
    scores = {name: on_target(unseen, score) for name, score in kinds.items()}
    return {
        "models": [one.model.seed for one in unseen],
        "selection": selection,
        "moved": moved,
        "near": near,
        "quiet on the source": quiet([one for model in smaller for one in proxies(model, halves=True)], SHARES[-1]),
        "one place": one_place(smaller, kinds[DEFAULT], SHARES[-1]),
        "target": scores,
        "captures": by_capture(unseen, kinds[DEFAULT]),
        "pooled": pooled(unseen, kinds[DEFAULT], SHARES[-1]),
        "quiet": quiet(unseen, SHARES[-1]),
        "rule": rule(source, unseen),
        "wander": wander(larger, kinds["carrier"], SHARES[-1]),
    }


def chosen(selection: Mapping[str, Mapping[str, Any]]) -> str:
    """The score of the fingerprint with the highest AUROC on the source, mean of the waveforms, by frame and sender."""

    def area(name: str) -> float:
        return float(np.mean([found[name][kind]["auroc"] for found in selection.values() for kind in found[name]]))

    return max(fingerprints(), key=area)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, default=Path("work/embeddings"))
    parser.add_argument("--out", type=Path, default=Path("results/studies/strangers.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    waveforms = {name: study(options.embeddings, name, print) for name in ("wifi", "lora")}
    record = {
        "study": "strangers",
        "together": TOGETHER,
        "curve": CURVE.round(5).tolist(),
        "chosen": chosen({name: found["selection"] for name, found in waveforms.items()}),
        "waveforms": waveforms,
    }
    write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")
    for name, found in waveforms.items():
        for score, row in found["target"].items():
            print(name, score, *(f"{kind} {row[kind]['auroc']:.3f}" for kind in KINDS if kind in row))


if __name__ == "__main__":
    begin(main)
