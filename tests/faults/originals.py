"""Small good files of every kind that is damaged: python -m tests.faults.originals FOLDER READER…"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.frames import Frames
from pisa_capc.model.inference import TrainedModel
from tests.faults.readers import CARDS, FORMATS, MESSAGE, PLAIN, READERS, REQUESTS, ROOT
from tests.problems import runs, small_frames

FAST: dict[str, Any] = {"encoder": "cnn", "epochs": 2, "batch": 16, "device": "cpu", "show": False}
CHANNEL = np.arange(64) % 11 - 5 + 1j * (np.arange(64) % 7 - 3)  # of a card: parts are whole numbers


def make_originals(folder: Path, readers: Iterable[str]) -> None:
    """The files that these readers read, each kind in a folder of its own."""
    for name in dict.fromkeys(READERS[reader].folder for reader in readers):
        (folder / name).mkdir(parents=True)
        MAKERS[name](folder / name)


@cache
def _frames() -> Frames:
    return small_frames(frames=80)


@cache
def _trained() -> TrainedModel:
    from pisa_capc.model.training import fit

    [model] = fit(runs(_frames()), **FAST)
    return model


def trained_on(folder: Path) -> list[TrainedModel]:
    """A training in a folder, which goes on where it was stopped."""
    from pisa_capc.model.training import fit

    return fit(runs(_frames()), **FAST, out=folder)


def _heard() -> Any:
    from tests.decide.calibration.streams import stream

    return stream((0, 1), frames=120)


# Datasets, and what is imported into them.


def _set(folder: Path) -> None:
    from tests.datasets import write_random

    write_random(folder, environments=["E1"], devices=1, captures=["L1"], frames=5)


def _detected(folder: Path) -> None:
    from pisa_capc.signal.detection import detect
    from pisa_capc.signal.detection.dataset import DatasetChoices, write_frames
    from tests.signal.detection.senders import Marks, marked
    from tests.signal.recordings.tools import InMemory

    recording = InMemory(marked((100, 500, 900)))
    recording.about = replace(recording.about, carrier_hz=5.2e9)
    write_frames(folder, [detect(recording, detector=Marks(), decode=False)], DatasetChoices("none", samples=20))


def _card(folder: Path) -> None:
    from pisa_capc.signal.measurement.senders import measure
    from tests.signal.measurement.frames import received, sent_with

    iq = received(sent_with("wifi", {"image": 0.03j}), 3, np.random.default_rng(0), 20)
    measure(Frames.from_arrays(iq, device="D01")).cards[0].save(folder / "card.json")


def _exported(name: str, file: str = "", **options: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from pisa_capc.data.frames import load
        from pisa_capc.signal.formats import ExportOptions, export_dataset

        _set(folder.with_name(f"{folder.name}-set"))
        frames = load(folder.with_name(f"{folder.name}-set"))
        export_dataset(name, frames, folder / file, ExportOptions(**options))

    return make


def _csi(card: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from tests.signal.formats import csi_files as csi

        channels = [np.roll(CHANNEL, n) for n in range(4)]
        content = {
            "intel": lambda: b"".join(csi.intel_record(np.resize(h, (30, 2, 1)), (1, 0)) for h in channels),
            "atheros": lambda: b"".join(csi.atheros_record(np.resize(h, (56, 2, 1))) for h in channels),
            "esp32": lambda: "".join(csi.esp32_line(h) for h in channels).encode(),
            "esp-csi": lambda: "".join(csi.espressif_line(_pairs(h), 15) for h in channels).encode(),
            "picoscenes": lambda: b"".join(csi.picoscenes_packet(np.resize(h, (56, 2, 1))) for h in channels),
            "nexmon": lambda: csi.pcap(csi.nexmon_packet(csi.integer_words(h), n) for n, h in enumerate(channels)),
        }
        (folder / "log").write_bytes(content[card]())

    return make


def _pairs(channel: np.ndarray) -> list[int]:
    """Imaginary and real part in turn, from the lowest of 64 subcarriers on: the edges are empty."""
    filled = np.where(abs(np.arange(64) - 32) <= 28, channel, 0)
    return list(map(int, np.stack([filled.imag, filled.real], -1).ravel()))


# Models, calibrations, scores.


def _save_model(model: TrainedModel, folder: Path) -> None:
    model.save(folder)
    (folder / "known.json").write_text(json.dumps(sorted(model.run.to_json())), encoding="utf-8")


def _enrolled(folder: Path) -> None:
    from pisa_capc.decide.enrolment import enrol

    more = small_frames(devices=4, frames=30)
    new = more.where(device=["D4"], environment=["E2"])
    _save_model(enrol(_trained(), "D4", new, origin=[{"source": "fuzz"}], anyway=True, device="cpu"), folder)


def _checkpoint(folder: Path) -> None:
    """As a training leaves it that is killed after its last epoch."""
    from pisa_capc.model.training import keep

    kept, keep.remove_checkpoint = keep.remove_checkpoint, lambda folder: None
    try:
        trained_on(folder)
    finally:
        keep.remove_checkpoint = kept
    for name in ("model.json", "model.safetensors"):
        (folder / name).unlink()


def _calibration(folder: Path) -> None:
    from pisa_capc.decide.calibration import FrozenCalibration

    heard = _heard()
    FrozenCalibration.fit(heard.embedding, heard.logits, heard.capture).save(folder)


def _stream(lag: int = 0) -> Callable[[Path], None]:
    """The state of a stream; with a lag, while what it has learnt does not decide yet."""

    def make(folder: Path) -> None:
        from pisa_capc.decide.calibration import Online, OnlineCalibrator

        heard, settings = _heard(), Online(lag=lag)
        online = OnlineCalibrator(heard.logits.shape[1], heard.embedding.shape[1], settings=settings)
        frames = settings.warmup + lag // 2 if lag else len(heard.logits)
        online.push(heard.embedding[:frames], heard.logits[:frames])
        online.save(folder)

    return make


def _arrays() -> dict[str, NDArray[Any]]:
    heard = _heard()
    return {"embedding": heard.embedding, "logits": heard.logits, "frame": heard.frame, "cfo_hz": heard.cfo_hz}


def _scores(folder: Path) -> None:
    np.savez(folder / "scores.npz", capture=np.array(["E1/L1", "E1/L2"])[_heard().capture], **_arrays())


def _lines(folder: Path) -> None:
    arrays = _arrays()
    with (folder / "frames.jsonl").open("w", encoding="utf-8") as file:
        for i in range(20):
            values = {name: arrays[name][i].tolist() for name in arrays}
            file.write(json.dumps({**values, "capture": "E1/L1"}) + "\n")


def _records(folder: Path) -> None:
    """One of this repository's, as it would be written now."""
    from pisa_capc.evidence.benchmark.records import read_records

    record = min((ROOT / "results" / "records" / "wifi-sim").glob("*.json"))
    shutil.copy(record, folder)
    [found] = read_records(folder)
    (folder / record.name).unlink()
    found.write(folder)


