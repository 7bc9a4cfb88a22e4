"""pisa identify and pisa verify, as they are called."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from studies.identify import found_by_truth

from pisa_capc.model.inference import TrainedModel
from pisa_capc.signal.detection import Found
from pisa_capc.signal.recordings.base import FileRecording
from tests.cli.test_model_commands import Command, Result, refused
from tests.decide.identification.test_identify import ENROLLED, A, in_turn
from tests.decide.identification.tools import played
from tests.problems import ANTENNAS, SAMPLES

UNEVEN = "devices seem to send unevenly in recording/room.cf32"
SENT = [(2, A) if i > 6 and device == 0 else (device, address) for i, (device, address) in enumerate(in_turn(90))]
PLAIN = ("--sample-rate", "20e6", "--carrier", "5.825e9", "--antennas", ANTENNAS, "--device", "cpu", "--reject", "none")


@pytest.fixture(scope="module")
def run(trained: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    trained.save(folder)
    return folder


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording on disk in which frames are found where they are."""
    recording, notes = played(SENT)
    path = tmp_path / "room.cf32"
    recording.read(0, recording.about.length).T.astype("<c8").tofile(path)

    def find(_: object, opened: FileRecording, waveform: str, *__: object) -> Found:
        return found_by_truth(opened, notes)

    monkeypatch.setattr("pisa_capc.cli.recordings.Reading.find_frames", find)
    return path


@pytest.fixture
def addresses(tmp_path: Path) -> Path:
    path = tmp_path / "addresses.json"
    path.write_text(json.dumps(ENROLLED))
    return path


def test_identify_prints_devices_and_the_addresses_they_claim(pisa: Command, run: Path, room: Path) -> None:
    found = pisa("identify", run, room, *PLAIN)
    assert found.code == 0, found.err
    rows = {line.split()[0]: line for line in found.out.splitlines() if line.strip().startswith("D")}
    assert {"D1", "D2", "D3"} <= set(rows)
    assert A in rows["D3"]
    assert "no frame was set aside" in found.err


def test_strangers_can_be_told_by_their_carrier_too(pisa: Command, run: Path, room: Path) -> None:
    found = pisa("identify", run, room, *PLAIN[:-1], "carrier", "--json")
    assert found.code == 0, found.err
    scores = [frame["unknown_score"] for frame in json.loads(found.out)["frames"]]
    plain = json.loads(pisa("identify", run, room, *PLAIN[:-1], "session", "--json").out)["frames"]
    assert all(both > alone["unknown_score"] for both, alone in zip(scores, plain, strict=True))


def test_what_calibrates_is_what_is_usual_with_the_model_and_is_said(pisa: Command, run: Path, room: Path) -> None:
    careful = pisa("identify", run, room, *PLAIN)
    assert "calibration: careful; the published one is --calibration ucapc" in careful.err
    assert "how evenly devices send, by capture: recording/room.cf32: few" in careful.err
    told = pisa("identify", run, room, *PLAIN, "--calibration", "direct").err
    assert told.startswith("calibration: direct, 0 of 90")
    for command in ("identify", "verify"):
        assert UNEVEN not in pisa(command, run, room, *PLAIN).err
        assert UNEVEN in pisa(command, run, room, *PLAIN, "--calibration", "ucapc").err


def test_identify_gives_json(pisa: Command, run: Path, room: Path) -> None:
    found = json.loads(pisa("identify", run, room, *PLAIN, "--json", "--together").out)
    assert [frame["start"] for frame in found["frames"]] == [2000 * i + 100 for i in range(90)]
    assert sum(own["frames"] for own in found["devices"]) == 90
    assert found["together_s"] == 1.0
    assert found["calibration"]["judged"][0]["level"] in ("even", "uneven", "few")
    assert {"device", "like", "probability", "transmitter", "cfo_hz", "snr_db"} <= set(found["frames"][0])


@pytest.mark.slow
def test_onnxruntime_identifies_and_verifies_as_pytorch_does(
    pisa: Command, run: Path, room: Path, addresses: Path
) -> None:
    refused(pisa("identify", run, room, *PLAIN, "--engine", "onnx"), "pisa export-model")
    assert pisa("export-model", run).code == 0
    for command in (("identify", run, room), ("verify", run, room, "--addresses", addresses)):
        by_torch, by_onnx = (pisa(*command, *PLAIN, "--json", "--engine", engine) for engine in ("torch", "onnx"))
        assert by_onnx.code == by_torch.code
        said = [json.loads(found.out) for found in (by_torch, by_onnx)]
        for key, name in (("frames", "device"), ("addresses", "verdict")):
            assert [one[name] for one in said[1].get(key, [])] == [one[name] for one in said[0].get(key, [])]


def test_an_engine_that_is_none_is_refused(pisa: Command, run: Path, room: Path) -> None:
    refused(pisa("identify", run, room, *PLAIN, "--engine", "tpu"), "expected torch or onnx")


