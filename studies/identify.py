"""Raw recordings in, identities out: what `pisa identify` and `pisa verify` do in a place the model never saw.

    make study-identify

Ten radios with coarse hardware are enrolled in E2 and E3. Continuous recordings in E1 hold these and one more, and one
of them takes the address of another; frames are identified as the detector finds them and as the truth cuts them.
Then claims of addresses are tested one recording of the set after the other, genuine and not, on frames like the
reference's, on the same in the order of time, and in E1. The same for LoRa with one method and one recording. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from benchmarks.report import machine, made
from numpy.typing import NDArray

from pisa_capc import Frames, simulate
from pisa_capc.cli.output import print_table
from pisa_capc.core.progress import console
from pisa_capc.data.protocol import Split, split
from pisa_capc.decide.calibration import Calibrator, OpenSet
from pisa_capc.decide.identification import Choices, Identified, identify, verify
from pisa_capc.decide.identification.decide import UNKNOWN
from pisa_capc.decide.identification.evidence import first_beyond
from pisa_capc.decide.identification.verification import SEVERAL, Reference, evidence
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.training import Run, TrainingConfig, fit
from pisa_capc.signal.detection import Found, FoundFrame, detect
from pisa_capc.signal.detection.base import NO_IQ
from pisa_capc.signal.phy import Header
from pisa_capc.signal.recordings import Recording, open_recording
from pisa_capc.signal.simulation.recording import record
from pisa_capc.signal.waveforms import WAVEFORMS
from studies.rehearsals import learn_guard
from studies.safe import Safe

SCENE = Path(__file__).parents[1] / "examples" / "demo_scene.yaml"  # its hardware, but ten radios
SOURCE, TARGET = ("E2", "E3"), "E1"
METHODS = ("pisa-equalised", "single")  # the first is tried on recordings
CAPTURES = ("L1", "L3")
DUTY = {"wifi": 0.15, "lora": 0.5}
LORA: dict[str, Any] = {"scale": 0.05, "epochs": 8, "seconds": 30.0}  # frames are long and come seldom
SPOOF = "D03:D01"  # takes the address of, from half of the recording on
SLACK = 8  # samples between a frame's true beginning and where it is found
ALPHA = 0.01


class Truth:
    """What is true of a simulated recording: its frames as they were sent, and who sent what is found."""

    def __init__(self, meta: Path) -> None:
        notes = json.loads(meta.read_text(encoding="utf-8"))["annotations"]
        self.notes: list[dict[str, Any]] = sorted(notes, key=lambda note: note["core:sample_start"])
        self._starts = np.array([note["core:sample_start"] for note in self.notes])

    def of(self, start: NDArray[np.int64]) -> list[dict[str, Any] | None]:
        """What is true of frames that were found at these samples; None where there is none."""
        near = np.clip(np.searchsorted(self._starts, start - SLACK), 0, len(self._starts) - 1)
        pairs = zip(near.tolist(), start.tolist(), strict=True)
        return [self.notes[n] if abs(self._starts[n] - s) <= SLACK else None for n, s in pairs]

    @property
    def enrolled(self) -> dict[str, str]:
        """Whose addresses are whose."""
        own = [note for note in self.notes if note["pisa:enrolled"] and not note["pisa:spoofed"]]
        return {note["pisa:address"]: note["core:label"] for note in own if note["pisa:address"]}


def found_by_truth(recording: Recording, notes: Sequence[Mapping[str, Any]], waveform: str = "wifi") -> Found:
    """The frames of a recording at the waveform's own rate where its annotations say that they are."""
    frames = [
        FoundFrame(
            note["core:sample_start"],
            NO_IQ,
            np.array(note["pisa:cfo_hz"]),
            np.array(note["pisa:snr_db"]),
            1.0,
            note["core:sample_count"],
            Header(transmitter=note["pisa:address"], fcs=True),
            source=recording.about.name,
            start=note["core:sample_start"],
            end=note["core:sample_start"] + note["core:sample_count"],
            time_s=note["core:sample_start"] / recording.about.sample_rate_hz,
        )
        for note in notes
    ]
    return Found(recording, recording, WAVEFORMS[waveform], tuple(frames))


class Trained(NamedTuple):
    model: TrainedModel
    split: Split
    frames: Frames
    calibration: Calibrator  # the one that was usual for whole captures when the record was made


def scene_file(folder: Path, devices: int = 10) -> Path:
    path = folder / "scene.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(SCENE.read_text()), "devices": devices}))
    return path


