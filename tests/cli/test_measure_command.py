"""pisa measure, as it is called."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames, load
from pisa_capc.data.store.seal import sealed
from pisa_capc.evidence.figures.measured import MOST_SENDERS, measured_picture
from pisa_capc.signal.measurement.senders import measure
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (a fixture)
from tests.datasets import write_random
from tests.signal.detection.senders import AP, PHONE, conversation
from tests.signal.measurement.frames import received, sent_with
from tests.signal.recordings.tools import encoded, noise

PLAIN = ("--sample-rate", "20e6", "--carrier", "5.2e9", "--antennas")
RADIOS = {"left": {"image": 0.03 - 0.02j, "leakage": 0.01j}, "right": {"image": 0.012 - 0.02j, "leakage": 0.01j}}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two radios, eight frames each in two captures."""
    rng = np.random.default_rng(3)
    iq = np.concatenate([received(sent_with("wifi", flaws), 16, rng, 25) for flaws in RADIOS.values()])
    frames = Frames.from_arrays(iq, device=np.repeat(list(RADIOS), 16), capture=["L1", "L2"] * 16)
    frames.save(tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "noon.cs16"
    path.write_bytes(encoded(conversation(), "cs16"))
    return path


def refused(found: object, *words: str) -> None:
    assert found.code == 2, found  # type: ignore[attr-defined]
    assert found.err.count("error:") == 1  # type: ignore[attr-defined]
    for word in words:
        assert word in found.err, found.err  # type: ignore[attr-defined]


def test_the_table_has_a_row_per_sender_and_says_what_its_bars_are(pisa: Command, data: Path) -> None:  # noqa: F811
    done = pisa("measure", data)
    assert done.code == 0, done.err
    assert "Wi-Fi, 32 frames" in done.out
    rows = [line.split() for line in done.out.splitlines() if line.strip().startswith(("left", "right"))]
    assert [row[:3] for row in rows] == [["left", "16", "316"], ["right", "16", "316"]]
    assert float(rows[0][3]) == pytest.approx(-20 * np.log10(abs(0.03 - 0.02j)), abs=1)
    assert "95 % intervals" in done.err
    assert "compare cards of one receiver" in done.err


def test_json_and_csv_hold_every_number(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    table = tmp_path / "frames.csv"
    value = json.loads(pisa("measure", data, "--json", "--csv", table).out)
    assert (value["waveform"], value["frames"], value["measured"]) == ("wifi", 32, 32)
    assert "receiver" in value["note"]
    left = value["senders"][0]
    assert (left["name"], left["frames"], left["places"]) == ("left", 16, 2)
    assert {(each["name"], each["unit"]) for each in left["quantities"]} >= {("image rejection", "dB"), ("CFO", "ppm")}
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["sender"] for row in rows] == ["left"] * 16 + ["right"] * 16
    each = np.array([float(row["image rejection (dB)"]) for row in rows[:16]])
    assert all(float(row["SNR (dB) low"]) < float(row["SNR (dB)"]) < float(row["SNR (dB) high"]) for row in rows)
    assert each.mean() == pytest.approx(left["quantities"][0]["value"], abs=0.5)


def test_frames_with_a_right_checksum_are_measured_whole(pisa: Command, talk: Path) -> None:  # noqa: F811
    whole, preambles = (pisa("measure", talk, *PLAIN, "2", *more) for more in ([], ["--preamble"]))
    assert "Whole frames: 4" in whole.err
    assert "Whole frames" not in preambles.err
    assert " 316 " not in whole.out
    assert preambles.out.count(" 316 ") == 3


def test_is_it_the_same_radio(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    card = tmp_path / "left.json"
    assert pisa("measure", data, "--sender", "left", "--card", card).code == 0
    same = pisa("measure", data, "--sender", "left", "--against", card)
    assert same.code == 0
    assert "Is it the same radio?" in same.out
    other = pisa("measure", data, "--against", card, "--json")
    assert other.code == 1
    verdicts = {one["sender"]: one for one in json.loads(other.out)["against"]}
    assert verdicts["left"]["same"]
    assert verdicts["left"]["card"] == "left"
    assert not verdicts["right"]["same"]
    assert verdicts["right"]["apart"]["image"] > 3 > verdicts["right"]["apart"]["leakage"]
    both = tmp_path / "right.json"
    assert pisa("measure", data, "--sender", "right", "--card", both).code == 0
    assert pisa("measure", data, "--against", card, "--against", both).code == 0


def test_recordings_are_measured_by_the_addresses_in_them(pisa: Command, talk: Path) -> None:  # noqa: F811
    done = pisa("measure", talk, *PLAIN, 2, "--json")
    assert done.code == 0, done.err
    senders = {one["name"]: one for one in json.loads(done.out)["senders"]}
    assert {name: one["frames"] for name, one in senders.items()} == {AP: 2, PHONE: 1, "(none)": 1}
    assert senders[AP]["cfo_hz"] == pytest.approx(-34e3, abs=500)
    assert pisa("measure", talk, *PLAIN, 2, "--sender", PHONE).code == 0
    refused(pisa("measure", talk, *PLAIN, 2, "--sender", "somebody"), "unknown sender", AP)


def test_pseudonyms_stand_for_addresses_everywhere(pisa: Command, talk: Path, tmp_path: Path) -> None:  # noqa: F811
    table = tmp_path / "frames.csv"
    done = pisa("measure", talk, *PLAIN, 2, "--pseudonyms", tmp_path / "key", "--csv", table, "--json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["senders"]) == 3
    for address in (AP, PHONE):
        assert address not in done.out + table.read_text()


def test_a_recording_without_a_carrier_has_no_ppm(pisa: Command, talk: Path) -> None:  # noqa: F811
    done = pisa("measure", talk, "--sample-rate", "20e6", "--antennas", 2)
    assert done.code == 0, done.err
    assert "CFO (Hz)" in done.out
    assert "ppm" not in done.out


def test_no_frame_is_said_and_nothing_is_written(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "quiet.cs16"
    path.write_bytes(encoded(noise(), "cs16"))
    done = pisa("measure", path, *PLAIN, 2, "--csv", tmp_path / "a.csv")
    assert done.code == 1
    assert "No Wi-Fi frame was found" in done.err
    assert not (tmp_path / "a.csv").exists()


def test_a_card_is_of_one_sender(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    out = (tmp_path / "card.json", tmp_path / "frames.csv")
    found = pisa("measure", data, "--card", out[0], "--csv", out[1])
    refused(found, "found 2 (left, right)", "--sender")
    assert not any(path.exists() for path in out)


def test_what_is_there_is_not_replaced_unasked(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    for option, path in (("--csv", tmp_path / "a.csv"), ("--card", tmp_path / "a.json")):
        path.write_text("mine")
        refused(pisa("measure", data, "--sender", "left", option, path), "exists already", "--force")
        assert path.read_text() == "mine"
        assert pisa("measure", data, "--sender", "left", option, path, "--force").code == 0
        assert path.read_text() != "mine"
    (tmp_path / "file").write_text("")
    refused(pisa("measure", data, "--csv", tmp_path / "file/a.csv"), "a.csv")
    refused(pisa("measure", data, "--plot", tmp_path / "a.xyz"), "picture format")


def test_cards_that_are_none_are_refused(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    card = tmp_path / "card.json"
    assert pisa("measure", data, "--sender", "left", "--card", card).code == 0
    value = json.loads(card.read_text())
    refused(pisa("measure", data, "--against", tmp_path / "none.json"), "none.json")
    for text in ("", "{", "[]", json.dumps(value)[:-40], json.dumps(value | {"mean": [1]}), "[" * 100_000):
        (tmp_path / "bad.json").write_text(text)
        refused(pisa("measure", data, "--against", tmp_path / "bad.json"), "bad.json")
    other = value | {"waveform": "lora"}
    (tmp_path / "lora.json").write_text(json.dumps(sealed(other)))
    refused(pisa("measure", data, "--against", tmp_path / "lora.json", "--csv", tmp_path / "a.csv"), "same waveform")
    assert not (tmp_path / "a.csv").exists()


def test_what_cannot_be_measured_is_one_line(pisa: Command, data: Path, talk: Path, tmp_path: Path) -> None:  # noqa: F811
    refused(pisa("measure", data, "--waveform", "zigbee"), "unknown waveform 'zigbee'")
    refused(pisa("measure", talk, *PLAIN, 2, "--waveform", "zigbee"), "unknown waveform 'zigbee'")
    refused(pisa("measure", data, "--waveform", "lora"), "LoRa has 1e+06 samples/s, these frames 2e+07")
    refused(pisa("measure", talk, "--sample-rate", "1e6", "--antennas", 2), "Record with 20 MS/s or more")
    refused(pisa("measure", tmp_path / "nothing"), "no such file")
    refused(pisa("measure", tmp_path), "dataset.json")
    refused(pisa("measure", data, talk), "expected one dataset, or recordings")
    refused(pisa("measure", data, "--antennas", 2), "do not go with a dataset")
    short = load(data).segment(100)
    short.save(tmp_path / "short")
    refused(pisa("measure", tmp_path / "short"), "100 samples of Wi-Fi", "Use frames that hold more")
    replace(load(data), domain="subcarriers").save(tmp_path / "csi")
    refused(pisa("measure", tmp_path / "csi"), "hold channel state", "Train on them")


def test_frames_that_are_not_the_waveform_are_not_measured(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    found = pisa("measure", write_random(tmp_path / "noise", samples=320), "--csv", tmp_path / "a.csv")
    refused(found, "could be measured", "begin with the preamble of Wi-Fi", "--waveform")
    assert not (tmp_path / "a.csv").exists()


def test_the_picture_has_a_panel_per_flaw_and_names_as_they_are(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "seen.svg"
    assert pisa("measure", data, "--plot", path).code == 0
    text = path.read_text()
    for word in ("IQ image", "carrier leakage", "compression", "left", "right", "real part (%)"):
        assert word in text


def test_more_senders_than_a_picture_tells_apart_are_refused(tmp_path: Path) -> None:
    iq = received(sent_with("wifi", {}), MOST_SENDERS + 1, np.random.default_rng(0), 20)
    found = measure(Frames.from_arrays(iq, device=[f"D{i:02d}" for i in range(len(iq))]))
    with pytest.raises(DataError, match=f"{MOST_SENDERS + 1} senders; a picture distinguishes {MOST_SENDERS}"):
        measured_picture(found, tmp_path / "seen.png")
    assert not (tmp_path / "seen.png").exists()
    measured_picture(
        measure(Frames.from_arrays(iq[:-1], device=[f"D{i:02d}" for i in range(MOST_SENDERS)])), tmp_path / "a.png"
    )


@pytest.mark.skipif("PISA_RECORDINGS" not in os.environ, reason="PISA_RECORDINGS names no folder of real recordings")
def test_real_recordings_read_as_another_implementation_read_them(pisa: Command) -> None:  # noqa: F811
    """Those of openofdm: one radio by cable; over the air a strong sender, and a weak one that is another."""
    folder = Path(os.environ["PISA_RECORDINGS"])

    def image(name: str) -> dict[str, tuple[int, complex, complex, float]]:
        done = pisa("measure", folder / name, *PLAIN, 1, "--json")
        assert done.code == 0, done.err
        return {
            one["name"]: (one["frames"], one["mean"][0] + 1j * one["mean"][3], one["error"][0][0] ** 0.5, one["cfo_hz"])
            for one in json.loads(done.out)["senders"]
        }

    cable = image("conducted-11a-6mbps.cs16")
    assert sum(frames for frames, *_ in cable.values()) == 20
    for _, theta, _, _ in cable.values():
        assert abs(theta - (-0.036 - 0.024j)) < 0.004
    air = image("radiated-11n-6.5mbps.cs16")
    (_, strong, bar, strong_hz), (_, weak, weak_bar, weak_hz) = air["e8:de:27:90:6e:42"], air["(none)"]
    assert abs(strong - (-0.011 - 0.003j)) < 0.004
    assert strong_hz == pytest.approx(-34.5e3, abs=1e3)
    assert weak_hz == pytest.approx(-15e3, abs=2e3)
    assert abs(weak - strong) > 3 * np.hypot(bar, weak_bar)
