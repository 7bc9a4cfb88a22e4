"""Every reader of what comes from outside: files, messages, requests. What is damaged, and all that is read from it.

The good files are made by `originals`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.damage import crc_tells, seal_tells

ROOT = Path(__file__).parents[2]
SCRATCH = "read"  # folder that an import writes to, beside what it reads


def _always(path: Path) -> bool:
    return True


def _never(path: Path) -> bool:
    return False


@dataclass(frozen=True)
class Reader:
    """file: the one that is damaged, in a folder of good ones. read: the folder → all that came out.

    tells: whether a checksum in the damaged file, or about it, could tell that it is damaged. package: that is needed,
    and is not one of this package's own dependencies.
    """

    folder: str
    file: str
    kind: str
    read: Callable[[Path], Any]
    tells: Callable[[Path], bool] = _never
    package: str | None = None


# Datasets and what is imported into them.


def _dataset(folder: Path) -> Any:
    from pisa_capc.data.frames import load

    frames = load(folder)
    about = (frames.devices, frames.geometry.to_json(), frames.sample_rate_hz, frames.carrier_hz)
    columns = (frames.device, frames.environment, frames.environments, frames.capture, frames.captures, frames.frame)
    return frames.iq, frames.cfo_hz, about, *columns


def _imported(name: str, file: str, folder: Path) -> Any:
    from pisa_capc.signal.formats import ImportOptions, import_dataset

    out = folder / SCRATCH
    shutil.rmtree(out, ignore_errors=True)
    try:
        import_dataset(name, folder / file, out, None if name in ("hdf5", "csi") else ImportOptions(samples=16))
        return _dataset(out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _origins(folder: Path) -> Any:
    from pisa_capc.data.store.origins import read_origins

    return read_origins(folder)


def _card(folder: Path) -> Any:
    from pisa_capc.signal.measurement.cards import Card

    return vars(Card.load(folder / "card.json"))


# Models, calibrations, scores.


def _model(folder: Path) -> Any:
    from pisa_capc.model.inference import load_model

    found = load_model(folder)
    good = json.loads((folder / "known.json").read_text(encoding="utf-8"))  # a key that nobody knows is not used
    about = {key: found.run.to_json().get(key) for key in good}
    return {k: v.numpy() for k, v in found.model.state_dict().items()}, about, found.statistics.known()


def _checkpoint(folder: Path) -> Any:
    """A training that goes on from its checkpoint."""
    from tests.faults.originals import trained_on

    try:
        [model] = trained_on(folder)
        return {k: v.numpy() for k, v in model.model.state_dict().items()}, model.run.history
    finally:
        for name in ("model.json", "model.safetensors"):
            (folder / name).unlink(missing_ok=True)


def _calibration(folder: Path) -> Any:
    from pisa_capc.decide.calibration import FrozenCalibration

    return vars(FrozenCalibration.load(folder))


def _stream(folder: Path) -> Any:
    from pisa_capc.decide.calibration import OnlineCalibrator

    found = OnlineCalibrator.load(folder)
    about = found.settings, found.classes, found.features
    coming = found._coming and (*found._coming[:3], found._coming.learnt.result()._asdict())
    return *about, found._arrays, found.finder.arrays, found.finder.counters(), coming


def _scores(folder: Path) -> Any:
    from pisa_capc.decide.calibration.scores_file import read_scores

    return read_scores(folder / "scores.npz")


def _lines(skip_bad: bool, folder: Path) -> Any:
    from pisa_capc.decide.calibration.feed import LineReader

    with (folder / "frames.jsonl").open("rb") as file:
        lines = LineReader(file, lambda note: None, skip_bad=skip_bad)
        return [vars(frame) for frame in lines], lines.skipped, lines.left_out


def _records(folder: Path) -> Any:
    from pisa_capc.evidence.benchmark.records import read_records

    return read_records(folder)


# What people write.


def _scene(folder: Path) -> Any:
    from pisa_capc.signal.simulation.scene import load_scene

    scene = load_scene(str(folder / "scene.yaml"))
    return scene, len(scene.layout(0.01))


def _protocol(folder: Path) -> Any:
    from pisa_capc.evidence.benchmark.protocols import check_protocol, read_protocol

    protocol = read_protocol(str(folder / "protocol.yaml"))
    check_protocol(protocol)
    return vars(protocol) | {"given": ""}


def _array(folder: Path) -> Any:
    from pisa_capc.cli.data import _geometry

    return _geometry(str(folder / "array.yaml"), 4, 0.5).to_json()


def _assignments(folder: Path) -> Any:
    from pisa_capc.core.config import from_assignments

    return from_assignments((folder / "settings.txt").read_text(encoding="utf-8", errors="replace").splitlines())


def _addresses(file: str, folder: Path) -> Any:
    from pisa_capc.decide.identification.addresses import read_addresses

    return read_addresses(folder / file, ["D1", "D2", "D3"])


def _token(folder: Path) -> Any:
    from pisa_capc.live.serve.keys import read_tokens

    return read_tokens(folder / "token")


# Recordings, and what is on the air.


def _recording(file: str, folder: Path, **plain: Any) -> Any:
    from pisa_capc.signal.recordings import open_recording

    found = open_recording(folder / file, **plain)
    return found.about, found.annotations, np.concatenate(list(found.blocks(700)), axis=1)


PLAIN = {"sample_rate_hz": 20e6, "antennas": 2}


def _annotated(folder: Path) -> Any:
    """Annotations are added to metadata that is there."""
    from pisa_capc.signal.recordings import open_recording
    from pisa_capc.signal.recordings.sigmf import write_annotations

    note = {"core:sample_start": 7, "core:sample_count": 5, "core:label": "D9"}
    recording = open_recording(folder / "roof.cs16", **PLAIN)  # type: ignore[arg-type]
    [path] = write_annotations(recording, lambda antennas: [note], "fuzz", "fuzz", force=True)
    return path.read_bytes()


def _detected(folder: Path) -> Any:
    from pisa_capc.signal.detection import detect
    from pisa_capc.signal.recordings import open_recording

    recording = open_recording(folder / "air.cf32", **PLAIN)  # type: ignore[arg-type]
    return [frame.to_json() for frame in detect(recording, "wifi").frames]


def _wifi_octets(folder: Path) -> Any:
    """The header of a frame, as far as its checksum is right."""
    from pisa_capc.core.errors import DataError
    from pisa_capc.signal.phy.wifi import mac

    octets = (folder / "octets").read_bytes()
    first, parsed = mac.first_of_aggregate(octets), mac.parse(octets)
    if not mac.fcs_is_right(octets):
        raise DataError("the frame check sequence is wrong")
    return first, parsed


def _lorawan_octets(folder: Path) -> Any:
    from pisa_capc.signal.phy.lora import lorawan

    return lorawan.parse((folder / "octets").read_bytes())


MESSAGE = 421  # bytes of each: a header with one tag, and 46 samples


def _messages(ports: int, folder: Path) -> Any:
    """ZMQ messages, from that many ports in turn: what comes out of the ring, and what was refused."""
    from pisa_capc.core.errors import DataError
    from pisa_capc.live.listen.ring import Ring
    from pisa_capc.live.listen.sources.zeromq import Port, _Several, _Single

    content = (folder / "messages").read_bytes()
    ring = Ring(1 << 12, 16)
    sinks = tuple(Port(16 // ports, 8) for _ in range(ports))
    taker = _Single(ring, lambda note: None) if ports == 1 else _Several(ring, sinks, lambda note: None)
    refused = 0
    for number, at in enumerate(range(0, len(content), MESSAGE)):
        port = number % ports
        try:
            offset, samples = sinks[port].opened(memoryview(content[at : at + MESSAGE]))
        except DataError:
            refused += 1
            continue
        taker.take(port, offset, samples)
    ring.end()
    pieces = []
    while (piece := ring.take(1, 1 << 12, 0.0)) is not None:
        pieces.append((piece.first, piece.data.copy(), piece.fresh))
        ring.free(len(piece.data))
    return pieces, refused, ring.missed, ring.breaks


@cache
def _loaded(folder: Path) -> Any:
    from pisa_capc.model.inference import load_model

    return load_model(folder)


def _listener(folder: Path) -> Any:
    """A listener that goes on from its state."""
    from pisa_capc.live.listen import Listener, ListenPlan
    from tests.live.listen.air import AIR, ENROLLED, script

    listener = Listener(_loaded(folder / "run"), script(), AIR, ListenPlan(addresses=ENROLLED, state=folder / "state"))
    try:
        listener._resume()
        state = listener.status()
        calibrator = listener._verifier.recogniser.calibrator
        return state.samples, state.missed, state.breaks, listener._verifier.tests.state(), calibrator._arrays
    finally:
        listener._keeper.close()


def _ledger(folder: Path) -> Any:
    """Whether numbers that were given could be given again."""
    from pisa_capc.live.listen.state import Keeper

    given = json.loads((folder / "given.json").read_text(encoding="utf-8"))
    keeper = Keeper(folder / "state", 10.0, lambda note: None)
    with keeper.resuming():
        keeper.close()
    return keeper.mark.decisions >= given[0], keeper.mark.alarms >= given[1]


# The service.


def _page(folder: Path) -> Any:
    from pisa_capc.live.serve.keepsakes import load

    return load(folder)


def _grown(folder: Path) -> Any:
    from pisa_capc.live.serve.keepsakes import newest

    return newest(folder, folder / "run").relative_to(folder)


def _request(folder: Path) -> Any:
    from tests.faults.service import answer

    return answer((folder / "request").read_bytes())


RECORD = "record"  # stands for the file, whose name is that of its content
FORMATS = ("cs8", "cu8", "cs16", "cs16_be", "cu16", "cf32", "cf64")
REQUESTS = ("names", "enrol", "login", "decisions", "frame")
CARDS = {"intel": "csiread", "atheros": "csiread", "esp32": None, "esp-csi": None, "nexmon": None, "picoscenes": None}

READERS = {
    "capture, .h5": Reader("set", "E1/D01/L1.h5", "hdf5", _dataset, _always),
    "dataset.json": Reader("set", "dataset.json", "json", _dataset, seal_tells),
    "frames.csv": Reader("detected", "frames.csv", "bytes", _origins, _always),
    "card.json": Reader("card", "card.json", "json", _card, seal_tells),
    "model.json": Reader("model", "model.json", "json", _model, seal_tells),
    "model.safetensors": Reader("model", "model.safetensors", "safetensors", _model, _always),
    "model.json after enrolment": Reader("enrolled", "model.json", "json", _model, seal_tells),
    "model.safetensors after enrolment": Reader("enrolled", "model.safetensors", "safetensors", _model, _always),
    "checkpoint of a training": Reader("checkpoint", "checkpoint.safetensors", "safetensors", _checkpoint, _always),
    "calibration.json": Reader("calibration", "calibration.json", "json", _calibration, seal_tells),
    "calibration.safetensors": Reader("calibration", "calibration.safetensors", "safetensors", _calibration, _always),
    "stream.json": Reader("stream", "stream.json", "json", _stream, seal_tells),
    "stream.safetensors": Reader("stream", "stream.safetensors", "safetensors", _stream, _always),
    "stream.json with a lag": Reader("stream-lag", "stream.json", "json", _stream, seal_tells),
    "stream.safetensors with a lag": Reader("stream-lag", "stream.safetensors", "safetensors", _stream, _always),
    "stream, JSON lines": Reader("lines", "frames.jsonl", "lines", partial(_lines, False)),
    "stream, JSON lines, --skip-bad": Reader("lines", "frames.jsonl", "lines", partial(_lines, True)),
    "record, .json": Reader("records", RECORD, "json", _records, seal_tells),
    "scores, .npz": Reader("scores", "scores.npz", "npz", _scores, crc_tells),
    "import npz": Reader("npz", "a.npz", "npz", partial(_imported, "npz", "a.npz"), crc_tells),
    "import sigmf, data": Reader(
        "sigmf", "E1/D01/L1.sigmf-data", "bytes", partial(_imported, "sigmf", "."), _always, "sigmf"
    ),
    "import sigmf, metadata": Reader(
        "sigmf", "E1/D01/L1.sigmf-meta", "json", partial(_imported, "sigmf", "."), package="sigmf"
    ),
    "import mat 5": Reader("mat5", "E1/D01/L1.mat", "mat5", partial(_imported, "mat", "."), package="pymatreader"),
    "import mat 7.3": Reader("mat7", "E1/D01/L1.mat", "hdf5", partial(_imported, "mat", "."), package="pymatreader"),
    "import hdf5": Reader("hdf5", "E1/L1.h5", "hdf5", partial(_imported, "hdf5", ".")),
    **{
        f"import csi, {card}": Reader(f"csi-{card}", "log", "bytes", partial(_imported, "csi", "log"), package=package)
        for card, package in CARDS.items()
    },
    "recording, SigMF data": Reader(
        "roof", "roof.sigmf-data", "bytes", partial(_recording, "roof.sigmf-meta"), _always, "sigmf"
    ),
    "recording, SigMF metadata": Reader(
        "roof", "roof.sigmf-meta", "json", partial(_recording, "roof.sigmf-meta"), package="sigmf"
    ),
    "recording, collection": Reader(
        "array", "array.sigmf-collection", "json", partial(_recording, "array.sigmf-collection"), package="sigmf"
    ),
    "recording, metadata in a collection": Reader(
        "array", "ch1.sigmf-meta", "json", partial(_recording, "array.sigmf-collection"), _always, "sigmf"
    ),
    **{
        f"recording, {format}": Reader(
            f"plain-{format}", f"roof.{format}", "bytes", partial(_recording, f"roof.{format}", format=format, **PLAIN)
        )
        for format in FORMATS
    },
    "recording, a file per antenna": Reader(
        "antennas", "rx1.cs16", "bytes", partial(_recording, "rx*.cs16", sample_rate_hz=20e6)
    ),
    "annotations that are added to": Reader("notes", "roof.sigmf-meta", "json", _annotated, package="sigmf"),
    "frames on the air, samples": Reader("air", "air.cf32", "bytes", _detected),
    "frames on the air, 802.11 octets": Reader("wifi-octets", "octets", "bytes", _wifi_octets, _always),
    "frames on the air, LoRaWAN octets": Reader("lorawan-octets", "octets", "bytes", _lorawan_octets),
    "ZMQ messages, one port": Reader("zmq1", "messages", "tags", partial(_messages, 1)),
    "ZMQ messages, two ports": Reader("zmq2", "messages", "tags", partial(_messages, 2)),
    "listener, listen.json": Reader("listener", "state/listen.json", "json", _listener, seal_tells),
    "listener, listen.safetensors": Reader("listener", "state/listen.safetensors", "safetensors", _listener, _always),
    "listener, stream.json": Reader("listener", "state/stream.json", "json", _listener, seal_tells),
    "listener, ledger": Reader("listener", "state/ledger", "bytes", _ledger, _always),
    "service, page.json": Reader("page", "page.json", "json", _page, seal_tells),
    "service, current.json": Reader("grown", "models/current.json", "json", _grown, seal_tells),
    "service, token": Reader("token", "token", "bytes", _token),
    **{
        f"service, request {name}": Reader(f"request-{name}", "request", "request", _request, package="fastapi")
        for name in REQUESTS
    },
    "scene, .yaml": Reader("scene", "scene.yaml", "yaml", _scene),
    "protocol, .yaml": Reader("protocol", "protocol.yaml", "yaml", _protocol),
    "array, .yaml": Reader("geometry", "array.yaml", "yaml", _array),
    "settings, --set": Reader("settings", "settings.txt", "bytes", _assignments),
    "addresses, .csv": Reader("addresses", "addresses.csv", "bytes", partial(_addresses, "addresses.csv")),
    "addresses, .json": Reader("addresses", "addresses.json", "json", partial(_addresses, "addresses.json")),
}


def missing_extras(readers: Iterable[str]) -> dict[str, str]:
    """The readers whose package is not installed here, with that package."""
    needed = {name: package for name in readers if (package := READERS[name].package) is not None}
    return {name: package for name, package in needed.items() if find_spec(package) is None}


def damaged_file(reader: Reader, folder: Path) -> Path:
    return next(folder.glob("*.json")) if reader.file == RECORD else folder / reader.file


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