# What people write.


def _written(file: str, content: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / file).write_text(content, encoding="utf-8")

    return make


def _scene(folder: Path) -> None:
    from pisa_capc.signal.simulation.scene import scene_file

    shutil.copy(scene_file("wifi"), folder / "scene.yaml")


def _protocol(folder: Path) -> None:
    shutil.copy(ROOT / "protocols" / "wifi-sim.yaml", folder / "protocol.yaml")


def _geometry(folder: Path) -> None:
    from pisa_capc.data.geometry import square

    _written("array.yaml", json.dumps(square(4).to_json()))(folder)


def _addresses(folder: Path) -> None:
    own = {f"02:00:00:00:00:{k:02x}": f"D{k}" for k in (1, 2, 3)}
    _written("addresses.json", json.dumps(own))(folder)
    _written("addresses.csv", "address,device\n" + "".join(f"{a},{d}\n" for a, d in own.items()))(folder)


def _token(folder: Path) -> None:
    _written("token", "f00dfeedcafe1234567890abcdef0123\n")(folder)
    os.chmod(folder / "token", 0o600)


# Recordings, and what is on the air.


def _noise() -> NDArray[np.complex64]:
    from tests.signal.recordings.tools import noise

    return noise(2, 2000)


def _plain(format: str, name: str | None = None) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from tests.signal.recordings.tools import encoded

        (folder / (name or f"roof.{format}")).write_bytes(encoded(_noise(), format))

    return make


def _roof(folder: Path) -> None:
    from tests.signal.recordings.tools import encoded, write_sigmf

    notes = [{"core:sample_start": 100 * i, "core:sample_count": 40, "core:label": f"D{i}"} for i in range(5)]
    write_sigmf(
        folder / "roof", _noise(), annotations=notes, sha512=hashlib.sha512(encoded(_noise(), "cs16")).hexdigest()
    )


def _array(folder: Path) -> None:
    from tests.signal.recordings.tools import collection, write_sigmf

    for i, row in enumerate(_noise()):
        write_sigmf(folder / f"ch{i}", row[None])
    collection(folder, ["ch0", "ch1"])


def _antennas(folder: Path) -> None:
    from tests.signal.recordings.tools import encoded

    for i, row in enumerate(_noise()):
        (folder / f"rx{i}.cs16").write_bytes(encoded(row[None], "cs16"))


