"""Several devices under one address: how often that is found, and how often where one sends alone.

    make study-shared ARGS="--out results/studies/shared.json"

Radios, sets and models are those of `studies.identify`, ten radios enrolled in E2 and E3. Addresses are put together
from the frames of the set in E1, where no model was: n frames, a share of them of another radio of the same capture, at
the carriers that both have there; and as if the other had tuned to the carrier of the first, or as if one radio's
carrier jumped. Then recordings in E1, with three spoofers each beside those whose addresses they use, in which frames
are found, addresses read and carriers measured.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.report import machine, made
from numpy.typing import NDArray

from pisa_capc.core.progress import console
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.identification import Choices, identify, verify
from pisa_capc.decide.identification.tracks import tracks
from pisa_capc.decide.identification.verification import Reference, evidence, judged, odds_against, shared_in
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.signal.detection import detect
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.simulation.recording import record
from studies.identify import ALPHA, CAPTURES, DUTY, METHODS, TARGET, Trained, Truth, enrol, scene_file

FRAMES = (16, 32, 64)
SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)  # of another's frames
PAIRS = 3  # spoofers of a recording
COLLISIONS = 0.3  # part of its exchanges into which another sends: carriers are measured wrongly there

Rows = NDArray[np.intp]


class Case(NamedTuple):
    """An address: frames in the order of time, and the carrier of each, by which they are told apart."""

    rows: Rows
    carrier_hz: NDArray[np.float64]


class Heard:
    """What a model makes of the set's frames in the new environment, and verdicts on addresses made of them."""

    def __init__(self, trained: Trained, seed: int) -> None:
        frames = trained.frames.where(environment=TARGET)
        seen = embed(trained.model, frames.unlabelled(), "cpu")
        self.logits, self.cfo_hz = seen.logits.astype(np.float64), np.asarray(seen.cfo_hz)
        self.device, self.capture, self.carrier_hz = frames.device, frames.capture, frames.carrier_hz
        self.reference, self.rng = Reference.of(trained.model.statistics), np.random.default_rng(seed)
        self.places = [(int(k), int(c)) for k in np.unique(self.device) for c in np.unique(self.capture)]

    def _some(self, device: int, capture: int, count: int) -> Rows:
        own = np.flatnonzero((self.device == device) & (self.capture == capture))
        return np.sort(self.rng.permutation(own)[:count])

    def mixed(self, device: int, other: int, capture: int, frames: int, share: float) -> Case:
        """Frames of two devices, in random turn, each in its own order; of one where the share is nothing or all."""
        theirs = self._some(other, capture, round(share * frames))
        both = [self._some(device, capture, frames - len(theirs)), theirs]
        turn = self.rng.permutation(np.repeat([0, 1], [len(part) for part in both]))
        rows = np.empty(frames, dtype=np.intp)
        rows[turn == 0], rows[turn == 1] = both
        return Case(rows, self.cfo_hz[rows])

    def verdict(self, case: Case, claimed: int) -> str:
        logits, claims = self.logits[case.rows], len(self.reference.devices)
        track = tracks([claimed] * len(case.rows), case.carrier_hz, self.carrier_hz)
        shared = shared_in(np.zeros(len(track), dtype=np.int64), track, odds_against(logits, claimed))
        return judged(*evidence(logits, claimed, self.reference), shared, ALPHA, ALPHA / claims)[0]

    def verdicts(self, frames: int, share: float, kind: str) -> dict[str, int]:
        """How many addresses have which verdict: every device, with every other one, in every capture."""
        found: Counter[str] = Counter()
        for device, capture in self.places:
            for other in self.reference.devices:
                if other != device:
                    case = self.mixed(device, other, capture, frames, share)
                    found[self.verdict(self._at(case, kind), device)] += 1
        return dict(found)

    def _at(self, case: Case, kind: str) -> Case:
        """tuned: all at one carrier. jumps: at one of two, at random. own: as they were."""
        if kind == "own":
            return case
        side = self.rng.permutation(np.arange(len(case.rows)) % 2) if kind == "jumps" else np.zeros(len(case.rows))
        return case._replace(carrier_hz=side * 10e-6 * self.carrier_hz)


