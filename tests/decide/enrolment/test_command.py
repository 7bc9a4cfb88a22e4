"""pisa enrol, as it is called."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from studies.identify import found_by_truth

from pisa_capc.live.listen.claims import Tests
from pisa_capc.model.inference import load_model
from pisa_capc.signal.detection import Found
from pisa_capc.signal.recordings.base import FileRecording
from tests.cli.test_model_commands import Command, refused
from tests.decide.identification.tools import played
from tests.problems import ANTENNAS, write_small

A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
CPU = ("--device", "cpu")
PLAIN = ("--sample-rate", "20e6", "--carrier", "5.825e9", "--antennas", ANTENNAS, *CPU)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of four devices, D4 among them; captures of 15 frames."""
    return write_small(tmp_path_factory.mktemp("data") / "four", devices=4, frames=15)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording in which D4 sends under the address A, and D1 under B, found where they are."""
    recording, notes = played([(3, A)] * 25 + [(0, B)] * 15)
    path = tmp_path / "room.cf32"
    recording.read(0, recording.about.length).T.astype("<c8").tofile(path)

    def find(_: object, opened: FileRecording, waveform: str, *__: object) -> Found:
        return found_by_truth(opened, notes)

    monkeypatch.setattr("pisa_capc.cli.recordings.Reading.find_frames", find)
    return path


def test_a_device_of_a_dataset_is_enrolled_and_the_run_stays_as_it_was(
    pisa: Command, saved: Path, data: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    out = tmp_path / "larger"
    found = pisa("enrol", saved, data, "--device-name", "D4", "--environment", "E2", "--out", out, *CPU)
    assert found.code == 0, found.err
    assert any(line.split()[:2] == ["D4", "–"] for line in found.out.splitlines())
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    model = load_model(out)
    assert model.devices == ("D1", "D2", "D3", "D4")
    [origin] = model.run.changes[0]["from"]
    assert (origin["name"], origin["environments"], origin["frames"]) == ("four", ["E2"], 30)
    refused(pisa("enrol", saved, data, "--device-name", "D4", "--out", out, *CPU), "not an empty folder")


def test_the_new_model_is_scored_by_names_where_it_was_not_enrolled(
    pisa: Command, saved: Path, data: Path, tmp_path: Path
) -> None:
    out, less = tmp_path / "larger", tmp_path / "less"
    assert pisa("enrol", saved, data, "--device-name", "D4", "--environment", "E2", "--out", out, *CPU).code == 0
    found = json.loads(pisa("evaluate", out, data, "--target", "E1", "--json", *CPU).out)
    assert found["runs"][0]["stages"]["direct"]["per_device"]["D4"] > 0.8
    refused(pisa("evaluate", out, data, "--target", "E2", *CPU), "both source and target")
    assert pisa("enrol", out, "--remove", "D1", "--out", less).code == 0
    scored = pisa("evaluate", less, data, "--target", "E1", "--json", *CPU)
    assert "frames of D1 are left out" in scored.err
    assert list(json.loads(scored.out)["runs"][0]["stages"]["direct"]["per_device"]) == ["D2", "D3", "D4"]
    assert pisa("embed", less, data, "--environment", "E1", "--out", tmp_path / "scores.npz", *CPU).code == 0
    assert pisa("calibrate", tmp_path / "scores.npz", "--out", tmp_path / "calibrated.npz").code == 0


def test_a_dataset_without_a_device_of_the_model_is_not_scored(
    pisa: Command, saved: Path, data: Path, tmp_path: Path
) -> None:
    three = write_small(tmp_path / "three", devices=3)
    assert pisa("enrol", saved, data, "--device-name", "D4", "--out", tmp_path / "larger", *CPU).code == 0
    refused(pisa("evaluate", tmp_path / "larger", three, "--target", "E1", *CPU), "no frames of D4")


def test_a_device_of_a_recording_is_enrolled_by_its_address_and_identified(
    pisa: Command, saved: Path, room: Path, tmp_path: Path
) -> None:
    out = tmp_path / "larger"
    refused(pisa("enrol", saved, room, "--device-name", "D4", "--out", out, *PLAIN), f"{A} (25), {B} (15)", "--address")
    refused(
        pisa("enrol", saved, room, "--device-name", "D4", "--address", "aa", "--out", out, *PLAIN),
        "no frame claims the address aa",
    )
    found = pisa("enrol", saved, room, "--device-name", "D4", "--address", A, "--out", out, *PLAIN, "--json")
    assert found.code == 0, found.err
    said = json.loads(found.out)
    assert said["devices"] == ["D1", "D2", "D3", "D4"]
    assert said["recognised"]["after"]["D4"] > 0.9
    sha256 = hashlib.sha256(room.read_bytes()).hexdigest()
    assert said["from"] == [{"recording": "room.cf32", "sha256": [sha256], "address": A, "frames": 25}]
    who = json.loads(pisa("identify", out, room, *PLAIN, "--json").out)
    by_address = {own["device"]: own["addresses"] for own in who["devices"]}
    assert by_address["D4"][A] > 20
    claims = {one["address"]: one for one in json.loads(pisa("verify", out, room, *PLAIN, "--json").out)["addresses"]}
    assert (claims[A]["device"], claims[B]["device"]) == ("D4", None)  # verify knows what it was enrolled with
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = Tests(load_model(out), np.empty(0))
    assert tests.device_of(A.upper()) == 3
    assert Tests(load_model(out), np.empty(0), {B: "D1"}).device_of(B) == 0  # and listening, beside other addresses


def test_who_is_there_is_not_enrolled_again_unless_told(pisa: Command, saved: Path, room: Path, tmp_path: Path) -> None:
    command = ("enrol", saved, room, "--device-name", "new", "--address", B, "--out", tmp_path / "larger", *PLAIN)
    refused(pisa(*command), "sound like D1", "--anyway")
    assert not (tmp_path / "larger").exists()
    assert pisa(*command, "--anyway").code == 0


def test_what_makes_no_sense_is_refused(pisa: Command, saved: Path, data: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "larger")
    both = ("--device-name", "a", "--remove", "D1")
    for arguments in ((), ("--device-name", "D4"), (data,), (data, "--remove", "D1"), both):
        refused(pisa("enrol", saved, *arguments, *out), "give --device-name NAME or --update NAME with recordings")
    (tmp_path / "a.cs16").touch()
    refused(pisa("enrol", saved, data, tmp_path / "a.cs16", "--device-name", "D9", *out), "recordings beside datasets")
    refused(pisa("enrol", saved, data, "--device-name", "D9", *out), "holds 4 devices", "none of them 'D9'")
    refused(pisa("enrol", saved, data, "--device-name", "D1", *out, *CPU), "already")
    refused(pisa("enrol", saved, "--remove", "D9", *out), "unknown device 'D9'")
    other = write_small(tmp_path / "other", devices=1, antennas=3)
    refused(pisa("enrol", saved, other, "--device-name", "D9", *out, *CPU), "2 antennas, these frames have 3")
