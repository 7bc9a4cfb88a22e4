"""The native store: whole captures or none, and errors that name file and field."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from pisa_capc import load
from pisa_capc.core.errors import DataError
from pisa_capc.data.store import CaptureSpec, Dataset, write_dataset
from pisa_capc.data.store.native import fingerprint, write_capture
from pisa_capc.data.store.seal import sealed
from tests.datasets import random_capture, random_dataset, write_random


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_random(tmp_path / "set")


def leftovers(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.name.endswith(".tmp")]


def test_what_was_written_is_read(folder: Path) -> None:
    frames = load(folder)
    for spec in Dataset.read(folder).captures:
        part = frames.where(environment=[spec.environment], capture=[spec.capture])
        part = part.select(part.device == frames.devices.index(spec.device))
        iq, cfo_hz = random_capture(spec)
        np.testing.assert_array_equal(part.iq, iq)
        np.testing.assert_array_equal(part.cfo_hz, cfo_hz)
        np.testing.assert_array_equal(part.frame, np.arange(spec.frames))


def test_any_selection_reads_the_rows_it_names(folder: Path) -> None:
    frames = load(folder)
    whole = frames.iq
    rng = np.random.default_rng(0)
    for rows in (rng.permutation(len(frames)), rng.integers(0, len(frames), 9), np.arange(3, 40), [5], []):
        index = np.asarray(rows, dtype=np.int64)
        np.testing.assert_array_equal(frames.select(index).iq, whole[index])
        np.testing.assert_array_equal(frames.select(index).segment(5).iq, whole[index, :, :5])


def test_a_file_repacked_into_chunks_still_reads(folder: Path) -> None:
    frames = load(folder)
    before = frames.iq
    path = folder / "E1/D01/L1.h5"
    with h5py.File(path, "r+") as file:
        values = file["iq"][:]
        del file["iq"]
        file.create_dataset("iq", data=values, chunks=True, compression="gzip")
    np.testing.assert_array_equal(frames.iq, before)
    np.testing.assert_array_equal(frames.select([4, 0, 2]).iq, before[[4, 0, 2]])


def test_opening_reads_no_samples(folder: Path) -> None:
    for path in folder.rglob("*.h5"):
        path.write_bytes(b"")
    assert len(load(folder)) == 48


class TestResume:
    def test_a_second_run_writes_what_is_missing_and_leaves_the_rest(self, folder: Path) -> None:
        kept, lost = folder / "E1/D01/L1.h5", folder / "E2/D02/M.h5"
        before, stamp = lost.read_bytes(), kept.stat().st_mtime_ns
        lost.unlink()
        write_random(folder)
        assert lost.read_bytes() == before
        assert kept.stat().st_mtime_ns == stamp

    def test_ctrl_c_leaves_whole_captures_only(self, tmp_path: Path) -> None:
        dataset = random_dataset()

        def interrupted():  # type: ignore[no-untyped-def]
            for i, spec in enumerate(dataset.captures):
                if i == 3:
                    raise KeyboardInterrupt
                yield spec, *random_capture(spec)

        with pytest.raises(KeyboardInterrupt):
            write_dataset(tmp_path / "set", dataset, interrupted())
        assert len(dataset.missing(tmp_path / "set")) == len(dataset.captures) - 3
        assert not leftovers(tmp_path)
        with pytest.raises(DataError, match=r"5 of 8 captures are missing, first E1/D02/M.h5.*writes what is missing"):
            load(tmp_path / "set")

    def test_what_a_killed_writer_left_is_removed_and_a_living_ones_is_not(self, folder: Path) -> None:
        done = subprocess.Popen([sys.executable, "-c", ""])
        done.wait()
        dead, living = (folder / "E1/D01" / f".L9.h5.{pid}.tmp" for pid in (done.pid, os.getpid()))
        dead.touch()
        living.touch()
        write_random(folder)
        assert not dead.exists()
        assert living.exists()

    def test_another_dataset_is_not_overwritten(self, folder: Path) -> None:
        with pytest.raises(DataError, match=r"already holds another dataset \(test, 8 captures, 48 frames\)"):
            write_random(folder, frames=7)

    def test_a_folder_of_something_else_is_not_touched(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(DataError, match="exists and is not a dataset"):
            write_random(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


class TestFullDisk:
    def test_an_error_while_writing_leaves_nothing_half_written(self, tmp_path: Path, monkeypatch) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(h5py.Group, "create_dataset", full)
        with pytest.raises(
            DataError, match=r"E1/D01/L1.h5: cannot be written .*No space left.*Free space and run again"
        ):
            write_random(tmp_path / "set")
        assert sorted(p.name for p in (tmp_path / "set").rglob("*") if p.is_file()) == ["dataset.json"]

    def test_the_operating_system_refusing_more_bytes_is_a_clear_error(self, tmp_path: Path) -> None:
        program = f"""
import resource
from dataclasses import replace
from pathlib import Path
from pisa_capc.core.errors import DataError
from tests.datasets import write_random
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    write_random(Path({str(tmp_path / "set")!r}), frames=100)
except DataError as error:
    print("refused:", error)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
        assert "refused:" in done.stdout
        assert "E1/D01/L1.h5: cannot be written" in done.stdout, done.stderr
        assert sorted(p.name for p in (tmp_path / "set").rglob("*") if p.is_file()) == ["dataset.json"]


