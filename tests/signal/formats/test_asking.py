"""Imports that do not guess: what is not said is asked for, assumed aloud, or refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pisa_capc import Frames, load
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.signal.formats import FORMATS, ImportOptions, import_dataset
from pisa_capc.signal.formats.base import option_of

GIVEN = {
    "pattern": "{capture}.x",
    "iq_key": "iq",
    "cfo_key": "cfo",
    "samples": 8,
    "axes": "nTA",
    "device": "D1",
}


def write_recording(stem: Path, notes: list[dict[str, Any]] | None = None, channels: int = 2, **info: object) -> Path:
    """A SigMF recording of a hundred samples."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(str(stem.name).encode()))
    rng.normal(size=(100, channels, 2)).astype("<f4").tofile(stem.with_suffix(".sigmf-data"))
    described = {
        "core:datatype": "cf32_le",
        "core:version": "1.0.0",
        "core:num_channels": channels,
        "core:sample_rate": 20e6,
        **info,
    }
    notes = [{"core:sample_start": s, "core:sample_count": 20} for s in (0, 30)] if notes is None else notes
    meta = {
        "global": described,
        "captures": [{"core:sample_start": 0, "core:frequency": 5e9}],
        "annotations": [{"signal:emitter": "D1", **note} for note in notes],
    }
    path = stem.with_suffix(".sigmf-meta")
    path.write_text(json.dumps(meta))
    return path


@pytest.mark.parametrize("name", ["mat", "sigmf", "npz", "hdf5", "csi"])
def test_options_that_say_nothing_to_a_format_are_refused(name: str, tmp_path: Path) -> None:
    uses = FORMATS[name].uses
    assert uses is not None
    for option, value in GIVEN.items():
        if option not in uses:
            with pytest.raises(ConfigError, match=f"{option_of(option)}: says nothing to the format {name}"):
                import_dataset(name, tmp_path, tmp_path / "out", ImportOptions(**{option: value}))  # type: ignore[arg-type]


