"""The same jobs on a Ray cluster, one node of which is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from pisa_capc.benchmark.records import read_records
from pisa_capc.benchmark.run import Options, Summary, run_protocol
from tests.benchmark.tools import QUICK, quick
from tests.problems import write_small


@pytest.mark.slow
def test_a_lost_node_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    data = write_small(tmp_path / "data")
    protocol = quick(tmp_path, changes={**QUICK, "seeds": [1, 2, 3, 4]})
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{root / 'src'}:{root}")  # of the workers
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
