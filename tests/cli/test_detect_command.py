"""pisa detect, as it is called."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pisa_capc.cli import main
from pisa_capc.data.frames import load
from pisa_capc.data.store.origins import read_origins
from tests.signal.detection.senders import AP, PHONE, STARTS, conversation
from tests.signal.recordings.tools import encoded, noise, write_sigmf

PLAIN = ("--sample-rate", "20e6", "--carrier", "5.2e9", "--antennas", "2")


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def pisa(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["pisa", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        return Result(int(stop.value.code or 0), printed.out, " ".join(printed.err.split()))

    return run


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "roof/noon.cs16"
    path.parent.mkdir()
    path.write_bytes(encoded(conversation(), "cs16"))
    return path


def test_the_table_shows_frames_and_senders(pisa: Command, talk: Path) -> None:
    done = pisa("detect", talk, *PLAIN)
    assert done.code == 0, done.err
    assert "noon.cs16: 0.001 s of 2 antenna(s), 4 frames" in done.out
    assert done.out.count(AP) >= 3
    assert "ack" in done.out


def test_json_has_every_frame(pisa: Command, talk: Path) -> None:
    value = json.loads(pisa("detect", talk, *PLAIN, "--json").out)
    frames = value["frames"]
    assert [frame["transmitter"] for frame in frames] == [AP, PHONE, None, AP]
    assert [frame["start"] for frame in frames] == pytest.approx(STARTS, abs=1)
    assert all(len(frame["cfo_hz"]) == len(frame["snr_db"]) == 2 for frame in frames)
    assert value["recordings"] == [
        {
            "recording": "noon.cs16",
            "sample_rate_hz": 20e6,
            "carrier_hz": 5.2e9,
            "antennas": 2,
            "samples": 20_000,
            "frames": 4,
        }
    ]


def test_a_dataset_with_pseudonyms_and_annotations_names_no_address_anywhere(
    pisa: Command, talk: Path, tmp_path: Path
) -> None:
    done = pisa(
        "detect", talk, *PLAIN, "--out", tmp_path / "set", "--annotate", "--pseudonyms", tmp_path / "key", "--json"
    )
    assert done.code == 0, done.err
    value = json.loads(done.out)
    assert value["dataset"]["frames"] == 3
    assert value["metadata"] == [str(talk.with_suffix(".sigmf-meta"))]
    assert len(load(tmp_path / "set").devices) == 2
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != talk]
    for address in (AP, PHONE):
        for spelt in (address, address.replace(":", "-"), address.replace(":", "")):
            assert spelt not in done.out
            assert not any(spelt in str(path) or spelt.encode() in path.read_bytes() for path in written)


def test_names_come_from_the_path(pisa: Command, talk: Path, tmp_path: Path) -> None:
    pattern = ("--label", "pattern", "--pattern", "{environment}/{device}.cs16", "--capture", "L7")
    done = pisa("detect", talk, *PLAIN, "--out", tmp_path / "set", *pattern)
    assert done.code == 0, done.err
    frames = load(tmp_path / "set")
    assert (frames.environments, frames.devices, frames.captures) == (("roof",), ("noon",), ("L7",))
    assert len(frames) == 4


def test_annotations_name_devices(pisa: Command, tmp_path: Path) -> None:
    notes = [
        {"core:sample_start": 990, "core:sample_count": 3000, "signal:emitter": {"label": "left"}},
        {"core:sample_start": 13_990, "core:sample_count": 3000, "signal:emitter": {"label": "right"}},
    ]
    meta = write_sigmf(tmp_path / "a", conversation(), "cf32_le", annotations=notes)
    done = pisa("detect", meta, "--out", tmp_path / "set", "--label", "annotation")
    assert done.code == 0, done.err
    assert load(tmp_path / "set").devices == ("left", "right")
    assert "left out: 2 frames whose device nothing says" in done.err


def test_files_per_antenna_are_one_recording(pisa: Command, tmp_path: Path) -> None:
    for i, row in enumerate(conversation()):
        (tmp_path / f"rx{i}.cf32").write_bytes(encoded(row[None], "cf32"))
    paths = [tmp_path / "rx0.cf32", tmp_path / "rx1.cf32"]
    for arguments in ([*paths, "--per-antenna"], [f"{tmp_path}/rx*.cf32"]):
        value = json.loads(pisa("detect", *arguments, "--sample-rate", "20e6", "--json").out)
        assert [one["antennas"] for one in value["recordings"]] == [2]
        assert len(value["frames"]) == 4
    value = json.loads(pisa("detect", *paths, "--sample-rate", "20e6", "--json").out)
    assert [one["antennas"] for one in value["recordings"]] == [1, 1]


def test_recordings_of_one_name_are_told_apart(pisa: Command, talk: Path, tmp_path: Path) -> None:
    (tmp_path / "noon.cs16").write_bytes(talk.read_bytes())
    value = json.loads(pisa("detect", talk, tmp_path / "noon.cs16", *PLAIN, "--json").out)
    assert {frame["recording"] for frame in value["frames"]} == {str(talk), str(tmp_path / "noon.cs16")}


class TestExitCodes:
    def test_no_frame_is_one_as_of_grep(self, pisa: Command, tmp_path: Path) -> None:
        (tmp_path / "a.cs16").write_bytes(encoded(noise(), "cs16"))
        done = pisa("detect", tmp_path / "a.cs16", *PLAIN, "--out", tmp_path / "set")
        assert done.code == 1
        assert "no Wi-Fi frame was found" in done.err
        assert not (tmp_path / "set").exists()
        done = pisa("detect", tmp_path / "a.cs16", *PLAIN, "--json")
        assert (done.code, json.loads(done.out)["frames"]) == (1, [])

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--antennas", "2"), "Give --sample-rate"),
            (("--sample-rate", "20.001e6", "--antennas", "2"), "no p/q of 20,000,000"),
            ((*PLAIN, "--waveform", "wify"), "Did you mean 'wifi'"),
            ((*PLAIN, "--label", "adress"), "Did you mean 'address'"),
            ((*PLAIN, "--label", "pattern"), "give --pattern with {device}"),
            ((*PLAIN, "--pattern", "{device}.dat"), "does not fit the pattern"),
            ((*PLAIN, "--format", "rf32"), "These are real numbers"),
            ((*PLAIN, "--no-decode", "--out", "x"), "--label address needs what --no-decode leaves out"),
            (("--sample-rate", "20e6", "--antennas", "2", "--out", "x"), "Give --carrier"),
        ],
    )
    def test_what_cannot_be_is_two(self, pisa: Command, talk: Path, options: tuple[str, ...], words: str) -> None:
        done = pisa("detect", talk, *options)
        assert done.code == 2
        assert words in done.err

    def test_swapped_bytes_are_two_with_the_format_that_helps(self, pisa: Command, talk: Path) -> None:
        talk.write_bytes(np.frombuffer(talk.read_bytes(), "<i2").astype(">i2").tobytes())
        done = pisa("detect", talk, *PLAIN)
        assert done.code == 2
        assert "Give --format ci16_be" in done.err
        assert pisa("detect", talk, *PLAIN, "--format", "ci16_be").code == 0

    def test_a_cut_file_is_used_as_far_as_it_goes_and_said_to_be_cut(self, pisa: Command, talk: Path) -> None:
        talk.write_bytes(talk.read_bytes()[: 8 * 14_700 - 3])
        done = pisa("detect", talk, *PLAIN)
        assert done.code == 0
        assert "its last 5 bytes are no whole sample" in done.err
        assert "it ends within the last frame" in done.err

    def test_a_dead_antenna_is_a_note(self, pisa: Command, talk: Path) -> None:
        x = conversation()
        x[1] = 0
        talk.write_bytes(encoded(x, "cs16"))
        done = pisa("detect", talk, *PLAIN)
        assert (done.code, "antenna 1 is dead" in done.err) == (0, True)


def test_unlabelled_frames_go_from_the_recording_to_their_origins(pisa: Command, talk: Path, tmp_path: Path) -> None:
    done = pisa("detect", talk, *PLAIN, "--out", tmp_path / "set", "--label", "none", "--samples", "400")
    assert done.code == 0, done.err
    frames = load(tmp_path / "set")
    assert (frames.devices, frames.samples, len(frames)) == (("unlabelled",), 400, 4)
    origins = read_origins(tmp_path / "set")
    assert origins is not None
    assert [origin.transmitter for origin in origins] == [AP, PHONE, "", AP]
    refused = pisa("train", tmp_path / "set", "--source", "E1", "--target", "E2", "--out", tmp_path / "run")
    assert refused.code == 2
    assert "frames that are unlabelled" in refused.err