class TestRooms:
    @pytest.fixture
    def rooms(self, tmp_path: Path) -> Path:
        for room in ("lab", "hall"):
            write_recording(tmp_path / f"src/{room}/monday")
        return tmp_path / "src"

    def test_a_folder_of_rooms_is_not_taken_for_one(self, rooms: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"nothing says the capture and environment of its 2 recordings.*--pattern"):
            import_dataset("sigmf", rooms, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_the_path_says_them(self, rooms: Path, tmp_path: Path) -> None:
        options = ImportOptions(pattern="{environment}/{capture}.sigmf-meta")
        import_dataset("sigmf", rooms, tmp_path / "out", options)
        frames = load(tmp_path / "out")
        assert (frames.environments, frames.captures, frames.devices) == (("hall", "lab"), ("monday",), ("D1",))
        named = ImportOptions(pattern="{device}/{capture}.sigmf-meta", environment="house")
        import_dataset("sigmf", rooms, tmp_path / "other", named)
        assert load(tmp_path / "other").devices == ("hall", "lab")
        with pytest.raises(ConfigError, match=r"--environment house: the pattern .* names it"):
            import_dataset("sigmf", rooms, tmp_path / "no", ImportOptions(pattern=options.pattern, environment="house"))

    def test_metadata_says_them(self, tmp_path: Path) -> None:
        for room in ("lab", "hall"):
            write_recording(tmp_path / f"src/{room}", **{"pisa:environment": room, "pisa:capture": "L9"})
        import_dataset("sigmf", tmp_path / "src", tmp_path / "out")
        assert load(tmp_path / "out").environments == ("hall", "lab")
        assert load(tmp_path / "out").captures == ("L9",)
        with pytest.raises(ConfigError, match=r"--environment roof: src names it. Leave one of them out"):
            import_dataset("sigmf", tmp_path / "src", tmp_path / "no", ImportOptions(environment="roof"))

    def test_a_name_is_for_those_that_have_none(self, tmp_path: Path) -> None:
        write_recording(tmp_path / "src/lab", **{"pisa:environment": "lab", "pisa:capture": "L9"})
        write_recording(tmp_path / "src/other", **{"pisa:capture": "L9"})
        import_dataset("sigmf", tmp_path / "src", tmp_path / "out", ImportOptions(environment="roof"))
        assert load(tmp_path / "out").environments == ("lab", "roof")

    def test_one_recording_is_assumed_aloud(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        meta = write_recording(tmp_path / "one")
        import_dataset("sigmf", meta, tmp_path / "out", show=True)
        said = " ".join(capsys.readouterr().err.split())
        assert "assumed: capture L1 (--capture), environment E1 (--environment), antennas half a wavelength" in said


def test_annotations_without_a_count_need_the_length_of_a_frame(tmp_path: Path) -> None:
    meta = write_recording(tmp_path / "one", [{"core:sample_start": 5}, {"core:sample_start": 50}])
    with pytest.raises(DataError, match=r"annotation 0 has no core:sample_count. Give --samples"):
        import_dataset("sigmf", meta, tmp_path / "out")
    import_dataset("sigmf", meta, tmp_path / "out", ImportOptions(samples=16))
    raw = np.fromfile(tmp_path / "one.sigmf-data", "<c8").reshape(100, 2)
    np.testing.assert_array_equal(load(tmp_path / "out").iq, [raw[5:21].T, raw[50:66].T])


def test_addresses_become_names_of_files(tmp_path: Path) -> None:
    note = {"core:sample_start": 0, "core:sample_count": 9, "signal:emitter": {"label": "e8:de:27:90:6e:42"}}
    import_dataset("sigmf", write_recording(tmp_path / "one", [note]), tmp_path / "out")
    assert load(tmp_path / "out").devices == ("e8-de-27-90-6e-42",)


def test_a_collection_is_one_recording(tmp_path: Path) -> None:
    metas = [write_recording(tmp_path / f"src/rx{i}", channels=1) for i in (0, 1)]
    streams = [{"name": meta.stem, "hash": hashlib.sha512(meta.read_bytes()).hexdigest()} for meta in metas]
    about = {"core:version": "1.0.0", "core:streams": streams, "pisa:environment": "lab", "pisa:capture": "L2"}
    (tmp_path / "src/array.sigmf-collection").write_text(json.dumps({"collection": about}))
    import_dataset("sigmf", tmp_path / "src", tmp_path / "out")
    frames = load(tmp_path / "out")
    assert (frames.environments, frames.captures, frames.antennas, len(frames)) == (("lab",), ("L2",), 2, 2)
    rows = [np.fromfile(tmp_path / f"src/rx{i}.sigmf-data", "<c8")[30:50] for i in (0, 1)]
    np.testing.assert_array_equal(frames.iq[1], rows)


class TestAdding:
    def options(self, capture: str) -> ImportOptions:
        return ImportOptions(environment="lab", capture=capture)

    def test_further_recordings_join_a_dataset(self, tmp_path: Path) -> None:
        first, second = (write_recording(tmp_path / name) for name in ("a", "b"))
        import_dataset("sigmf", first, tmp_path / "set", self.options("L1"))
        before = load(tmp_path / "set").iq
        for _ in range(2):  # the second time it is there
            import_dataset("sigmf", second, tmp_path / "set", self.options("L2"), add=True)
            frames = load(tmp_path / "set")
            assert (frames.captures, len(frames)) == (("L1", "L2"), 4)
        np.testing.assert_array_equal(frames.where(capture="L1").iq, before)

    def test_what_does_not_fit_or_is_there_is_refused(self, tmp_path: Path) -> None:
        first, second = (write_recording(tmp_path / name) for name in ("a", "b"))
        import_dataset("sigmf", first, tmp_path / "set", self.options("L1"))
        with pytest.raises(DataError, match=r"has lab/D1/L1 already. Give the added captures another"):
            import_dataset("sigmf", second, tmp_path / "set", self.options("L1"), add=True)
        wide = write_recording(tmp_path / "c", **{"core:sample_rate": 40e6})
        with pytest.raises(DataError, match=r"its sample_rate_hz is 20000000.0; that of the added captures"):
            import_dataset("sigmf", wide, tmp_path / "set", self.options("L3"), add=True)
        assert load(tmp_path / "set").captures == ("L1",)
        with pytest.raises(DataError, match="no such folder"):
            import_dataset("sigmf", second, tmp_path / "nowhere", self.options("L2"), add=True)


class TestAxes:
    IQ = np.random.default_rng(0).normal(size=(6, 4, 32, 2)) @ [1, 1j]

    def archive(self, tmp_path: Path, iq: np.ndarray) -> Path:
        np.savez(tmp_path / "a.npz", iq=iq.astype(np.complex64), device=["A", "B"] * 3)
        return tmp_path / "a.npz"

    @pytest.mark.parametrize("options", [{"antennas": 4}, {"axes": "nTA"}, {"samples": 32}])
    def test_axes_and_antennas_are_honoured(self, options: dict[str, Any], tmp_path: Path) -> None:
        path = self.archive(tmp_path, self.IQ.transpose(0, 2, 1))
        with pytest.raises(DataError, match=r"32 antennas and 4 samples, more antennas than samples.*--axes nTA"):
            import_dataset("npz", path, tmp_path / "set")
        import_dataset("npz", path, tmp_path / "set", ImportOptions(**options))
        frames = load(tmp_path / "set")
        assert (frames.antennas, frames.samples) == (4, 32)
        np.testing.assert_array_equal(frames.iq, self.IQ[[0, 2, 4, 1, 3, 5]].astype(np.complex64))

    def test_frames_may_come_last(self, tmp_path: Path) -> None:
        import_dataset("npz", self.archive(tmp_path, self.IQ.T), tmp_path / "set", ImportOptions(axes="TAn"))
        np.testing.assert_array_equal(load(tmp_path / "set").iq[0], self.IQ[0].astype(np.complex64))

    def test_what_does_not_fit_is_refused_and_consent_is_taken(self, tmp_path: Path) -> None:
        path = self.archive(tmp_path, self.IQ.transpose(0, 2, 1))
        with pytest.raises(DataError, match="does not fit --antennas 3"):
            import_dataset("npz", path, tmp_path / "set", ImportOptions(antennas=3))
        import_dataset("npz", path, tmp_path / "set", ImportOptions(antennas=32))
        assert load(tmp_path / "set").antennas == 32

    def test_in_memory_too(self) -> None:
        turned = self.IQ.transpose(0, 2, 1)
        with pytest.raises(DataError, match=r'more antennas than samples.*axes="nTA"'):
            Frames.from_arrays(turned, device="A")
        frames = Frames.from_arrays(turned, device="A", axes="nTA")
        np.testing.assert_array_equal(frames.iq, self.IQ.astype(np.complex64))
        assert Frames.from_arrays(turned, device="A", axes="nAT").antennas == 32
        with pytest.raises(ConfigError, match="expected the letters n, T and A"):
            Frames.from_arrays(turned, device="A", axes="abc")
