"""One runner at a time in a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.lock import only_runner
from pisa_capc.model.training import fit
from tests.model.training.tools import FAST
from tests.problems import runs, small_frames

HOLD = """
import sys
from pathlib import Path
from pisa_capc.data.store.lock import only_runner
with only_runner(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path):
    """Another process that holds the folder until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_folder_that_another_process_holds_is_refused_and_free_afterwards(other, tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=rf"another runner is at work here \(process {other.pid} on "),
        only_runner(tmp_path),
    ):
        pass
    other.communicate()
    with only_runner(tmp_path), only_runner(tmp_path):  # a process may hold it twice
        assert (tmp_path / ".lock").is_file()
    assert not list(tmp_path.iterdir())


def test_a_killed_holder_leaves_no_lock(other, tmp_path: Path) -> None:
    other.kill()
    other.wait()
    with only_runner(tmp_path):
        pass


def test_a_training_does_not_begin_where_another_is_at_work(other, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="another runner is at work"):
        fit(runs(small_frames()), **FAST, out=tmp_path)
    assert not (tmp_path / "model.json").exists()
    other.communicate()
    fit(runs(small_frames()), **FAST, out=tmp_path)
    assert not (tmp_path / ".lock").exists()
