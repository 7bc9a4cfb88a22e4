"""Annotations beside the data, as the specification has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.signal.recordings import Annotation, open_recording
from pisa_capc.signal.recordings.sigmf import write_annotations
from tests.signal.recordings.tools import collection, encoded, noise, write_sigmf

sigmf = pytest.importorskip("sigmf")


def notes(antennas: slice) -> list[dict[str, Any]]:
    cfo_hz = [1.0, 2.0, 3.0, 4.0][antennas]
    return [
        {"core:sample_start": 70, "core:sample_count": 9, "signal:emitter": {"label": "b"}, "pisa:cfo_hz": cfo_hz},
        {"core:sample_start": 30, "core:sample_count": 9, "signal:emitter": {"label": "a"}, "pisa:cfo_hz": cfo_hz},
    ]


def test_plain_samples_get_metadata_that_opens_them(tmp_path: Path) -> None:
    x = noise(2, 100)
    (tmp_path / "wifi-6.5.cs16").write_bytes(encoded(x, "cs16"))
    recording = open_recording(tmp_path / "wifi-6.5.cs16", sample_rate_hz=20e6, carrier_hz=5.2e9, antennas=2)
    (path,) = write_annotations(recording, notes, "me", "found")
    assert path == tmp_path / "wifi-6.5.sigmf-meta"
    again = open_recording(path)
    assert (again.read(0, 100) == recording.read(0, 100)).all()
    assert (again.about.sample_rate_hz, again.about.carrier_hz) == (20e6, 5.2e9)
    assert again.annotations == (Annotation(30, 9, "a"), Annotation(70, 9, "b"))
    theirs = sigmf.fromfile(path)
    theirs.validate()
    assert theirs.get_annotations()[0]["pisa:cfo_hz"] == [1.0, 2.0]
    assert {e["name"] for e in theirs.get_global_info()["core:extensions"]} == {"signal", "pisa"}
    with pytest.raises(DataError, match="exists already; give another name or --force"):
        write_annotations(recording, notes, "me", "found")


def test_metadata_of_the_user_is_kept_and_the_new_one_is_beside_it(tmp_path: Path) -> None:
    own = [{"core:sample_start": 50, "core:comment": "mine"}]
    meta = write_sigmf(tmp_path / "a", noise(), annotations=own, offset=1000, author="me")
    before = meta.read_bytes()
    (path,) = write_annotations(open_recording(meta), notes, "pisa", "found")
    assert meta.read_bytes() == before
    assert path.name == "a.found.sigmf-meta"
    written = json.loads(path.read_text())
    assert written["global"]["core:dataset"] == "a.sigmf-data"
    assert written["global"]["core:author"] == "me"
    assert [note["core:sample_start"] for note in written["annotations"]] == [1030, 1070]
    assert [note.start for note in open_recording(path).annotations] == [30, 70]


def test_by_force_annotations_are_added_once(tmp_path: Path) -> None:
    own = [{"core:sample_start": 50, "core:comment": "mine"}]
    meta = write_sigmf(tmp_path / "a", noise(), annotations=own)
    for _ in range(2):
        assert write_annotations(open_recording(meta), notes, "pisa", "found", force=True) == [meta]
    written = json.loads(meta.read_text())
    assert "core:dataset" not in written["global"]
    assert [note.get("core:comment") for note in written["annotations"]] == [None, "mine", None]


def test_files_of_one_antenna_each_have_what_it_heard(tmp_path: Path) -> None:
    for i in range(3):
        write_sigmf(tmp_path / f"ch{i}", noise(1, 400))
    path = collection(tmp_path, ["ch2", "ch0", "ch1"])
    before = {meta: meta.read_bytes() for meta in tmp_path.glob("*.sigmf-meta")}
    written = write_annotations(open_recording(path), notes, "pisa", "found", force=True)
    assert [p.name for p in written] == [f"ch{i}.found.sigmf-meta" for i in (2, 0, 1)]
    assert [json.loads(p.read_text())["annotations"][0]["pisa:cfo_hz"] for p in written] == [[1.0], [2.0], [3.0]]
    assert all(meta.read_bytes() == content for meta, content in before.items())  # the collection has their hashes
    open_recording(path)
