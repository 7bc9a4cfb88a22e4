"""Datasets: the same bytes whatever happens on the way, and clear errors when it cannot be made."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import pisa_capc
from pisa_capc.cli import app
from pisa_capc.cli import simulate as _registers_the_command  # noqa: F401
from pisa_capc.core import engines
from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError, PisaError
from pisa_capc.data.geometry import square
from pisa_capc.data.store.native import CaptureSpec, Dataset, fingerprint, write_dataset
from pisa_capc.signal.simulation import generate as module
from pisa_capc.signal.simulation.generate import generate


def app_commands(name: str) -> Any:
    return typer.main.get_command(app).commands[name]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole Wi-Fi layout with eight frames a capture, made in this process."""
    folder = tmp_path_factory.mktemp("sets") / "wifi"
    generate("wifi", folder, scale=0.001, workers=1)
    return folder


@pytest.fixture
def one_device(tmp_path: Path) -> Path:
    own = tmp_path / "one.yaml"
    own.write_text("devices: 1\nabsent: []\n")
    return own


def test_two_workers_write_the_bytes_of_one(small: Path, tmp_path: Path) -> None:
    generate("wifi", tmp_path / "two", scale=0.001, workers=2)
    assert contents(tmp_path / "two") == contents(small)


def test_a_run_that_was_cut_off_is_finished_with_the_same_bytes(small: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small, tmp_path / "resumed"))
    lost = ["E1/D01/L1.h5", "E2/D07/M.h5", "E3/D05/L2.h5"]
    for name in lost:
        (folder / name).unlink()
    (folder / "E2/D07/.M.h5.999999999.tmp").write_bytes(b"half a capture of a killed process")
    summary = generate("wifi", folder, scale=0.001, workers=1)
    assert summary.captures_written == len(lost)
    assert contents(folder) == contents(small)
    assert generate("wifi", folder, scale=0.001).captures_written == 0


def test_another_seed_gives_other_samples_and_is_refused_in_the_same_folder(
    small: Path, one_device: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="already holds another dataset"):
        generate("wifi", small, seed=1, scale=0.001)
    first, second = (
        pisa_capc.simulate("lora", tmp_path / str(seed), seed=seed, scale=0.001, workers=1, scene=one_device)
        for seed in (1, 2)
    )
    assert not np.allclose(first.iq, second.iq)


def test_the_dataset_opens_with_labels_rates_and_cfo(small: Path) -> None:
    frames = pisa_capc.load(small)
    assert frames.iq.shape == (119 * 8, 4, 320)
    assert frames.devices == tuple(f"D{i:02d}" for i in range(1, 11))
    assert frames.environments == ("E1", "E2", "E3")
    assert frames.captures == ("L1", "L2", "L3", "M")
    assert (frames.sample_rate_hz, frames.carrier_hz) == (20e6, 5.825e9)
    assert frames.cfo_hz is not None
    assert frames.cfo_hz.shape == (952, 4)
    assert 1e3 < np.abs(frames.cfo_hz).max() < 100e3


def test_recorded_cfo_takes_the_place_of_synthesised(small: Path, tmp_path: Path) -> None:
    source = pisa_capc.load(small)
    made = pisa_capc.simulate("wifi", tmp_path / "traced", seed=5, scale=0.001, workers=1, cfo_from=small)
    assert source.cfo_hz is not None
    assert made.cfo_hz is not None
    np.testing.assert_array_equal(made.cfo_hz, source.cfo_hz)
    assert Dataset.read(tmp_path / "traced").provenance["cfo_from"] == fingerprint(small)


