"""SigMF: one recording of several channels, or a collection of one each."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.data.geometry import square
from pisa_capc.signal.recordings import Annotation, open_recording
from tests.signal.recordings.tools import collection, noise, write_sigmf

pytest.importorskip("sigmf")


@pytest.mark.parametrize("datatype", ["ci8", "cu8", "ci16_le", "ci16_be", "cf32_le", "cf32_be"])
def test_every_complex_datatype_and_channel_is_read(datatype: str, tmp_path: Path) -> None:
    x = noise(3, 2000)
    for path in (write_sigmf(tmp_path / "roof", x, datatype), tmp_path / "roof.sigmf-data"):
        recording = open_recording(path)
        assert (recording.about.name, recording.about.antennas, recording.about.length) == ("roof", 3, 2000)
        assert np.abs(recording.read(0, 5000) - x).max() < 0.02


def test_the_package_reads_the_same_samples(tmp_path: Path) -> None:
    import sigmf

    meta = write_sigmf(tmp_path / "roof", noise(2, 500), "ci16_le")
    assert np.allclose(open_recording(meta).read(0, 500).T, sigmf.fromfile(meta).read_samples(), atol=1e-7)


def test_what_metadata_says_is_known(tmp_path: Path) -> None:
    capture = {"core:sample_start": 0, "core:frequency": 2.4e9, "core:datetime": "2026-05-01T10:00:00.25Z"}
    own = {"pisa:environment": "roof", "pisa:capture": "noon", "pisa:geometry": square().to_json()}
    about = open_recording(write_sigmf(tmp_path / "a", noise(4), captures=[capture], **own)).about
    assert (about.sample_rate_hz, about.carrier_hz) == (20e6, 2.4e9)
    assert about.time == datetime(2026, 5, 1, 10, 0, 0, 250_000, tzinfo=UTC)
    assert (about.environment, about.capture, about.geometry) == ("roof", "noon", square())


def test_annotations_come_along_whatever_names_their_device(tmp_path: Path) -> None:
    notes = [
        {"core:sample_start": 110, "core:sample_count": 20, "signal:emitter": {"label": "a", "seid": 3}},
        {"core:sample_start": 120, "signal:emitter": {"seid": 7}},
        {"core:sample_start": 130, "core:sample_count": 5, "signal:emitter": "b", "core:label": "c"},
        {"core:sample_start": 140, "core:sample_count": 5, "core:label": "d"},
        {"core:sample_start": 150, "core:sample_count": 5},
    ]
    meta = write_sigmf(tmp_path / "a", noise(), annotations=notes, offset=100)
    assert open_recording(meta).annotations == (
        Annotation(10, 20, "a"),
        Annotation(20, None, "7"),
        Annotation(30, 5, "b"),
        Annotation(40, 5, "d"),
        Annotation(50, 5, None),
    )


def test_data_of_another_name_and_with_a_header_is_read(tmp_path: Path) -> None:
    x = noise(2, 100)
    captures = [{"core:sample_start": 0, "core:header_bytes": 10}]
    meta = write_sigmf(tmp_path / "a", x, "cf32_le", captures=captures, dataset="odd.bin", trailing_bytes=7)
    (tmp_path / "odd.bin").write_bytes(bytes(10) + (tmp_path / "a.sigmf-data").read_bytes() + bytes(7))
    assert np.array_equal(open_recording(meta).read(0, 1000), x)


class TestCollections:
    def test_channels_are_in_the_order_of_the_collection(self, tmp_path: Path) -> None:
        x = noise(3, 400)
        for i in range(3):
            note = {"core:sample_start": 5, "core:sample_count": 9, "core:label": "a"}
            write_sigmf(tmp_path / f"ch{i}", x[i : i + 1], "cf32_le", annotations=[note])
        recording = open_recording(collection(tmp_path, ["ch2", "ch0", "ch1"], **{"pisa:environment": "roof"}))
        assert np.array_equal(recording.read(0, 400), x[[2, 0, 1]])
        assert recording.annotations == (Annotation(5, 9, "a"),)
        assert (recording.about.name, recording.about.environment) == ("array", "roof")

    @pytest.mark.parametrize(
        ("odd", "words"),
        [({"samples": 300}, "have equally many"), ({"sample_rate": 10e6}, "rate_hz is 10000000.0; .* has 20000000.0")],
    )
    def test_channels_that_do_not_fit_are_refused(self, odd: dict[str, Any], words: str, tmp_path: Path) -> None:
        write_sigmf(tmp_path / "a", noise(1, 400))
        write_sigmf(tmp_path / "b", noise(1, odd.pop("samples", 400)), **odd)
        with pytest.raises(DataError, match=words):
            open_recording(collection(tmp_path, ["a", "b"]))

    def test_metadata_that_has_changed_is_refused(self, tmp_path: Path) -> None:
        meta = write_sigmf(tmp_path / "a", noise(1, 400))
        path = collection(tmp_path, ["a"])
        meta.write_text(meta.read_text() + " ")
        with pytest.raises(DataError, match=r"has changed since array.sigmf-collection was written"):
            open_recording(path)

    @pytest.mark.parametrize("name", ["../a", "/etc/passwd"])
    def test_streams_elsewhere_are_refused(self, name: str, tmp_path: Path) -> None:
        write_sigmf(tmp_path / "a", noise(1, 400))
        path = collection(tmp_path, ["a"])
        path.write_text(path.read_text().replace('"name": "a"', f'"name": "{name}"'))
        with pytest.raises(DataError, match="is not beside it"):
            open_recording(path)

    def test_a_name_that_no_file_can_have_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "array.sigmf-collection"
        for name in ("x" * 5000, "a\0b"):
            path.write_text(json.dumps({"collection": {"core:streams": [{"name": name, "hash": "0"}]}}))
            with pytest.raises(DataError, match=r"array.sigmf-collection: cannot be read"):
                open_recording(path)

    @pytest.mark.parametrize("text", ["{}", '{"collection": {"core:streams": []}}', "[", '{"collection": []}'])
    def test_what_is_no_collection_is_refused(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "a.sigmf-collection").write_text(text)
        with pytest.raises(DataError, match=r"a\.sigmf-collection: "):
            open_recording(tmp_path / "a.sigmf-collection")


class TestWhatIsRefused:
    def test_data_that_does_not_match_its_hash_unless_nobody_looks(self, tmp_path: Path) -> None:
        meta = write_sigmf(tmp_path / "a", noise(), sha512="ab" * 64)
        with pytest.raises(DataError, match="does not match core:sha512"):
            open_recording(meta)
        assert open_recording(meta, check=False).about.length == 5000

    def test_a_hash_that_matches_passes(self, tmp_path: Path) -> None:
        x = noise()
        write_sigmf(tmp_path / "a", x)
        digest = hashlib.sha512((tmp_path / "a.sigmf-data").read_bytes()).hexdigest()
        open_recording(write_sigmf(tmp_path / "a", x, sha512=digest))

    def test_real_samples(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="These are real numbers; frames are found in complex ones"):
            open_recording(write_sigmf(tmp_path / "a", noise(), "rf32_le"))

    def test_several_carriers(self, tmp_path: Path) -> None:
        captures = [{"core:sample_start": i, "core:frequency": 2.4e9 + i} for i in (0, 100)]
        with pytest.raises(DataError, match=r"tuned to 2 carriers, 2,400,000,000, 2,400,000,100 Hz"):
            open_recording(write_sigmf(tmp_path / "a", noise(), captures=captures))

    def test_headers_within_the_data(self, tmp_path: Path) -> None:
        captures = [{"core:sample_start": 0}, {"core:sample_start": 100, "core:header_bytes": 4}]
        with pytest.raises(DataError, match="core:header_bytes within the data, before its capture 1"):
            open_recording(write_sigmf(tmp_path / "a", noise(), captures=captures))

    @pytest.mark.parametrize("other", ["../secret.bin", "/etc/passwd", "inner/secret.bin"])
    def test_data_outside_of_its_folder(self, other: str, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"is not a file beside it|not valid SigMF"):
            open_recording(write_sigmf(tmp_path / "a", noise(), dataset=other))

    def test_metadata_that_is_not_valid(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"not valid SigMF \(global/core:num_channels: .*-3"):
            open_recording(write_sigmf(tmp_path / "a", noise(), num_channels=-3))

    def test_data_that_is_missing_or_empty(self, tmp_path: Path) -> None:
        meta = write_sigmf(tmp_path / "a", noise())
        (tmp_path / "a.sigmf-data").write_bytes(b"")
        with pytest.raises(DataError, match="holds 0 bytes; expected at least one sample of 8 bytes"):
            open_recording(meta)
        (tmp_path / "a.sigmf-data").unlink()
        with pytest.raises(DataError, match=r"its data file a.sigmf-data is missing"):
            open_recording(meta)


def test_lost_samples_are_said(tmp_path: Path) -> None:
    captures = [{"core:sample_start": 0, "core:global_index": 0}, {"core:sample_start": 100, "core:global_index": 300}]
    with pytest.warns(UserWarning, match="samples were lost between its captures"):
        open_recording(write_sigmf(tmp_path / "a", noise(), captures=captures))


def test_cut_data_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    meta = write_sigmf(tmp_path / "a", noise(2, 100))
    data = tmp_path / "a.sigmf-data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="its last 7 bytes are no whole sample of 8"):
        assert open_recording(meta).about.length == 99
