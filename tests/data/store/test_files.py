"""Files that are whole or not there, whoever else writes; and advice that works."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pisa_capc import load
from pisa_capc.core.errors import DataError
from pisa_capc.data.store import CaptureSpec, Dataset, files
from pisa_capc.data.store.files import STALE_S, atomic, refuse_existing, remove_stale, write_text_atomic, writer_mark
from pisa_capc.evidence.benchmark.records import read_records
from pisa_capc.signal.formats.transfer import export_dataset
from pisa_capc.signal.simulation import generate as simulation
from pisa_capc.signal.simulation.generate import generate
from tests.datasets import write_random


class TestOnlyPlainFilesAreReplaced:
    @pytest.mark.parametrize("kind", ["fifo", "link to a device", "folder"])
    def test_whatever_is_said(self, kind: str, tmp_path: Path) -> None:
        path = tmp_path / "out"
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to("/dev/null")
        before = path.lstat().st_ino
        for write in (lambda: refuse_existing(path, force=True), lambda: write_text_atomic(path, "new")):
            with pytest.raises(DataError, match="only plain files are replaced"):
                write()
        assert path.lstat().st_ino == before
        assert [p.name for p in tmp_path.iterdir()] == ["out"]

    def test_a_file_is_with_force(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        path.touch()
        refuse_existing(path, force=True)
        with pytest.raises(DataError, match="exists already; give another name or --force"):
            refuse_existing(path, force=False)


class TestTemporaryNames:
    def names(self, path: Path) -> list[str]:
        with atomic(path) as first, atomic(path) as second:
            first.touch()
            second.touch()
            return [first.name, second.name]

    def test_are_of_one_writer_alone(self, tmp_path: Path) -> None:
        assert len(set(self.names(tmp_path / "x"))) == 2

    def test_fit_where_the_name_itself_fits(self, tmp_path: Path) -> None:
        write_text_atomic(tmp_path / ("ü" * 125 + ".json"), "whole")
        assert [p.read_text() for p in tmp_path.iterdir()] == ["whole"]

    def test_of_dead_writers_are_removed_and_of_others_only_when_they_are_old(self, tmp_path: Path) -> None:
        done = subprocess.Popen([sys.executable, "-c", ""])
        done.wait()
        here = writer_mark().split("-")[0]
        dead = [tmp_path / name for name in (f".a.{done.pid}.tmp", f".a.{here}-{done.pid}-0011.tmp")]
        kept = [
            tmp_path / name
            for name in (
                f".a.{writer_mark()}.tmp",
                f".b.{os.getpid()}.tmp",
                f".a.00000000-{done.pid}-0011.tmp",
                ".x.tmp",
            )
        ]
        old = tmp_path / f".b.00000000-{done.pid}-0011.tmp"
        for path in (*dead, *kept, old):
            path.touch()
        os.utime(old, (0, time.time() - STALE_S - 1))
        remove_stale(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted(kept)

    @pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
    def test_of_writers_that_ended_and_that_nobody_has_waited_for_are_removed(self, tmp_path: Path) -> None:
        ended = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
        assert ended.stdout is not None
        ended.stdout.read()  # until it has closed it
        stat = Path(f"/proc/{ended.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        left = tmp_path / f".a.{writer_mark().split('-')[0]}-{ended.pid}-0011.tmp"
        for tidy in (lambda: remove_stale(tmp_path), lambda: write_text_atomic(tmp_path / "a", "of the next writer")):
            left.touch()
            tidy()
            assert not left.exists()
        ended.wait()

    def test_of_containers_with_the_same_process_number_differ(self, monkeypatch: pytest.MonkeyPatch) -> None:
        marks = set()
        for name in ("one", "two"):
            monkeypatch.setattr(files.socket, "gethostname", lambda name=name: name)
            files._here.cache_clear()
            marks.add(writer_mark().split("-")[0])
        files._here.cache_clear()
        assert len(marks) == 2


class TestAdvice:
    def test_a_name_too_long_for_a_file_is_refused_before_anything_is_written(self) -> None:
        with pytest.raises(DataError, match=r"device ü+…: 260 bytes long; expected at most 240.*Shorten it"):
            CaptureSpec("E1", "ü" * 130, "L1", 3)

    def test_a_set_that_does_not_fit_leaves_room_for_a_smaller_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "new" / "set"

        def full(*_: object) -> None:
            raise DataError("the set needs more. Choose a smaller --scale.")

        with monkeypatch.context() as patch:
            patch.setattr(simulation, "check_space", full)
            with pytest.raises(DataError, match="smaller --scale"):
                generate("wifi", out)
        assert not out.exists()
        simulation.check_space(out, 1, "the set", "--scale")  # of the folder in which it will be

    def test_an_export_that_failed_can_be_run_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        frames, out = load(write_random(tmp_path / "set")), tmp_path / "out"
        written = []

        def full(path: Path, arrays: object) -> None:
            written.append(path)
            path.touch()
            if len(written) == 3:
                raise OSError(errno.ENOSPC, "No space left on device")

        for there in (False, True):
            if there:
                out.mkdir()
            written.clear()
            with monkeypatch.context() as patch:
                patch.setattr("pisa_capc.signal.formats.mat._write_v5", full)
                with pytest.raises(DataError, match=r"No space left on device\). Free space and run again\.$"):
                    export_dataset("mat", frames, out)
            assert out.exists() == there
        export_dataset("mat", frames, out)
        assert len(list(out.rglob("*.mat"))) == 8

    @pytest.mark.parametrize("format", ["mat", "sigmf", "npz"])
    def test_an_export_for_which_there_is_no_room_says_so(self, format: str, tmp_path: Path) -> None:
        frames, limits = load(write_random(tmp_path / "set")), resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            with pytest.raises(DataError, match=r"cannot be written \(File too large\)\. Free space and run again\.$"):
                export_dataset(format, frames, tmp_path / "out")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert not (tmp_path / "out").exists()

    def test_an_export_into_a_folder_of_something_else_leaves_it_alone(self, tmp_path: Path) -> None:
        frames = load(write_random(tmp_path / "set"))
        with pytest.raises(DataError, match="is not an empty folder"):
            export_dataset("mat", frames, tmp_path / "set")
        assert not Dataset.read(tmp_path / "set").missing(tmp_path / "set")

    def test_nobody_is_told_to_remove_what_may_not_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_random(tmp_path / "set")
        (tmp_path / "record.json").touch()

        def refuse(*_: object, **__: object) -> str:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(Path, "read_text", refuse)
        for read in (lambda: load(folder), lambda: read_records(tmp_path)):
            with pytest.raises(DataError, match=r"cannot be read \(Permission denied\). It may be good") as caught:
                read()
            assert "again" not in str(caught.value)
            assert "Remove" not in str(caught.value)
