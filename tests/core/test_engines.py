"""Workers: they end with their parent, and one that is killed does not take the work of the others along."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pisa_capc.core.engines import LOST, run_jobs
from pisa_capc.core.errors import PisaError


def write_pid(folder: Path, number: int) -> int:
    (folder / f"{number}.pid").write_text(str(os.getpid()))
    time.sleep(60)
    return number


def die_once(folder: Path, number: int) -> int:
    mark = folder / f"{number}.died"
    if number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom pisa_capc.core.engines import run_jobs\n"
        "from tests.core.test_engines import write_pid\n"
        "if __name__ == '__main__':\n"
        "    list(run_jobs(write_pid, [(Path(sys.argv[1]), i) for i in range(2)], workers=2))\n"
    )
    root = Path(__file__).parents[2]
    here = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=here)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.1)
    workers = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, workers))


def test_one_killed_worker_does_not_end_the_others_work(tmp_path: Path) -> None:
    assert sorted(run_jobs(die_once, [(tmp_path, i) for i in range(5)], workers=2)) == [0, 1, 2, 3, 4]
    assert (tmp_path / "2.died").exists()


def test_work_that_kills_its_worker_every_time_is_given_up() -> None:
    with pytest.raises(PisaError, match=f"{LOST + 1} times in a row a worker process ended"):
        list(run_jobs(die, [(i,) for i in range(2)], workers=2))


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_that_nobody_answers_for_is_refused_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    with socket.socket() as free:  # bound, and not listened to
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", address.format(free.getsockname()[1]))
        with pytest.raises(PisaError, match=r"which RAY_ADDRESS names \(.*Connection refused\)\. Start Ray, or use"):
            list(run_jobs(pow, [(2, 3)], "ray", workers=1))


@pytest.mark.slow  # Ray takes seconds to begin and to end
def test_a_share_of_a_gpu_that_is_not_there_is_refused_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(PisaError, match=r"a job is to take 1000 and Ray finds \d+ on this machine\. Use --gpus"):
        list(run_jobs(die, [(1,)], "ray", workers=1, gpus=1000))