def enrol(folder: Path, waveform: str, scene: Path, method: str, epochs: int, scale: float, seed: int) -> Trained:
    """A set of the enrolled radios, a model of them, and U-CAPC under a guard that is learnt on their source."""
    frames = simulate(waveform, folder / waveform, seed=seed, scale=scale, scene=scene, workers=1, show_progress=False)
    part = split(frames, SOURCE, TARGET, seed)
    run, kept = Run(part, seed), folder / "models" / waveform / method
    how: dict[str, Any] = {"method": method, "encoder": "cnn", "training": TrainingConfig(epochs=epochs, batch=64)}
    [model] = fit(run, **how, device="cpu", out=kept)

    def train(name: str, left_out: Run) -> TrainedModel:
        return fit(left_out, **how, device="cpu", out=kept / "left-out" / name)[0]

    guard = learn_guard(run, model, train, torch.device("cpu"))
    assert guard is not None  # there are two source environments
    return Trained(model, part, frames, Safe(guard.thresholds))


def recorded(folder: Path, waveform: str, scene: Path, capture: str, seconds: float, seed: int) -> Path:
    """A recording in the place that the model never saw, with a stranger and a spoofer."""
    made = record(
        waveform, folder / "recordings" / waveform, seconds, environment=TARGET, capture=capture, unknown=1,
        duty=DUTY[waveform], spoof=SPOOF, seed=seed, scene=scene, workers=1, show_progress=False,
    )  # fmt: skip
    return Path(made.recording)


