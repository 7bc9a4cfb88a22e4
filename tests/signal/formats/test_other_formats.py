"""SigMF, npz and LoRa_RFFI HDF5 as other programs write them."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from pisa_capc import load
from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError
from pisa_capc.data.store.dataset import UNLABELLED
from pisa_capc.signal.formats import ExportOptions, ImportOptions, export_dataset, import_dataset, transfer
from tests.datasets import write_random


class TestSigMF:
    @pytest.fixture
    def exported(self, tmp_path: Path) -> Path:
        export_dataset("sigmf", load(write_random(tmp_path / "set", frames=3)), tmp_path / "sigmf")
        return tmp_path / "sigmf"

    def test_a_recording_is_what_the_standard_says(self, exported: Path) -> None:
        import sigmf

        meta = json.loads((exported / "E1/D02/M.sigmf-meta").read_text())
        assert meta["global"]["core:num_channels"] == 4
        assert meta["global"]["core:datatype"] == "cf32_le"
        assert [e["name"] for e in meta["global"]["core:extensions"]] == ["signal", "pisa"]
        assert (meta["global"]["pisa:environment"], meta["global"]["pisa:capture"]) == ("E1", "M")
        assert [a["core:sample_start"] for a in meta["annotations"]] == [0, 16, 32]
        assert all(a["signal:emitter"] == {"seid": 2, "label": "D02"} for a in meta["annotations"])
        recording = sigmf.fromfile(exported / "E1/D02/M.sigmf-meta")
        recording.validate()
        assert recording.read_samples().shape == (48, 4)

    def foreign(self, folder: Path, annotations: list[dict[str, object]], **info: object) -> Path:
        folder.mkdir()
        samples = np.random.default_rng(0).normal(size=(100, 2, 2)).astype(np.float32)
        samples.tofile(folder / "r.sigmf-data")
        described = {"core:datatype": "cf32_le", "core:version": "1.0.0", "core:num_channels": 2, **info}
        meta = {"global": described, "captures": [{"core:sample_start": 0}], "annotations": annotations}
        (folder / "r.sigmf-meta").write_text(json.dumps(meta))
        return folder

    def test_one_recording_may_hold_several_devices(self, tmp_path: Path) -> None:
        notes = [
            {"core:sample_start": s, "core:sample_count": c, "signal:emitter": {"seid": d}}
            for s, c, d in ((0, 20, 7), (30, 25, 0), (60, 20, 7))
        ]
        folder = self.foreign(tmp_path / "src", notes, **{"core:sample_rate": 1e6})
        with pytest.raises(DataError, match=r"says no core:frequency. Give --carrier"):
            import_dataset("sigmf", folder, tmp_path / "out")
        options = ImportOptions(carrier_hz=868e6, samples=20, environment="roof")
        import_dataset("sigmf", folder, tmp_path / "out", options)
        frames = load(tmp_path / "out")
        assert (frames.devices, frames.environments, len(frames)) == (("0", "7"), ("roof",), 3)
        raw = np.fromfile(folder / "r.sigmf-data", np.complex64).reshape(100, 2)
        np.testing.assert_array_equal(frames.select(frames.device == 1).iq[1], raw[60:80].T)

    def test_frames_of_nobody_knows_whom_go_in_and_out_without_a_name(self, tmp_path: Path) -> None:
        notes = [{"core:sample_start": s, "core:sample_count": 20} for s in (0, 30)]
        folder = self.foreign(tmp_path / "src", notes, **{"core:sample_rate": 1e6})
        options = ImportOptions(carrier_hz=868e6, device=UNLABELLED)
        import_dataset("sigmf", folder, tmp_path / "set", options)
        frames = load(tmp_path / "set")
        assert (frames.devices, len(frames)) == ((UNLABELLED,), 2)
        export_dataset("sigmf", frames, tmp_path / "again")
        (meta,) = (tmp_path / "again").rglob("*.sigmf-meta")
        assert all(
            not {"core:label", "signal:emitter"} & {*note} for note in json.loads(meta.read_text())["annotations"]
        )
        import_dataset("sigmf", tmp_path / "again", tmp_path / "back", ImportOptions(device=UNLABELLED))
        np.testing.assert_array_equal(load(tmp_path / "back").iq, frames.iq)

    def test_an_emitter_may_be_text(self, tmp_path: Path) -> None:
        notes = [{"core:sample_start": 0, "core:sample_count": 20, "signal:emitter": "x"}]
        folder = self.foreign(tmp_path / "src", notes, **{"core:sample_rate": 1e6})
        import_dataset("sigmf", folder, tmp_path / "out", ImportOptions(carrier_hz=1e9))
        assert load(tmp_path / "out").devices == ("x",)

    def test_frames_of_several_lengths_are_cut_on_request_only(self, tmp_path: Path) -> None:
        notes = [{"core:sample_start": 0, "core:sample_count": c, "signal:emitter": {"label": "x"}} for c in (20, 30)]
        folder = self.foreign(tmp_path / "src", notes, **{"core:sample_rate": 1e6})
        with pytest.raises(DataError, match=r"frames of 20 to 30 samples.*--samples 20"):
            import_dataset("sigmf", folder, tmp_path / "out", ImportOptions(carrier_hz=1e9))

    @pytest.mark.parametrize(
        ("notes", "message"),
        [
            ([], "no annotations; expected one per frame"),
            ([{"core:sample_start": 0, "core:sample_count": 9}], "an annotation names no device"),
            (
                [{"core:sample_start": 90, "core:sample_count": 20, "core:label": "x"}],
                "ends at sample 110; the recording has 100",
            ),
            ([{"core:sample_start": -1, "core:sample_count": 20, "core:label": "x"}], "minimum|less than"),
        ],
    )
    def test_recordings_that_do_not_fit_are_refused(self, notes, message: str, tmp_path: Path) -> None:
        folder = self.foreign(tmp_path / "src", notes, **{"core:sample_rate": 1e6})
        with pytest.raises(DataError, match=message):
            import_dataset("sigmf", folder, tmp_path / "out", ImportOptions(carrier_hz=1e9))

    def test_data_that_does_not_match_its_hash_is_refused(self, exported: Path, tmp_path: Path) -> None:
        data = exported / "E2/D01/L1.sigmf-data"
        data.write_bytes(bytes(8) + data.read_bytes()[8:])
        with pytest.raises(DataError, match=r"E2/D01/L1.sigmf-data: does not match core:sha512"):
            import_dataset("sigmf", exported, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_data_that_is_missing_is_named(self, exported: Path, tmp_path: Path) -> None:
        (exported / "E2/D01/L1.sigmf-data").unlink()
        with pytest.raises(DataError, match=r"E2/D01/L1.sigmf-meta: its data file L1.sigmf-data is missing"):
            import_dataset("sigmf", exported, tmp_path / "out")

    @pytest.mark.parametrize(
        ("size", "message"), [(1001, "ends at sample 32; the recording has 31. Is its data cut"), (0, "holds 0 bytes")]
    )
    @pytest.mark.filterwarnings("ignore:.*it was cut off")
    def test_data_that_is_cut_off_is_measured(self, size: int, message: str, exported: Path, tmp_path: Path) -> None:
        meta, data = exported / "E2/D01/L1.sigmf-meta", exported / "E2/D01/L1.sigmf-data"
        described = json.loads(meta.read_text())
        del described["global"]["core:sha512"]
        meta.write_text(json.dumps(described))
        data.write_bytes(data.read_bytes()[:size])
        with pytest.raises(DataError, match=message):
            import_dataset("sigmf", exported, tmp_path / "out")

    def test_data_of_another_name_is_found(self, exported: Path, tmp_path: Path) -> None:
        meta, data = exported / "E2/D01/L1.sigmf-meta", exported / "E2/D01/L1.sigmf-data"
        described = json.loads(meta.read_text())
        described["global"]["core:dataset"] = "raw.bin"
        described["captures"][0]["core:header_bytes"] = 5
        del described["global"]["core:sha512"]
        meta.write_text(json.dumps(described))
        (exported / "E2/D01/raw.bin").write_bytes(bytes(5) + data.read_bytes())
        data.unlink()
        import_dataset("sigmf", meta, tmp_path / "out")
        assert len(load(tmp_path / "out")) == 3

    def test_names_that_would_leave_the_folder_are_refused(self, tmp_path: Path) -> None:
        notes = [{"core:sample_start": 0, "core:sample_count": 9, "core:label": "../../escape"}]
        folder = self.foreign(tmp_path / "src", notes, **{"core:sample_rate": 1e6})
        with pytest.raises(DataError, match=r"device '\.\./\.\./escape': expected a name that can be a file name"):
            import_dataset("sigmf", folder, tmp_path / "out", ImportOptions(carrier_hz=1e9))

    def test_a_folder_without_recordings_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"holds no \.sigmf-meta file"):
            import_dataset("sigmf", tmp_path, tmp_path / "out")

    def test_without_the_extra_there_is_a_hint(self, exported: Path, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "sigmf", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'pisa-capc\[sigmf\]'"):
            import_dataset("sigmf", exported, tmp_path / "out")


class TestNpz:
    IQ = np.random.default_rng(1).normal(size=(5, 2, 8)).astype(np.complex64)

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_a_minimal_archive_is_enough(self, save, tmp_path: Path) -> None:
        save(tmp_path / "a.npz", iq=self.IQ, device=[2, 1, 2, 1, 1], frame=[1, 2, 0, 0, 1])
        import_dataset("npz", tmp_path / "a.npz", tmp_path / "out", ImportOptions(carrier_hz=1e9))
        frames = load(tmp_path / "out")
        assert (frames.devices, frames.environments, frames.carrier_hz) == (("1", "2"), ("E1",), 1e9)
        np.testing.assert_array_equal(frames.iq, self.IQ[[3, 4, 1, 2, 0]])

    def test_an_archive_without_devices_is_read_when_they_are_given(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", iq=self.IQ)
        import_dataset("npz", tmp_path / "a.npz", tmp_path / "out", ImportOptions(device=UNLABELLED))
        assert load(tmp_path / "out").devices == (UNLABELLED,)

    def test_fortran_order_and_double_precision_are_read(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=np.asfortranarray(self.IQ.astype(complex)), device=["a"] * 5)
        import_dataset("npz", tmp_path / "a.npz", tmp_path / "out", ImportOptions(iq_key="x"))
        np.testing.assert_array_equal(load(tmp_path / "out").iq, self.IQ)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"iq": IQ}, "holds no array 'device'; found iq"),
            ({"device": ["a"]}, "holds no array 'iq'"),
            ({"iq": IQ.real, "device": ["a"] * 5}, r"iq is float32 \(5, 2, 8\); expected complex"),
            ({"iq": IQ[0], "device": ["a"]}, r"expected complex \(frames, antennas, samples\)"),
            ({"iq": IQ[:0], "device": np.array([], str)}, r"a.npz: iq \(0, 2, 8\) holds no frames"),
            ({"iq": IQ, "device": ["a"] * 4}, r"device has shape \(4,\); expected \(5,\)"),
            (
                {"iq": IQ, "device": ["a"] * 5, "cfo_hz": np.zeros((5, 3))},
                r"cfo_hz has shape \(5, 3\); expected \(5, 2\)",
            ),
            ({"iq": IQ, "device": ["a/b"] * 5}, "device 'a/b': expected a name"),
        ],
    )
    def test_archives_that_do_not_fit_are_refused(self, arrays, message: str, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(DataError, match=message):
            import_dataset("npz", tmp_path / "a.npz", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(("bad", "message"), [(np.nan, "NaN or infinite samples"), (0, "zero power")])
    def test_bad_samples_are_named_by_archive_and_capture(self, bad: float, message: str, tmp_path: Path) -> None:
        iq = self.IQ.copy()
        iq[3] = bad
        np.savez(tmp_path / "a.npz", iq=iq, device=list("aabbb"))
        with pytest.raises(DataError, match=rf"a.npz: E1/b/L1: frame 1 \(iq\[3\]\) (holds|has) {message}"):
            import_dataset("npz", tmp_path / "a.npz", tmp_path / "out")
        assert not (tmp_path / "out").exists()  # not even the capture of a, which was whole

    def test_a_folder_is_no_archive(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"is a folder; expected an \.npz file\.$"):
            import_dataset("npz", tmp_path, tmp_path / "out")

    def test_nothing_is_unpickled(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self):  # type: ignore[no-untyped-def]
                return Path.touch, (tmp_path / "sprung",)

        trap = np.array([Trap()] * 5, dtype=object)
        for name, arrays in (("device", {"iq": self.IQ, "device": trap}), ("iq", {"iq": trap, "device": ["a"] * 5})):
            np.savez(tmp_path / f"{name}.npz", **arrays, allow_pickle=True)
            with pytest.raises(DataError):
                import_dataset("npz", tmp_path / f"{name}.npz", tmp_path / "out")
        (tmp_path / "plain.npz").write_bytes(pickle.dumps(Trap()))
        with pytest.raises(DataError):
            import_dataset("npz", tmp_path / "plain.npz", tmp_path / "out")
        assert not (tmp_path / "sprung").exists()


class TestLoraRffi:
    @staticmethod
    def write(path: Path, rows: object, label: object, **more: object) -> Path:
        with h5py.File(path, "w") as file:
            for name, value in {"data": rows, "label": label, **more}.items():
                file[name] = value
        return path

    def test_the_published_layout_is_read(self, tmp_path: Path) -> None:
        rows = np.random.default_rng(0).normal(size=(4, 6))
        path = self.write(tmp_path / "a.h5", rows, np.array([[2.0, 1.0, 2.0, 1.0]]))
        import_dataset("hdf5", path, tmp_path / "out", ImportOptions(environment="lab", capture="day1"))
        frames = load(tmp_path / "out")
        assert (frames.devices, frames.environments, frames.sample_rate_hz) == (("D01", "D02"), ("lab",), 1e6)
        expected = (rows[:, :3] + 1j * rows[:, 3:]).astype(np.complex64)
        np.testing.assert_array_equal(frames.iq[:, 0], expected[[1, 3, 0, 2]])

    @pytest.mark.parametrize(
        ("rows", "label", "message"),
        [
            (np.ones((3, 5)), [1, 1, 1], r"/data has shape \(3, 5\); expected \(frames, 2 × samples\)"),
            (np.ones((0, 4)), [], r"a.h5: /data \(0, 4\) holds no frames"),
            (np.ones((3, 4)), [1, 1], "/label has 2 values; expected 3"),
            (np.ones((3, 4)), [0, 1, 2], "/label holds 0; expected whole numbers from 1"),
        ],
    )
    def test_files_that_do_not_fit_are_refused(self, rows, label, message: str, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=message):
            import_dataset("hdf5", self.write(tmp_path / "a.h5", rows, label), tmp_path / "out")

    def test_a_cfo_of_another_length_is_refused(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "a.h5", np.ones((3, 4)), [1, 1, 1], cfo_hz=np.zeros(2))
        with pytest.raises(DataError, match="/cfo_hz has 2 values; expected 3"):
            import_dataset("hdf5", path, tmp_path / "out")

    def test_several_antennas_need_a_choice(self, tmp_path: Path) -> None:
        frames = load(write_random(tmp_path / "set"))
        with pytest.raises(ConfigError, match=r"holds one antenna, the frames have 4. Choose one with --antenna"):
            export_dataset("hdf5", frames, tmp_path / "out")
        with pytest.raises(ConfigError, match="--antenna 4: expected 0 to 3"):
            export_dataset("hdf5", frames, tmp_path / "out", ExportOptions(antenna=4))


class TestFailedImports:
    """Six frames, of devices a and b in turn; frame 5, the third of b, is spoilt."""

    IQ = np.random.default_rng(2).normal(size=(6, 1, 8)).astype(np.complex64)

    def write(self, format: str, folder: Path, iq: np.ndarray) -> Path:
        """The frames as other programs would write them."""
        folder.mkdir(exist_ok=True)
        if format == "npz":
            np.savez(folder / "x.npz", iq=iq, device=["a", "b"] * 3)
        elif format == "hdf5":
            rows = np.concatenate([iq[:, 0].real, iq[:, 0].imag], axis=1)
            TestLoraRffi.write(folder / "x.h5", rows, [1, 2] * 3)
        else:
            iq.tofile(folder / "x.sigmf-data")
            notes = [{"core:sample_start": 8 * i, "core:sample_count": 8, "core:label": "ab"[i % 2]} for i in range(6)]
            info = {"core:datatype": "cf32_le", "core:version": "1.0.0", "core:sample_rate": 1e6}
            captures = [{"core:sample_start": 0, "core:frequency": 1e9}]
            meta = {"global": info, "captures": captures, "annotations": notes}
            (folder / "x.sigmf-meta").write_text(json.dumps(meta))
        return next(p for p in sorted(folder.iterdir()) if p.suffix != ".sigmf-data")

    @pytest.mark.parametrize("there", [False, True], ids=["no folder", "an empty folder"])
    @pytest.mark.parametrize(
        ("format", "place"),
        [("npz", r"iq\[5\]"), ("hdf5", "row 5 of /data in x.h5"), ("sigmf", "annotation 5 of x.sigmf-meta")],
    )
    def test_leave_room_for_the_repaired_file(self, format: str, place: str, there: bool, tmp_path: Path) -> None:
        spoilt, out = self.IQ.copy(), tmp_path / "out"
        spoilt[5, 0, 3] = np.nan
        if there:
            out.mkdir()
        with pytest.raises(DataError, match=rf"frame 2 \({place}\) holds NaN"):
            import_dataset(format, self.write(format, tmp_path / "src", spoilt), out)
        assert [p.name for p in tmp_path.iterdir() if p != tmp_path / "src"] == ["out"] * there
        assert not there or not list(out.iterdir())
        import_dataset(format, self.write(format, tmp_path / "src", self.IQ), out)
        assert len(load(out)) == 6

    def test_touch_no_file_of_others(self, tmp_path: Path, monkeypatch) -> None:
        spoilt, out = self.IQ.copy(), tmp_path / "out"
        spoilt[5] = 0
        source = self.write("npz", tmp_path / "src", spoilt)
        monkeypatch.setattr(
            "pisa_capc.signal.formats.transfer.write_capture",
            lambda *_: (out / "notes.txt").write_text("written meanwhile"),
        )
        with pytest.raises(DataError, match="zero power"):
            import_dataset("npz", source, out)
        assert [p.name for p in out.rglob("*")] == ["notes.txt"]

    def test_keep_what_an_earlier_run_wrote(self, tmp_path: Path) -> None:
        source, out = self.write("npz", tmp_path / "src", self.IQ), tmp_path / "out"
        import_dataset("npz", source, out)
        (out / "E1/b/L1.h5").unlink()
        spoilt = self.IQ.copy()
        spoilt[5] = 0
        with pytest.raises(DataError, match="zero power"):
            import_dataset("npz", self.write("npz", tmp_path / "src", spoilt), out)
        assert (out / "E1/a/L1.h5").is_file()

    def test_keep_what_is_whole_when_the_source_is_gone_for_a_while(self, tmp_path: Path, monkeypatch) -> None:
        source, out = self.write("npz", tmp_path / "src", self.IQ), tmp_path / "out"
        write = transfer.write_capture

        def write_and_unplug(*capture: object) -> None:
            write(*capture)  # type: ignore[arg-type]
            source.rename(tmp_path / "unplugged")

        monkeypatch.setattr(transfer, "write_capture", write_and_unplug)
        with pytest.raises(DataError, match="No such file"):
            import_dataset("npz", source, out)
        assert (out / "E1/a/L1.h5").is_file()
        monkeypatch.undo()
        (tmp_path / "unplugged").rename(source)
        import_dataset("npz", source, out)
        assert len(load(out)) == 6


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown format 'sigmd'. Did you mean 'sigmf'"):
        import_dataset("sigmd", tmp_path, tmp_path / "out")


def test_two_hdf5_files_with_the_same_capture_are_refused(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["data"], file["label"] = np.ones((4, 16)), np.array([[1, 1, 2, 2]])
    options = ImportOptions(pattern="{device}.h5")
    with pytest.raises(DataError, match=r"b\.h5: a second file with E1/D01/L1"):
        import_dataset("hdf5", tmp_path, tmp_path / "out", options)
    assert not (tmp_path / "out").exists()