def test_too_short_cfo_traces_are_refused_before_anything_is_written(small: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="E1/D01/L1 holds 8 frames; 51 are needed"):
        generate("wifi", tmp_path / "out", scale=0.1, cfo_from=small)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="not a dataset"):
        generate("wifi", tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, "scale: expected a number above 0"),
        ({"scale": 1.5}, "up to 1, found 1.5"),
        ({"engine": "dask"}, "unknown engine 'dask'"),
        ({"workers": 0}, "workers: expected at least 1, found 0"),
    ],
)
def test_bad_options_are_named_and_leave_nothing_behind(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generate("wifi", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_an_option_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'scal'\. Did you mean 'scale'"):
        pisa_capc.simulate("wifi", tmp_path / "out", scal=0.1)  # type: ignore[call-arg]
    assert not (tmp_path / "out").exists()


def test_the_command_has_the_options_of_the_function() -> None:
    named = {"engine": "run-on"}  # --engine is what computes a model
    parameters = [name for name in signature(generate).parameters if name != "show_progress"]
    theirs = {f"--{named.get(name, name.replace('_', '-'))}" for name in parameters}
    shown = {option for command in app_commands("simulate").params for option in command.opts}
    assert theirs - {"--name"} <= shown
    assert signature(pisa_capc.simulate).parameters == signature(generate).parameters


def test_ray_without_the_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pisa-capc\[ray\]'"):
        generate("wifi", tmp_path / "out", engine="ray")
    assert not (tmp_path / "out").exists()


def _die() -> None:
    os._exit(1)


def test_a_killed_worker_is_a_clear_error() -> None:
    with pytest.raises(PisaError, match=r"a worker process ended before .* `if __name__ == '__main__':`"):
        list(engines.run_jobs(_die, [(), ()], workers=2))


def test_traces_without_cfo_are_refused(tmp_path: Path, one_device: Path) -> None:
    frames = np.ones((8, 4, 320), dtype=np.complex64)
    spec = CaptureSpec("E1", "D01", "L1", 8)
    write_dataset(tmp_path / "bare", Dataset(square(), 20e6, 5.825e9, 320, (spec,)), [(spec, frames, None)])
    with pytest.raises(DataError, match="holds no cfo_hz"):
        generate("wifi", tmp_path / "out", scene=one_device, cfo_from=tmp_path / "bare")


def test_a_disk_that_is_too_small_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    with pytest.raises(DataError, match=r"needs 783\.6 MB, 1\.0 MB are free"):
        generate("wifi", tmp_path / "out")


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Files may not grow beyond 100 kB, as on a disk that fills while a capture is written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, previous)


@pytest.mark.usefixtures("full_disk")
def test_a_disk_that_fills_is_a_clear_error_and_leaves_no_part_of_a_capture(tmp_path: Path, one_device: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be written \(File too large\)"):
        generate("wifi", tmp_path / "out", scale=0.1, workers=1, scene=one_device)
    assert not [p for p in (tmp_path / "out").rglob("*") if p.suffix in (".h5", ".tmp")]


def test_ctrl_c_leaves_only_whole_captures(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "pisa_capc", "simulate", "wifi", "--out", str(folder), "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 30
    while len(list(folder.rglob("*.h5"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) == 130
    written = [p for p in folder.rglob("*") if p.is_file() and p.name != "dataset.json"]
    assert 2 <= len(written) < 119
    assert all(p.suffix == ".h5" for p in written)
    sizes = {p.stem: p.stat().st_size for p in written}
    assert set(sizes) <= {"L1", "L2", "L3", "M"}
    assert all(size > 5e6 for size in sizes.values())


def test_command_prints_a_summary_as_json_and_as_a_table(tmp_path: Path, one_device: Path) -> None:
    options = ["--scale", "0.01", "--workers", "1", "--scene", str(one_device)]
    result = CliRunner().invoke(app, ["simulate", "lora", "--out", str(tmp_path / "lora"), *options, "--json"])
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert (summary["captures"], summary["frames"], summary["samples"]) == (12, 3 * (3 * 8 + 10), 320)
    assert summary["bytes_written"] > summary["frames"] * 4 * 320 * 8
    again = CliRunner().invoke(app, ["simulate", "lora", "--out", str(tmp_path / "lora"), *options])
    assert again.exit_code == 0
    assert "already complete" in again.stdout


@pytest.mark.slow
def test_ray_writes_the_same_bytes(tmp_path: Path, one_device: Path) -> None:
    pytest.importorskip("ray")
    generate("wifi", tmp_path / "local", scale=0.001, workers=1, scene=one_device)
    generate("wifi", tmp_path / "ray", scale=0.001, workers=2, engine="ray", scene=one_device)
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


@pytest.mark.slow
def test_a_worker_stays_under_500_mb_with_full_length_lora(tmp_path: Path, one_device: Path) -> None:
    code = (
        "from pathlib import Path; from pisa_capc.signal.simulation.generate import generate;"
        f"generate('lora', {str(tmp_path / 'lora')!r}, samples=8192, scale=0.25, workers=1, scene={str(one_device)!r});"
        # Not ru_maxrss: a process inherits that of the one that started it.
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    peak_kb = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert peak_kb < 500_000
