"""docs/recordings.md: what it shows is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import typer

from pisa_capc.cli import app
from pisa_capc.cli import detect as _registered  # noqa: F401
from pisa_capc.signal.detection.base import NO_IQ, FoundFrame
from pisa_capc.signal.detection.finding import as_annotations, detect
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.recordings.encoding import ENDINGS
from tests.signal.detection.senders import conversation
from tests.signal.recordings.tools import InMemory

PAGE, _ = (Path(__file__).parents[3] / "docs/recordings.md").read_text(encoding="utf-8").split("## Simulated")


def test_the_bytes_of_the_example_are_the_samples_beside_them(tmp_path: Path) -> None:
    rows = re.findall(r"^((?:[0-9a-f]{2} ){3}[0-9a-f]{2})   antenna (\d)(?:, I = +(-?\d+), Q = +(-?\d+))?", PAGE, re.M)
    assert len(rows) == 4
    path = tmp_path / "a.cs16"
    path.write_bytes(bytes.fromhex("".join(row[0] for row in rows)))
    read = open_recording(path, format="cs16", sample_rate_hz=20e6, antennas=2).read(0, 2)
    expected = [(int(i or 0) + 1j * int(q or 0)) / 32768 for _, _, i, q in rows]
    assert [int(row[1]) for row in rows] == [0, 1, 0, 1]
    assert np.array_equal(read.T.ravel(), np.array(expected, dtype=np.complex64))


def test_the_json_has_the_fields_of_a_frame() -> None:
    shown = json.loads(PAGE.split("```json")[1].split("```")[0])
    frame = FoundFrame(0, NO_IQ, np.zeros(1), np.zeros(1), 1.0)
    assert list(shown["frames"][0]) == list(frame.to_json())


def test_every_ending_is_in_the_table() -> None:
    shown = set(re.findall(r"`\.(\w+)`", PAGE.split("## Input")[1].split("SigMF needs")[0]))
    assert shown == {*ENDINGS}


def test_every_option_on_the_page_is_one_and_every_one_is_on_the_page() -> None:
    command = typer.main.get_command(app).commands["detect"]  # type: ignore[attr-defined]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts) if name[:2] == "--"}
    shown = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    assert shown - known == {"--device-name", "--add", "--run"}  # of pisa import and pisa listen
    assert known - shown <= {"--help", "--check", "--decode"}  # the other half of a switch


def test_the_fields_of_annotations_are_those_that_are_written() -> None:
    shown = set(re.findall(r"`((?:core|signal|pisa):\w+)`", PAGE.split("## As annotations")[1].split("## Errors")[0]))
    found = detect(InMemory(conversation()))
    written = {name for note in as_annotations(found, slice(0, 2)) for name in note}
    assert shown == written | {"core:generator"}
