"""The same jobs on a Ray cluster, of which a node, a raylet or a worker is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from pisa_capc.core.engines import run_jobs
from pisa_capc.evidence.benchmark.records import read_records
from pisa_capc.evidence.benchmark.run import Options, Summary, run_protocol
from tests.evidence.benchmark.tools import QUICK, quick
from tests.problems import write_small

ROOT = Path(__file__).parents[3]
WITH_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")


def begin(folder: Path, number: int) -> int:
    (folder / f"{number}.{os.getpid()}").touch()
    time.sleep(4)
    return number


def raylets() -> list[int]:
    """Those that this process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and b"raylet/raylet" in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found += [int(entry.name)] if parent == os.getpid() else []
    return found


def work(folder: Path, what: str) -> list[int]:
    """Three jobs on Ray, of which the first worker or the raylet is killed."""

    def lose() -> None:
        while not (begun := list(folder.iterdir())):
            time.sleep(0.05)
        for process in raylets() if what == "raylet" else [int(begun[0].suffix[1:])]:
            os.kill(process, signal.SIGKILL)

    watcher = threading.Thread(target=lose)
    watcher.start()
    found = list(run_jobs(begin, [(folder, i) for i in range(3)], "ray", workers=2))
    watcher.join()
    return sorted(found)


@pytest.mark.slow
@WITH_RAY
@pytest.mark.parametrize("what", ["worker", "raylet"])
def test_a_lost_worker_or_raylet_loses_no_job(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")  # of the workers
    if what == "raylet":
        with pytest.warns(UserWarning, match="Ray was lost and is restarted"):
            assert work(tmp_path, what) == [0, 1, 2]
    else:
        assert work(tmp_path, what) == [0, 1, 2]
        assert len(list(tmp_path.iterdir())) > 3  # the worker's job was begun twice
    assert capfd.readouterr().out == ""


@pytest.mark.slow
@WITH_RAY
def test_a_lost_raylet_does_not_end_a_command_whose_shell_is_gone(tmp_path: Path) -> None:
    done, jobs = tmp_path / "done", tmp_path / "jobs"
    jobs.mkdir()
    script = f"""
import os, pathlib
if os.fork():
    os._exit(0)
from tests.evidence.benchmark.test_ray import work
found = work(pathlib.Path({str(jobs)!r}), "raylet")
pathlib.Path({str(done)!r}).write_text(str(found))
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    nowhere = subprocess.DEVNULL
    subprocess.run([sys.executable, "-c", script], env=environment, stdout=nowhere, stderr=nowhere, check=True)
    until = time.monotonic() + 300
    while not (done.exists() and done.read_text(encoding="utf-8")) and time.monotonic() < until:
        time.sleep(0.2)
    assert done.read_text(encoding="utf-8") == "[0, 1, 2]"


@pytest.mark.slow
def test_a_lost_node_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    data = write_small(tmp_path / "data")
    protocol = quick(tmp_path, changes={**QUICK, "seeds": [1, 2, 3, 4]})
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")  # of the workers
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    lost = cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    folder = tmp_path / "ray" / "quick"

    def lose_a_node() -> None:
        while not list(folder.glob("*.json")):
            time.sleep(0.05)
        cluster.remove_node(lost, allow_graceful=False)

    watcher = threading.Thread(target=lose_a_node)
    watcher.start()
    try:
        options = Options(data=data, results=tmp_path / "ray", work=tmp_path / "work", engine="ray", device="cpu")
        assert run_protocol(protocol, options) == Summary(8, 0, 8)
        watcher.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    run_protocol(protocol, Options(data=data, results=tmp_path / "local", work=tmp_path / "alone", device="cpu"))
    on_ray, here = read_records(folder), read_records(tmp_path / "local" / "quick")
    assert [(r.name, r.validation_f1, r.stages) for r in on_ray] == [(r.name, r.validation_f1, r.stages) for r in here]
