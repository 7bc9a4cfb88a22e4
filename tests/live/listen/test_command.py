"""pisa listen, as it is called."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from pisa_capc.model.inference import TrainedModel
from tests.cli.test_model_commands import Command
from tests.live.listen.air import ENROLLED, as_bytes, in_turn, played
from tests.live.listen.tools import wait_until
from tests.signal.recordings.tools import write_sigmf

pytestmark = pytest.mark.usefixtures("toy")
AIR = ("--sample-rate", "20e6", "--carrier", "5.825e9", "--device", "cpu")


@pytest.fixture
def run(trained: TrainedModel, tmp_path: Path) -> Path:
    trained.save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def roof(tmp_path: Path) -> Path:
    path = tmp_path / "roof.cf32"
    path.write_bytes(as_bytes(played([*in_turn(60), *[(2, 1)] * 40])))
    return path


def test_lines_of_json_and_a_summary(pisa: Command, run: Path, roof: Path, tmp_path: Path) -> None:
    (tmp_path / "whose.json").write_text(json.dumps(ENROLLED))
    done = pisa("listen", f"file:{roof}", "--run", run, *AIR, "--addresses", tmp_path / "whose.json")
    assert done.code == 0
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["number"] for line in lines if line["event"] == "decision"] == list(range(100))
    assert "not its address" in [line["kind"] for line in lines if line["event"] == "alarm"]
    assert "100 frames decided" in done.err


def test_alarms_are_delivered_and_counted(pisa: Command, run: Path, roof: Path, tmp_path: Path) -> None:
    (tmp_path / "whose.json").write_text(json.dumps(ENROLLED))
    (tmp_path / "urls").write_text(f"exec:tee -a {tmp_path / 'told.jsonl'}\n")
    plain = ("listen", f"file:{roof}", "--run", run, *AIR, "--addresses", tmp_path / "whose.json")
    done = pisa(*plain, "--notify", f"@{tmp_path / 'urls'}")
    assert done.code == 0, done.err
    told = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    said = [line for line in map(json.loads, done.out.splitlines()) if line["event"] == "alarm"]
    assert {alarm["number"] for alarm in told} == {alarm["number"] for alarm in said}
    assert all(alarm in said for alarm in told)
    assert f"exec:tee: {len(told)} reports of alarms delivered, 0 not." in done.err
    wrong = pisa(*plain, "--notify", "exec:no-such-program")
    assert (wrong.code, wrong.out) == (2, "")
    assert "no such command" in wrong.err


def test_a_sigmf_file_says_what_it_is(pisa: Command, run: Path, tmp_path: Path) -> None:
    pytest.importorskip("sigmf")
    meta = write_sigmf(tmp_path / "roof", played(in_turn(20)), "cf32_le")
    for path in (meta, meta.with_suffix(".sigmf-data")):
        done = pisa("listen", f"file:{path}", "--run", run, "--device", "cpu")
        assert done.code == 0
        assert done.out.count('"decision"') == 20
    one = write_sigmf(tmp_path / "one", played(in_turn(2))[:1], "cf32_le")
    done = pisa("listen", f"file:{one}", "--run", run, "--device", "cpu")
    assert done.code == 2
    assert "has 1 antennas, the model was trained for 2" in " ".join(done.err.split())


def test_pseudonyms_are_all_that_is_written(pisa: Command, run: Path, roof: Path, tmp_path: Path) -> None:
    (tmp_path / "whose.json").write_text(json.dumps(ENROLLED))
    folders = ("--state", tmp_path / "state", "--alarms", tmp_path / "alarms", "--out", tmp_path / "out.jsonl")
    options = ("--addresses", tmp_path / "whose.json", "--pseudonyms", tmp_path / "key", *folders)
    done = pisa("listen", f"file:{roof}", "--run", run, *AIR, *options)
    assert done.code == 0
    written = [tmp_path / "out.jsonl", *(tmp_path / "state").iterdir(), *(tmp_path / "alarms").iterdir()]
    assert b"anon-" in written[0].read_bytes()
    assert any(path.suffix == ".sigmf-meta" for path in written)
    for path in written:
        assert b"02:00:00:00" not in path.read_bytes()
    assert "02:00:00:00" not in done.out + done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(pisa: Command, run: Path, roof: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "out.jsonl"

    def end() -> None:
        wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 100)
        os.kill(os.getpid(), number)

    ender = threading.Thread(target=end)
    ender.start()
    done = pisa("listen", f"file:{roof}", "--follow", "--run", run, *AIR, "--out", out, "--state", tmp_path / "state")
    ender.join()
    assert done.code == 0
    assert "100 frames decided" in done.err
    assert (tmp_path / "state" / "listen.json").exists()


def test_sighup_exchanges_the_model(pisa: Command, run: Path, roof: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"

    def act() -> None:
        wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 100)
        os.kill(os.getpid(), signal.SIGHUP)
        with roof.open("ab") as file:
            file.write(as_bytes(played(in_turn(10))))
        wait_until(lambda: out.read_bytes().count(b"\n") >= 110)
        wait_until(lambda: threading.active_count() <= before + 4)
        os.kill(os.getpid(), signal.SIGTERM)

    before = threading.active_count()
    actor = threading.Thread(target=act)
    actor.start()
    done = pisa("listen", f"file:{roof}", "--follow", "--run", run, *AIR, "--out", out)
    actor.join()
    assert done.code == 0
    assert "110 frames decided" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("pigeon:roof:1",), "udp:HOST:PORT"),
        (("file:none.cf32",), "no such file"),
        (("zmq:tcp://roof",), "Expected zmq:tcp://HOST:PORT"),
        (("-", "--antennas", "3"), "3 antennas"),
        (("rtl_tcp:roof:1",), "less than 4.29 GHz"),
        (("soapy:driver=none",), "python3-soapysdr"),
        (("-", "--format", "rf32"), "real numbers"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    pisa: Command, run: Path, options: tuple[str, ...], words: str
) -> None:
    done = pisa("listen", *options, "--run", run, *AIR)
    assert done.code == 2
    assert words in " ".join(done.err.split())


def test_files_without_samples_and_streams_without_a_rate_are_refused(pisa: Command, run: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.cf32"
    notes.write_text("The receiver stands on the roof, and its antennas half a wavelength apart.")
    done = pisa("listen", f"file:{notes}", "--run", run, *AIR)
    assert done.code == 2
    assert "notes.cf32: is text; expected samples." in " ".join(done.err.split())
    done = pisa("listen", "-", "--run", run)
    assert done.code == 2
    assert "does not say its sample rate. Give --sample-rate" in " ".join(done.err.split())