def test_identify_writes_tables(pisa: Command, run: Path, room: Path, tmp_path: Path) -> None:
    for name in ("list.csv", "list.jsonl"):
        assert pisa("identify", run, room, *PLAIN, "--out", tmp_path / name).code == 0
    with (tmp_path / "list.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "list.jsonl").read_text().splitlines()]
    assert [row["device"] for row in table] == [line["device"] for line in lines]
    assert float(table[1]["cfo_hz"]) == lines[1]["cfo_hz"][0] == 20e3
    again = pisa("identify", run, room, *PLAIN, "--out", tmp_path / "list.csv")
    refused(again, "exists already", "--force")
    refused(pisa("identify", run, room, *PLAIN, "--out", tmp_path / "list.txt"), ".csv, .jsonl, .parquet, .sigmf-meta")


def test_annotations_are_valid_sigmf_and_name_the_data(
    pisa: Command,
    run: Path,
    room: Path,
    tmp_path: Path,
) -> None:
    sigmf = pytest.importorskip("sigmf")
    for out in (room.with_name("who.sigmf-meta"), tmp_path / "elsewhere" / "who.sigmf-meta"):
        assert pisa("identify", run, room, *PLAIN, "--out", out).code == 0
    beside, elsewhere = (
        json.loads(path.read_text())
        for path in (room.with_name("who.sigmf-meta"), tmp_path / "elsewhere/who.sigmf-meta")
    )
    assert beside["global"]["core:dataset"] == room.name
    assert elsewhere["global"]["core:metadata_only"] is True
    opened = sigmf.fromfile(room.with_name("who.sigmf-meta"))
    opened.validate()
    notes = opened.get_annotations()
    assert len(notes) == 90
    assert len({note["core:uuid"] for note in notes}) == 90
    assert notes[1]["signal:emitter"] == {"seid": 2, "label": "D2"}
    assert notes[1]["pisa:cfo_hz"] == [20e3] * ANTENNAS
    np.testing.assert_allclose(
        opened.read_samples(notes[1]["core:sample_start"], SAMPLES).T, played(SENT)[0].read(2100, SAMPLES)
    )


def test_pictures_are_drawn(pisa: Command, run: Path, room: Path, addresses: Path, tmp_path: Path) -> None:
    assert pisa("identify", run, room, *PLAIN, "--plot", tmp_path / "f").code == 0
    assert pisa("verify", run, room, *PLAIN, "--addresses", addresses, "--plot", tmp_path / "f").code == 1
    drawn = {path.name for path in (tmp_path / "f").iterdir()}
    assert drawn == {"room-timeline.png", "room-spectrogram.png", "evidence.png", "captions.md"}


def test_verify_names_the_spoofer_and_ends_with_one(pisa: Command, run: Path, room: Path, addresses: Path) -> None:
    found = pisa("verify", run, room, *PLAIN, "--addresses", addresses)
    assert found.code == 1
    [line] = [line for line in found.out.splitlines() if A in line]
    assert "not the device" in line
    assert "D3 (" in line
    said = json.loads(
        pisa("verify", run, room, *PLAIN, "--addresses", addresses, "--json", "--alarm-alpha", "0.05").out
    )
    assert said["alpha"] == 0.05
    assert {v["address"]: v["verdict"] for v in said["addresses"]}[A] == "not the device"


def test_verify_says_that_several_devices_use_an_address(
    pisa: Command, run: Path, room: Path, addresses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, notes = played([(2, A) if i % 12 == 0 else (device, a) for i, (device, a) in enumerate(in_turn(240))])
    recording.read(0, recording.about.length).T.astype("<c8").tofile(room)
    monkeypatch.setattr(
        "pisa_capc.cli.recordings.Reading.find_frames", lambda _, opened, *__: found_by_truth(opened, notes)
    )
    found = pisa("verify", run, room, *PLAIN, "--addresses", addresses)
    assert found.code == 1
    [line] = [line for line in found.out.splitlines() if A in line]
    assert "several devices" in line
    assert "D3 (" in line
    assert "shared: how unlikely fingerprints so different" in found.err


def test_verify_asks_whose_addresses_are_whose(pisa: Command, run: Path, room: Path) -> None:
    refused(pisa("verify", run, room, *PLAIN), "--addresses FILE", "D1, D2, D3")


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("identify", ("--reject", "nearest"), "unknown rejection score 'nearest'"),
        ("identify", ("--reject", "knn", "--alpha", "0"), "alpha is 0.0"),
        ("identify", ("--calibration", "better"), "unknown calibration 'better'"),
        ("verify", ("--alarm-alpha", "1"), "alpha is 1.0"),
        ("verify", ("--addresses", "nowhere.csv"), "nowhere.csv: no such file"),
        ("verify", ("--device", "abacus"), "expected auto, cpu or cuda"),
    ],
)
def test_what_cannot_be_is_said_before_a_recording_is_read(
    pisa: Command, run: Path, room: Path, monkeypatch: pytest.MonkeyPatch, command: str, arguments: tuple, words: str
) -> None:
    monkeypatch.setattr("pisa_capc.cli.recordings.Reading.find_frames", lambda *_: pytest.fail("it was read"))
    refused(pisa(command, run, room, *PLAIN, *arguments), words)


def test_a_recording_without_a_frame_is_told_in_words(pisa: Command, run: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(200_000, 2 * ANTENNAS)).astype("<f4") / 10
    noise.tofile(tmp_path / "noise.cf32")
    found: Result = pisa("identify", run, tmp_path / "noise.cf32", *PLAIN)
    assert found.code == 1
    assert "frame was found in 0.01 s" in found.err
    assert "Frames of any other signal: --waveform burst." in " ".join(found.err.split())
    assert found.out == ""


def test_a_model_of_another_array_is_refused(pisa: Command, run: Path, room: Path) -> None:
    arguments = [*PLAIN[:4], "--antennas", 4, "--device", "cpu"]
    refused(pisa("identify", run, room, *arguments), "has 4 antennas, the model was trained for 2")
