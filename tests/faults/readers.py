"""Every reader of files from outside: a small good file of its kind, and all that is read from it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.damage import crc_tells, seal_tells

ROOT = Path(__file__).parents[2]
SCRATCH = "read"  # folder that an import writes to, beside what it reads


@dataclass(frozen=True)
class Reader:
    """file: the one that is damaged, in a folder of good ones. read: the folder → all that came out.

    tells: whether a checksum in the damaged file, or about it, could tell that it is damaged.
    """

    folder: str
    file: str
    kind: str
    read: Callable[[Path], Any]
    tells: Callable[[Path], bool]


def _always(path: Path) -> bool:
    return True


def _never(path: Path) -> bool:
    return False


def _dataset(folder: Path) -> Any:
    from pisa_capc.frames import load

    frames = load(folder)
    about = (frames.devices, frames.geometry.to_json(), frames.sample_rate_hz, frames.carrier_hz)
    columns = (frames.device, frames.environment, frames.environments, frames.capture, frames.captures, frames.frame)
    return frames.iq, frames.cfo_hz, about, *columns


def _imported(name: str, file: str, folder: Path) -> Any:
    from pisa_capc.formats import ImportOptions, import_dataset

    out = folder / SCRATCH
    shutil.rmtree(out, ignore_errors=True)
    try:
        import_dataset(name, folder / file, out, ImportOptions(samples=16) if name != "hdf5" else None)
        return _dataset(out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _model(folder: Path) -> Any:
    from pisa_capc.inference import load_model

    found = load_model(folder)
    good = json.loads((folder / "known.json").read_text(encoding="utf-8"))  # a key that nobody knows is not used
    about = {key: found.about.get(key) for key in good}
    return {k: v.numpy() for k, v in found.model.state_dict().items()}, about, found.statistics.known()


def _calibration(folder: Path) -> Any:
    from pisa_capc.calibration import FrozenCalibration

    return vars(FrozenCalibration.load(folder))


def _stream(folder: Path) -> Any:
    from pisa_capc.calibration import OnlineCalibrator

    found = OnlineCalibrator.load(folder)
    return found.settings, found.classes, found.features, found._arrays, found.finder.arrays, found.finder.counters()


def _scores(folder: Path) -> Any:
    from pisa_capc.cli.calibrate import read_scores

    return read_scores(folder / "scores.npz")


def _scene(folder: Path) -> Any:
    from pisa_capc.simulate.scene import load_scene

    scene = load_scene(str(folder / "scene.yaml"))
    return scene, len(scene.layout(0.01))


def _protocol(folder: Path) -> Any:
    from pisa_capc.benchmark.protocols import check_protocol, read_protocol

    protocol = read_protocol(str(folder / "protocol.yaml"))
    check_protocol(protocol)
    return vars(protocol) | {"given": ""}


def _records(folder: Path) -> Any:
    from pisa_capc.benchmark.records import read_records

    return read_records(folder)


def _lines(folder: Path) -> Any:
    from pisa_capc.calibration.feed import LineReader

    with (folder / "frames.jsonl").open("rb") as file:
        return [vars(frame) for frame in LineReader(file, lambda note: None)]


def _recording(file: str, folder: Path) -> Any:
    from pisa_capc.recordings import open_recording

    plain = {"sample_rate_hz": 20e6, "antennas": 2} if file.endswith(".cs16") else {}
    found = open_recording(folder / file, **plain)  # type: ignore[arg-type]
    return found.about, found.annotations, np.concatenate(list(found.blocks(700)), axis=1)


def _origins(folder: Path) -> Any:
    from pisa_capc.store.origins import read_origins

    return read_origins(folder)


RECORD = "record"  # stands for the file, whose name is that of its content
READERS = {
    "capture, .h5": Reader("set", "E1/D01/L1.h5", "hdf5", _dataset, _always),
    "dataset.json": Reader("set", "dataset.json", "json", _dataset, seal_tells),
    "model.json": Reader("model", "model.json", "json", _model, seal_tells),
    "model.safetensors": Reader("model", "model.safetensors", "safetensors", _model, _always),
    "calibration.json": Reader("calibration", "calibration.json", "json", _calibration, seal_tells),
    "calibration.safetensors": Reader("calibration", "calibration.safetensors", "safetensors", _calibration, _always),
    "stream.json": Reader("stream", "stream.json", "json", _stream, seal_tells),
    "stream.safetensors": Reader("stream", "stream.safetensors", "safetensors", _stream, _always),
    "record, .json": Reader("records", RECORD, "json", _records, seal_tells),
    "scores, .npz": Reader("scores", "scores.npz", "npz", _scores, crc_tells),
    "import npz": Reader("npz", "a.npz", "npz", partial(_imported, "npz", "a.npz"), crc_tells),
    "import sigmf, data": Reader("sigmf", "E1/D01/L1.sigmf-data", "bytes", partial(_imported, "sigmf", "."), _always),
    "import sigmf, metadata": Reader("sigmf", "E1/D01/L1.sigmf-meta", "json", partial(_imported, "sigmf", "."), _never),
    "import mat 5": Reader("mat5", "E1/D01/L1.mat", "mat5", partial(_imported, "mat", "."), _never),
    "import mat 7.3": Reader("mat7", "E1/D01/L1.mat", "hdf5", partial(_imported, "mat", "."), _never),
    "import hdf5": Reader("hdf5", "E1/L1.h5", "hdf5", partial(_imported, "hdf5", "."), _never),
    "recording, SigMF data": Reader(
        "roof", "roof.sigmf-data", "bytes", partial(_recording, "roof.sigmf-meta"), _always
    ),
    "recording, SigMF metadata": Reader(
        "roof", "roof.sigmf-meta", "json", partial(_recording, "roof.sigmf-meta"), _never
    ),
    "recording, collection": Reader(
        "array", "array.sigmf-collection", "json", partial(_recording, "array.sigmf-collection"), _never
    ),
    "recording, .cs16": Reader("plain", "roof.cs16", "bytes", partial(_recording, "roof.cs16"), _never),
    "frames.csv": Reader("detected", "frames.csv", "bytes", _origins, _always),
    "scene, .yaml": Reader("scene", "scene.yaml", "yaml", _scene, _never),
    "protocol, .yaml": Reader("protocol", "protocol.yaml", "yaml", _protocol, _never),
    "stream, JSON lines": Reader("lines", "frames.jsonl", "lines", _lines, _never),
}


def damaged_file(reader: Reader, folder: Path) -> Path:
    return next(folder.glob("*.json")) if reader.file == RECORD else folder / reader.file


def make_originals(folder: Path) -> None:
    """The good files, each kind in a folder of its own."""
    from pisa_capc.calibration import FrozenCalibration, OnlineCalibrator
    from pisa_capc.formats import ExportOptions, export_dataset
    from pisa_capc.frames import load
    from pisa_capc.simulate.scene import scene_file
    from pisa_capc.training import fit
    from tests.calibration.streams import stream
    from tests.datasets import write_random
    from tests.problems import runs, small_frames
    from tests.training.tools import FAST

    layout: dict[str, Any] = {"environments": ["E1"], "devices": 1, "captures": ["L1"], "frames": 5}
    frames = load(write_random(folder / "set", **layout))
    (folder / "npz").mkdir()
    export_dataset("npz", frames, folder / "npz" / "a.npz")
    export_dataset("sigmf", frames, folder / "sigmf")
    export_dataset("mat", frames, folder / "mat5", ExportOptions(version="5"))
    export_dataset("mat", frames, folder / "mat7", ExportOptions(version="7.3"))
    export_dataset("hdf5", frames, folder / "hdf5", ExportOptions(antenna=0))
    _make_recordings(folder)
    [model] = fit(runs(small_frames(frames=8)), **FAST)
    model.save(folder / "model")
    (folder / "model" / "known.json").write_text(json.dumps(sorted(model.about)), encoding="utf-8")
    heard = stream((0, 1), frames=120)
    FrozenCalibration.fit(heard.embedding, heard.logits, heard.capture).save(folder / "calibration")
    online = OnlineCalibrator(heard.logits.shape[1], heard.embedding.shape[1])
    online.push(heard.embedding, heard.logits)
    online.save(folder / "stream")
    for name in ("scores", "lines", "records", "scene", "protocol"):
        (folder / name).mkdir()
    arrays = {"embedding": heard.embedding, "logits": heard.logits, "frame": heard.frame, "cfo_hz": heard.cfo_hz}
    np.savez(folder / "scores" / "scores.npz", capture=np.array(["E1/L1", "E1/L2"])[heard.capture], **arrays)
    with (folder / "lines" / "frames.jsonl").open("w", encoding="utf-8") as file:
        for i in range(20):
            values = {name: arrays[name][i].tolist() for name in arrays}
            file.write(json.dumps({**values, "capture": "E1/L1"}) + "\n")
    record = min((ROOT / "results" / "records" / "wifi-sim").glob("*.json"))
    values = json.loads(record.read_text(encoding="utf-8"))
    if "digest" not in values:  # one of an earlier version: as it would be written now
        from pisa_capc.benchmark.records import read_records

        shutil.copy(record, folder / "records")
        [found] = read_records(folder / "records")
        found.write(folder / "records")
    else:
        shutil.copy(record, folder / "records")
    shutil.copy(scene_file("wifi"), folder / "scene" / "scene.yaml")
    shutil.copy(ROOT / "protocols" / "wifi-sim.yaml", folder / "protocol" / "protocol.yaml")


def _make_recordings(folder: Path) -> None:
    """Recordings, and a dataset of what was found in one."""
    from dataclasses import replace

    from pisa_capc.detect import detect
    from pisa_capc.detect.dataset import Choices, write_frames
    from tests.detect.senders import Marks, marked
    from tests.recordings.test_sigmf import collection
    from tests.recordings.tools import InMemory, encoded, noise, write_sigmf

    for name in ("roof", "array", "plain"):
        (folder / name).mkdir()
    x = noise(2, 2000)
    notes = [{"core:sample_start": 100 * i, "core:sample_count": 40, "core:label": f"D{i}"} for i in range(5)]
    digest = hashlib.sha512(encoded(x, "cs16")).hexdigest()
    write_sigmf(folder / "roof" / "roof", x, annotations=notes, sha512=digest)
    for i, row in enumerate(x):
        write_sigmf(folder / "array" / f"ch{i}", row[None])
    collection(folder / "array", ["ch0", "ch1"])
    (folder / "plain" / "roof.cs16").write_bytes(encoded(x, "cs16"))
    recording = InMemory(marked((100, 500, 900)))
    recording.about = replace(recording.about, carrier_hz=5.2e9)
    found = detect(recording, detector=Marks(), decode=False)
    write_frames(folder / "detected", [found], Choices("none", samples=20))


def mark(value: Any) -> str:
    """A digest of what was read, by which two readings are compared byte for byte."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, np.ndarray):
            found.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                found.update(repr(key).encode())
                add(value[key])
        elif isinstance(value, list | tuple):
            found.update(f"{len(value)}".encode())
            for inner in value:
                add(inner)
        else:
            found.update(repr(value).encode())

    add(value)
    return found.hexdigest()