class TestBadSamples:
    SPEC = CaptureSpec("E1", "D01", "L1", 3)

    @pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (lambda iq, cfo: iq.__setitem__((1, 0, 2), np.nan), "E1/D01/L1.h5: frame 1 holds NaN or infinite samples"),
            (lambda iq, cfo: iq.__setitem__((2, 0, 0), np.inf), "frame 2 holds NaN or infinite samples"),
            (lambda iq, cfo: iq.__setitem__(0, 0), "frame 0 has zero power"),
            (lambda iq, cfo: cfo.__setitem__((1, 1), np.nan), "the CFO of frame 1 is NaN or infinite"),
        ],
    )
    def test_are_refused_before_anything_is_written(self, spoil, message: str, tmp_path: Path) -> None:
        iq, cfo_hz = random_capture(self.SPEC)
        spoil(iq, cfo_hz)
        with pytest.raises(DataError, match=message):
            write_capture(tmp_path, self.SPEC, iq, cfo_hz)
        assert not list(tmp_path.iterdir())

    def test_shapes_must_be_those_announced(self, tmp_path: Path) -> None:
        iq, cfo_hz = random_capture(self.SPEC)
        with pytest.raises(DataError, match="3 frames were announced, 2 given"):
            write_capture(tmp_path, self.SPEC, iq[:2], cfo_hz[:2])
        with pytest.raises(DataError, match=r"the CFO has shape \(2, 4\); expected \(3, 4\)"):
            write_capture(tmp_path, self.SPEC, iq, cfo_hz[:2])
        dataset = Dataset(random_dataset().geometry, 1.0, 1.0, 16, (self.SPEC,))
        with pytest.raises(DataError, match=r"frames of shape \(3, 16\); expected \(4, 16\) \(antennas, samples\)"):
            write_dataset(tmp_path / "set", dataset, [(self.SPEC, iq[:, :3], None)])


class TestBadFiles:
    def test_a_truncated_capture_is_named(self, folder: Path) -> None:
        path = folder / "E2/D01/M.h5"
        path.write_bytes(path.read_bytes()[:-2000])
        with pytest.raises(DataError, match=r"E2/D01/M.h5: cannot be read .*make or import it again"):
            _ = load(folder).iq

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            (
                "iq",
                np.zeros((6, 2, 16), np.complex64),
                r"/iq is complex64 \(6, 2, 16\).*complex64 \(6, 4, 16\)",
            ),
            ("iq", np.zeros((6, 4, 16), np.float32), "/iq is float32"),
            ("cfo_hz", np.zeros((5, 4)), r"/cfo_hz is float64 \(5, 4\); expected float64 \(6, 4\)"),
        ],
    )
    def test_arrays_of_another_shape_are_named(self, name: str, value, message: str, folder: Path) -> None:
        with h5py.File(folder / "E1/D01/L1.h5", "r+") as file:
            del file[name]
            file[name] = value
        with pytest.raises(DataError, match=message):
            _ = load(folder).iq

    def test_a_capture_without_iq_is_named(self, folder: Path) -> None:
        with h5py.File(folder / "E1/D01/L1.h5", "r+") as file:
            del file["iq"]
        with pytest.raises(DataError, match=r"E1/D01/L1.h5: cannot be read"):
            _ = load(folder).iq

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "cannot be read"),
            ("[]", "not a pisa dataset description"),
            (json.dumps(sealed({"schema": 99})), "written with schema 99; this version reads 1"),
            (json.dumps(sealed({"schema": 1})), "not a pisa dataset description"),
        ],
    )
    def test_a_damaged_description_is_named(self, text: str, message: str, folder: Path) -> None:
        (folder / "dataset.json").write_text(text)
        with pytest.raises(DataError, match=rf"dataset.json: {message}"):
            load(folder)

    def test_a_description_cannot_lead_out_of_its_folder(self, folder: Path) -> None:
        described = json.loads((folder / "dataset.json").read_text())
        described["captures"][0]["environment"] = "../.."
        (folder / "dataset.json").write_text(json.dumps(sealed(described)))
        with pytest.raises(DataError, match="expected a name that can be a file name"):
            load(folder)

    def test_no_folder_and_no_dataset_are_told_apart(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no such folder"):
            load(tmp_path / "nothing")
        with pytest.raises(DataError, match=r"holds no dataset.json"):
            load(tmp_path)

    def test_a_capture_listed_twice_is_refused(self) -> None:
        spec = CaptureSpec("E1", "D01", "L1", 3)
        with pytest.raises(DataError, match=r"E1/D01/L1: two captures of this name"):
            Dataset(random_dataset().geometry, 1.0, 1.0, 16, (spec, spec))


def test_the_fingerprint_follows_samples_and_not_origin(tmp_path: Path) -> None:
    first, same, other = (write_random(tmp_path / name) for name in "abc")
    described = json.loads((same / "dataset.json").read_text())
    described["provenance"] = {"command": "elsewhere"}
    (same / "dataset.json").write_text(json.dumps(sealed(described)))
    spec = CaptureSpec("E1", "D01", "L1", 6)
    iq, cfo_hz = random_capture(spec)
    iq[0, 0, 0] += 1e-3
    write_capture(other, spec, iq, cfo_hz)
    assert fingerprint(first) == fingerprint(same)
    assert fingerprint(first) != fingerprint(other)


@pytest.mark.parametrize("samples", [17, 2**40, 2**62])
def test_a_description_of_longer_frames_than_the_files_hold_is_refused_before_room_is_made(
    samples: int, tmp_path: Path
) -> None:
    folder = write_random(tmp_path / "set")
    replace(Dataset.read(folder), samples=samples).write(folder)
    with pytest.raises(DataError, match=r"E1/D01/L1\.h5: "):
        load(folder).iq  # noqa: B018
