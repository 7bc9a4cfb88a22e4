"""The recipes of docs/formats.md on files made in the layout of each set."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import savemat

import pisa_capc
from pisa_capc import load
from pisa_capc.core.errors import DataError
from pisa_capc.signal.formats import import_dataset
from pisa_capc.signal.phy.wifi import transmit

PAGE = (Path(__file__).parents[3] / "docs/formats.md").read_text(encoding="utf-8")


def recipe(title: str, language: str = "bash") -> str:
    part = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return str(re.findall(rf"```{language}\n(.*?)```", part, flags=re.S)[0])


def follow(title: str, folder: Path) -> None:
    """Run the commands of a recipe in a folder; `pisa` is that of these tests."""
    (folder / "bin").mkdir()
    (folder / "bin/pisa").write_text(f'#!/bin/sh\nexec {sys.executable} -m pisa_capc "$@"\n')
    (folder / "bin/pisa").chmod(0o755)
    source = str(Path(pisa_capc.__file__).parents[1])
    paths = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": source}
    command = ["bash", "-euc", recipe(title)]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def on_air(frames: int, seed: int) -> NDArray[np.complex128]:
    """802.11a frames with pauses, in noise."""
    rng = np.random.default_rng(seed)
    sent = [np.concatenate([np.zeros(700), transmit(rng.bytes(60), 12, 93), np.zeros(300)]) for _ in range(frames)]
    whole = np.concatenate(sent)
    return np.asarray(whole + rng.normal(size=(len(whole), 2)) @ [1, 1j] * 0.02)


def test_oracle(tmp_path: Path) -> None:
    recordings = [("3123D52", "8ft", "run1"), ("3123D65", "8ft", "run2"), ("3123D65", "14ft", "run1")]
    for i, (radio, distance, run) in enumerate(recordings):
        data = tmp_path / f"KRI-16Devices-RawData/{distance}/WiFi_air_X310_{radio}_{distance}_{run}.sigmf-data"
        data.parent.mkdir(parents=True, exist_ok=True)
        on_air(4, i).astype("<c16").tofile(data)
        data.with_suffix(".sigmf-meta").write_text('{"_metadata": {"global": {"core:datatype": "cf32"}}}')
    follow("ORACLE", tmp_path)
    frames = load(tmp_path / "oracle")
    assert frames.environments == ("14ft", "8ft")
    assert (frames.devices, frames.captures) == (("3123D52", "3123D65"), ("run1", "run2"))
    assert len(frames) == 12


def test_powder(tmp_path: Path) -> None:
    (tmp_path / "GlobecomPOWDER").mkdir()
    for i, (day, station) in enumerate([("Day_1", "bes"), ("Day_1", "meb"), ("Day_2", "meb")]):
        on_air(3, i).astype("<c8").tofile(tmp_path / f"GlobecomPOWDER/Wifi_{day}_{station}_s1.bin")
    on_air(3, 9).astype("<c8").tofile(tmp_path / "GlobecomPOWDER/4G_Day_1_bes_s1.bin")
    follow("POWDER", tmp_path)
    frames = load(tmp_path / "powder")
    assert (frames.environments, frames.devices, frames.captures) == (("Day_1", "Day_2"), ("bes", "meb"), ("s1",))
    assert len(frames) == 9


def test_lora_rffi(tmp_path: Path) -> None:
    folder = tmp_path / "Dataset/Test/channel_problem"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for place in ("A", "B_walk"):
        with h5py.File(folder / f"{place}.h5", "w") as file:
            file["data"], file["label"] = rng.normal(size=(6, 64)), np.repeat([[31, 32]], 3, axis=1)
    follow("LoRa_RFFI", tmp_path)
    frames = load(tmp_path / "lora")
    assert (frames.environments, frames.devices, len(frames)) == (("A", "B_walk"), ("D31", "D32"), 12)
    assert frames.sample_rate_hz == 1e6


def test_the_set_of_the_paper(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("E1/D1/L1", "E2/D2/M"):
        path = tmp_path / f"MEASURED/{name}.mat"
        path.parent.mkdir(parents=True)
        savemat(path, {"iq": rng.normal(size=(320, 4, 5, 2)) @ [1, 1j], "cfo": rng.normal(size=(5, 4))})
    follow("The measured set of the paper", tmp_path)
    frames = load(tmp_path / "measured")
    assert (frames.environments, frames.devices) == (("E1", "E2"), ("D1", "D2"))
    assert (frames.antennas, frames.samples) == (4, 320)


def test_wisig_is_never_opened_here_and_can_be_converted_elsewhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = [[[[rng.normal(size=(4, 256, 2))] for _ in range(2)] for _ in range(2)] for _ in range(3)]
    wisig = {"tx_list": ["1-1", "2-2", "3-3"], "rx_list": ["a", "b"], "capture_date_list": ["d1", "d2"], "data": data}
    (tmp_path / "ManySig.pkl").write_bytes(pickle.dumps(wisig))  # written, never read
    with pytest.raises(DataError, match=r"is a pickle.*never opened.*docs/formats.md#wisig"):
        import_dataset("npz", tmp_path / "ManySig.pkl", tmp_path / "out")
    code = recipe("WiSig", "python")
    assert "pickle" not in code
    with chdir(tmp_path):
        exec(code, {"wisig": wisig})
    follow("WiSig", tmp_path)
    frames = load(tmp_path / "wisig")
    assert (len(frames), frames.antennas, frames.samples) == (48, 1, 256)
    assert (frames.devices, frames.environments, frames.captures) == (("1-1", "2-2", "3-3"), ("a", "b"), ("d1", "d2"))
    np.testing.assert_allclose(frames.iq[0, 0], data[0][0][0][0][0] @ [1, 1j], rtol=1e-6)