def identified(trained: Trained, meta: Path, waveform: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """How well the frames of a recording are identified, cut by the truth and as they are found."""
    recording, truth = open_recording(meta), Truth(meta)
    yield "cut by the truth", _scores(trained, found_by_truth(recording, truth.notes, waveform), truth)
    yield "detected", _scores(trained, detect(recording, waveform), truth)


def _scores(trained: Trained, found: Found, truth: Truth) -> dict[str, Any]:
    who = identify(trained.model, [found], Choices(trained.calibration), "cpu")
    together = identify(trained.model, [found], Choices(trained.calibration, together_s=1.0), "cpu")
    notes = truth.of(who.seen.start)
    verdicts = verify(who, truth.enrolled, ALPHA)
    spoofed = {note["pisa:address"] for note in truth.notes if note["pisa:spoofed"]}
    alarms = {verdict.address: verdict for verdict in verdicts if verdict.alarm}
    return {
        "frames": len(truth.notes),
        "found": sum(note is not None for note in notes),
        "false": sum(note is None for note in notes),
        **_right(who, notes),
        "together": _right(together, [note if note and note["pisa:address"] else None for note in notes]),
        "addresses": len(truth.enrolled),
        "addresses right": sum(_address_right(together, a, d) for a, d in truth.enrolled.items() if a not in spoofed),
        "spoofed": len(spoofed),
        "spoofed found": len(spoofed & set(alarms)),
        "spoofer named": sum(alarms[a].sounds_like == SPOOF.split(":")[0] for a in spoofed & set(alarms)),
        "found to be of several": sum(alarms[a].verdict == SEVERAL for a in spoofed & set(alarms)),
        "false alarms": len(set(alarms) - spoofed),
        "genuine": sum(verdict.verdict == "genuine" for verdict in verdicts),
    }


def _right(who: Identified, notes: Sequence[Mapping[str, Any] | None]) -> dict[str, float]:
    """Shares of the enrolled radios' frames that are rightly named, that are set aside, and of the stranger's."""
    known = [(d, n["core:label"]) for d, n in zip(who.device, notes, strict=True) if n and n["pisa:enrolled"]]
    strange = [d is None for d, n in zip(who.device, notes, strict=True) if n and not n["pisa:enrolled"]]
    return {
        "known right": float(np.mean([named == true for named, true in known])),
        "known set aside": float(np.mean([named is None for named, _ in known])),
        "stranger set aside": float(np.mean(strange)),
    }


def of_the_set(trained: Trained, capture: str) -> dict[str, float]:
    """The same of the set's frames of the recording's place: what the model does where nothing had to be found."""
    frames = trained.frames.where(environment=TARGET, capture=capture)
    seen = embed(trained.model, frames.unlabelled(), "cpu")
    decider = OpenSet(trained.calibration)
    decided = decider.calibrate(seen.embedding, seen.logits, seen.capture, seen.statistics, carrier_hz=seen.cfo_hz)
    return {
        "known right": float(np.mean(decided.prediction == frames.device)),
        "known set aside": float(np.mean(decided.prediction == UNKNOWN)),
    }


def _address_right(who: Identified, address: str, device: str) -> bool:
    own = [d for d, a in zip(who.device, who.seen.address, strict=True) if a == address]
    return bool(own) and max(set(own), key=own.count) == device


def claims(trained: Trained, seed: int) -> dict[str, dict[str, Any]]:
    """Tests of claims, one recording of the set each: every device under its own address and under each other one.

    On the source half of the validation frames are the reference, in the new environment what the model keeps, as
    `pisa verify` has it.
    """
    rng = np.random.default_rng(seed)
    held, target = trained.split.validation, trained.frames.where(environment=TARGET)
    logits = embed(trained.model, held.unlabelled(), "cpu").logits.astype(np.float64)
    first = rng.permutation(len(held)) < len(held) // 2
    reference = Reference(logits[first], held.device[first])
    mixed = rng.permutation(np.flatnonzero(~first))
    by_device = held.device * 0
    by_recording = held.environment * len(held.captures) + held.capture
    in_time = np.flatnonzero(~first)
    others = embed(trained.model, target.unlabelled(), "cpu").logits.astype(np.float64)
    return {
        "source, shuffled": _claims(logits[mixed], held.device[mixed], by_device[mixed], reference),
        "source, in time": _claims(logits[in_time], held.device[in_time], by_recording[in_time], reference),
        "new environment": _claims(others, target.device, target.capture, Reference.of(trained.model.statistics)),
    }


def _claims(
    logits: NDArray[np.float64], device: NDArray[np.int64], recording: NDArray[np.int64], reference: Reference
) -> dict[str, Any]:
    """Claims of the frames of each device in each recording, in the given order."""
    genuine: list[tuple[int | None, int | None]] = []
    other: list[tuple[int | None, int | None]] = []
    for r in np.unique(recording):
        for d in np.unique(device):
            own = logits[(recording == r) & (device == d)]
            for k in reference.devices if len(own) else ():
                crossed = tuple(first_beyond(curve, ALPHA) for curve in evidence(own, k, reference))
                (genuine if k == d else other).append(crossed)  # type: ignore[arg-type]
    alarms = [against for against, _ in other if against is not None]
    return {
        "genuine": len(genuine),
        "false alarms": sum(against is not None for against, _ in genuine),
        "confirmed": sum(support is not None and against is None for against, support in genuine),
        "others": len(other),
        "alarms": len(alarms),
        "frames until": float(np.median(alarms)) if alarms else None,
        "wrongly confirmed": sum(support is not None and against is None for against, support in other),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.125, help="part of the frames of each capture (0.125)")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of each training (6)")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a recording (1.5)")
    parser.add_argument("--seed", type=int, default=2026, help="seed of everything (2026)")
    parser.add_argument("--folder", type=Path, help="keep set and models here; another start goes on from there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        scene = scene_file(folder)
        for method in METHODS:
            console.print(method)
            trained = enrol(folder, "wifi", scene, method, options.epochs, options.scale, options.seed)
            found[method] = _claimed(trained, options.seed)
            if method == METHODS[0]:
                found["recordings"] = {
                    capture: _recording(trained, Path(temporary), "wifi", scene, capture, options.seconds, options.seed)
                    for capture in CAPTURES
                }
                found["frames of the set"] = {capture: of_the_set(trained, capture) for capture in CAPTURES}
        console.print("lora")
        trained = enrol(folder, "lora", scene, METHODS[0], LORA["epochs"], LORA["scale"], options.seed)
        rows = _recording(trained, Path(temporary), "lora", scene, CAPTURES[0], LORA["seconds"], options.seed)
        own = {CAPTURES[0]: of_the_set(trained, CAPTURES[0])}
        found["lora"] = {
            **_claimed(trained, options.seed),
            "recordings": {CAPTURES[0]: rows},
            "frames of the set": own,
        }
    for method in METHODS:
        _table(f"Claims at α = {ALPHA:g}, {method}", found[method]["claims"])
    _table(f"Claims at α = {ALPHA:g}, LoRa", found["lora"]["claims"])
    record = {
        "benchmark": "identify",
        "machine": machine(),
        "made": made(),
        "settings": {name: value for name, value in vars(options).items() if name != "folder"} | {"lora": LORA},
        **found,
    }
    print(json.dumps(record))


def _claimed(trained: Trained, seed: int) -> dict[str, Any]:
    return {"validation_f1": trained.model.run.metrics.validation_f1, "claims": claims(trained, seed)}


def _recording(
    trained: Trained, folder: Path, waveform: str, scene: Path, capture: str, seconds: float, seed: int
) -> dict[str, Any]:
    """A recording, made and identified."""
    meta = recorded(folder, waveform, scene, capture, seconds, seed)
    rows = dict(identified(trained, meta, waveform))
    plain = {k: {**v, "together": v["together"]["known right"]} for k, v in rows.items()}
    _table(f"{WAVEFORMS[waveform].title} in {TARGET}, {capture}", plain)
    return rows


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    cells = [
        [name, *(f"{v:.4f}" if isinstance(v, float) else str(v) for v in row.values())] for name, row in rows.items()
    ]
    print_table(title, ["", *next(iter(rows.values()))], cells)


if __name__ == "__main__":
    main()