def _notes(folder: Path) -> None:
    """Plain samples, and metadata beside them that somebody else wrote."""
    _roof(folder)
    (folder / "roof.sigmf-data").rename(folder / "roof.cs16")


def _air(folder: Path) -> None:
    from tests.signal.detection.senders import conversation
    from tests.signal.recordings.tools import encoded

    (folder / "air.cf32").write_bytes(encoded(conversation(PLAIN["antennas"], 9000), "cf32"))


def _wifi_octets(folder: Path) -> None:
    from pisa_capc.signal.phy.wifi import mac
    from tests.signal.detection.senders import AP, PHONE

    (folder / "octets").write_bytes(mac.data(PHONE, AP, AP, b"hello" * 8))


def _lorawan_octets(folder: Path) -> None:
    from pisa_capc.signal.phy.lora import lorawan

    (folder / "octets").write_bytes(lorawan.data_frame(0x26011BDA, 7, b"hello"))


def _messages(ports: int) -> Callable[[Path], None]:
    """Six messages of each port, with the header and a tag of GNU Radio's sinks, all equally long."""

    def make(folder: Path) -> None:
        from tests.live.listen.tools import header, symbol

        tag = bytes(8) + symbol("rx_time") + b"\x0b" + bytes(8) + symbol("usrp")
        room = MESSAGE - len(header(0, tag))
        rng = np.random.default_rng(1)
        sent = [header(n // ports * room // 8, tag) + rng.bytes(room) for n in range(6 * ports)]
        (folder / "messages").write_bytes(b"".join(sent))

    return make


def _listener(folder: Path) -> None:
    """The state of a listener that has heard some frames."""
    from pisa_capc.live.listen import Listener, ListenPlan
    from pisa_capc.signal.detection import FINDERS
    from tests.live.listen.air import AIR, ENROLLED, ToyFinder, in_turn, played, script

    _trained().save(folder / "run")
    FINDERS._parts["wifi"] = ToyFinder()
    plan = ListenPlan(addresses=ENROLLED, state=folder / "state")
    listener = Listener(_trained(), script(played(in_turn(40))), AIR, plan)
    listener.run(lambda event: None)
    _written("given.json", json.dumps([listener.status().frames, listener.status().alarms]))(folder)


# The service.


def _page(folder: Path) -> None:
    from pisa_capc.live.listen import Alarm
    from pisa_capc.live.serve.keepsakes import Keepsakes, save

    kept = Keepsakes()
    kept.name("device", "D1", "camera")
    at = "2026-01-01T00:00:00.000Z"
    save(folder, kept.to_json([Alarm(n, 1.0, at, "changed", None, "D1", "is strange", (1, 2), None) for n in (1, 2)]))


def _grown(folder: Path) -> None:
    from pisa_capc.live.serve.keepsakes import keep

    _trained().save(folder / "run")
    keep(folder, folder / "run", _trained())


def _request(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from tests.faults.service import REQUESTS as SENT

        (folder / "request").write_bytes(SENT[name])

    return make


MAKERS: dict[str, Callable[[Path], None]] = {
    "set": _set,
    "detected": _detected,
    "card": _card,
    "npz": _exported("npz", "a.npz"),
    "sigmf": _exported("sigmf"),
    "mat5": _exported("mat", version="5"),
    "mat7": _exported("mat", version="7.3"),
    "hdf5": _exported("hdf5", antenna=0),
    **{f"csi-{card}": _csi(card) for card in CARDS},
    "model": lambda folder: _save_model(_trained(), folder),
    "enrolled": _enrolled,
    "checkpoint": _checkpoint,
    "calibration": _calibration,
    "stream": _stream(),
    "stream-lag": _stream(lag=32),
    "scores": _scores,
    "lines": _lines,
    "records": _records,
    "scene": _scene,
    "protocol": _protocol,
    "geometry": _geometry,
    "settings": _written("settings.txt", "model.beta=0.5\ntraining.learning_rate=3e-4\nmodel.pathway=topology\n"),
    "addresses": _addresses,
    "token": _token,
    "roof": _roof,
    "array": _array,
    "antennas": _antennas,
    "notes": _notes,
    **{f"plain-{format}": _plain(format) for format in FORMATS},
    "air": _air,
    "wifi-octets": _wifi_octets,
    "lorawan-octets": _lorawan_octets,
    "zmq1": _messages(1),
    "zmq2": _messages(2),
    "listener": _listener,
    "page": _page,
    "grown": _grown,
    **{f"request-{name}": _request(name) for name in REQUESTS},
}

if __name__ == "__main__":
    make_originals(Path(sys.argv[1]), sys.argv[2:])