def composed(trained: Trained, seed: int) -> list[dict[str, Any]]:
    """Verdicts on addresses that are put together from the set's frames."""
    heard = Heard(trained, seed)
    cells = [(n, share, "own") for n in FRAMES for share in SHARES]
    cells += [(n, 0.0, "jumps") for n in FRAMES] + [(n, 0.5, "tuned") for n in FRAMES]
    return [
        {"frames": n, "share": share, "carrier": kind, "verdicts": heard.verdicts(n, share, kind)}
        for n, share, kind in cells
    ]


def spoofers(take: int, devices: int) -> dict[str, str]:
    """Who takes whose address in a recording."""
    order = np.random.default_rng(take).permutation(devices)[: 2 * PAIRS] + 1
    return {f"D{who:02d}": f"D{whose:02d}" for who, whose in order.reshape(PAIRS, 2).tolist()}


def recorded(folder: Path, scene: Path, take: int, seconds: float, devices: int, seed: int) -> Path:
    """A recording in which spoofers send beside their victims from its beginning on."""
    spoof = ",".join(f"{who}:{whose}@0" for who, whose in spoofers(take, devices).items())
    made = record(
        "wifi", folder / "recordings", seconds, environment=TARGET, capture=CAPTURES[take % len(CAPTURES)], take=take,
        duty=DUTY["wifi"], spoof=spoof, collisions=COLLISIONS, seed=seed, scene=scene, workers=1, show_progress=False,
    )  # fmt: skip
    return Path(made.recording)


def in_recordings(model: TrainedModel, metas: list[Path]) -> dict[str, dict[str, int]]:
    """Verdicts on the addresses of recordings, of those that two use and of those that one does."""
    found: dict[str, Counter[str]] = {"shared": Counter(), "of one device": Counter()}
    for meta in metas:
        notes = Truth(meta).notes
        taken = {note["pisa:address"] for note in notes if note["pisa:spoofed"]}
        own = {note["pisa:address"]: note["core:label"] for note in notes if not note["pisa:spoofed"]}
        who = identify(model, [detect(open_recording(meta), "wifi")], Choices(), "cpu")
        for one in verify(who, {address: device for address, device in own.items() if address}, ALPHA):
            found["shared" if one.address in taken else "of one device"][one.verdict] += 1
    return {name: dict(counts) for name, counts in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.125, help="part of the frames of each capture (0.125)")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of each training (6)")
    parser.add_argument("--recordings", type=int, default=10, help="recordings (10)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a recording (1)")
    parser.add_argument("--seed", type=int, default=2026, help="seed of everything (2026)")
    parser.add_argument("--folder", type=Path, help="sets and models of `studies.identify`, made where they are not")
    parser.add_argument("--out", type=Path, help="write the record here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        scene = scene_file(folder)
        metas = list[Path]()
        for method in METHODS:
            console.print(method)
            trained = enrol(folder, "wifi", scene, method, options.epochs, options.scale, options.seed)
            devices = len(trained.model.devices)
            metas = metas or [
                recorded(Path(temporary), scene, take, options.seconds, devices, options.seed)
                for take in range(options.recordings)
            ]
            found[method] = {
                "composed": composed(trained, options.seed),
                "recordings": in_recordings(trained.model, metas),
            }
    settings = {name: value for name, value in vars(options).items() if name not in ("folder", "out")}
    text = json.dumps(
        {"study": "shared", "machine": machine(), "made": made(), "settings": settings, "models": found}, indent=1
    )
    if options.out is not None:
        write_text_atomic(options.out, text + "\n")
    print(text)


if __name__ == "__main__":
    main()
