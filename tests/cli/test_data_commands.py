"""inspect, import, export and split, run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from scipy.io import savemat

from pisa_capc import load
from pisa_capc.cli import main
from pisa_capc.data.store import Dataset
from pisa_capc.data.store.native import summarise
from pisa_capc.evidence.figures.dataset import dataset_picture, delay_profiles
from tests.datasets import write_random
from tests.signal.formats.csi_files import intel_record


def pisa(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in this process, on a terminal of 100 columns."""
    line, out, err = ["pisa", *map(str, arguments)], StringIO(), StringIO()
    with (
        mock.patch.object(sys, "argv", line),
        mock.patch.dict(os.environ, COLUMNS="100"),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    return subprocess.CompletedProcess(line, int(stop.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("data") / "set", devices=3, captures=["L1", "L2", "M"], frames=10)


class TestInspect:
    def test_the_table_names_what_is_there(self, folder: Path) -> None:
        done = pisa("inspect", folder)
        assert done.returncode == 0, done.stderr
        assert "180 frames of 4 × 16 samples, 20 MS/s at 5.825 GHz, square array, 3 devices" in done.stdout
        assert all(name in done.stdout for name in ("E1", "E2", "L1", "L2", "M", "D01", "D02", "D03", "CFO"))

    def test_many_devices_are_a_line(self, tmp_path: Path) -> None:
        write_random(tmp_path / "set", devices=41, captures=["L1"], frames=2)
        (tmp_path / "set/E1/D01/L1.h5").unlink()
        said = pisa("inspect", tmp_path / "set").stdout
        assert "41 devices with 2 to 4 frames each, mean CFO from" in said
        assert "D02" not in said

    def test_json_is_the_summary(self, folder: Path) -> None:
        done = pisa("inspect", folder, "--json")
        assert json.loads(done.stdout) == summarise(folder)

    def test_the_summary_counts_frames_and_measures_cfo(self, folder: Path) -> None:
        found = summarise(folder)
        assert found["total_frames"] == 180
        assert found["frames"]["E2"]["M"] == {"D01": 10, "D02": 10, "D03": 10}
        frames = load(folder)
        mine = frames.select(frames.device == 1).cfo_hz
        assert mine is not None
        assert found["cfo_hz"]["per_device"]["D02"]["mean"] == pytest.approx(mine.mean())

    def test_a_set_without_cfo_says_so(self, tmp_path: Path) -> None:
        write_random(tmp_path / "set", cfo=False)
        assert summarise(tmp_path / "set")["cfo_hz"] is None
        assert pisa("inspect", tmp_path / "set").returncode == 0
        dataset_picture(tmp_path / "set", tmp_path / "a.png")

    def test_missing_captures_are_shown_and_not_counted(self, tmp_path: Path) -> None:
        write_random(tmp_path / "set")
        (tmp_path / "set/E1/D02/M.h5").unlink()
        done = pisa("inspect", tmp_path / "set")
        assert done.returncode == 2
        assert "1 captures are announced and not there, the first is E1/D02/M" in " ".join(done.stderr.split())
        assert summarise(tmp_path / "set")["total_frames"] == 42

    def test_verify_finds_a_capture_that_changed_since_it_was_written(self, tmp_path: Path) -> None:
        write_random(tmp_path / "set")
        assert pisa("inspect", tmp_path / "set", "--verify").returncode == 0
        path = tmp_path / "set/E2/D01/M.h5"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        done = pisa("inspect", tmp_path / "set", "--verify")
        assert done.returncode == 2
        assert "E2/D01/M.h5: its samples are not those that were written" in done.stderr

    @pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
    def test_the_picture_is_drawn_in_the_format_of_its_name(self, suffix: str, folder: Path, tmp_path: Path) -> None:
        dataset_picture(folder, tmp_path / f"a.{suffix}")
        start = (tmp_path / f"a.{suffix}").read_bytes()[:5]
        assert start in (b"\x89PNG\r", b"%PDF-", b"<?xml")

    def test_a_picture_that_cannot_be_written_is_an_error(self, folder: Path, tmp_path: Path) -> None:
        done = pisa("inspect", folder, "--plot", tmp_path / "a.nonsense")
        assert done.returncode == 2
        assert "unknown picture format 'nonsense'" in done.stderr
        assert not done.stdout  # it is said before the table is made

    def test_no_dataset_is_a_short_error(self, tmp_path: Path) -> None:
        done = pisa("inspect", tmp_path)
        assert done.returncode == 2
        assert "holds no dataset.json" in done.stderr
        assert "Traceback" not in done.stderr


def test_echoes_widen_the_power_delay_of_their_capture() -> None:
    from pisa_capc import Frames

    rng = np.random.default_rng(0)

    def noise(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    sent = noise(64)
    direct = noise(200, 2, 1) * sent
    echoed = direct + noise(200, 2, 1) * np.roll(sent, 6)
    frames = Frames.from_arrays(
        np.concatenate([direct, echoed]), device="a", capture=["near"] * 200 + ["far"] * 200, sample_rate_hz=1e6
    )
    delay_s, profiles = delay_profiles(frames)
    at_echo = int(np.argmin(np.abs(delay_s - 6e-6)))
    assert profiles["far"][at_echo] > profiles["near"][at_echo] + 6
    assert profiles["far"][0] == profiles["near"][0] == 0


class TestImportAndExport:
    def test_mat_files_become_a_dataset_that_can_be_inspected(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        for name in ("E1/D01/L1", "E1/D02/L1", "E2/D01/L1"):
            path = tmp_path / "mat" / f"{name}.mat"
            path.parent.mkdir(parents=True, exist_ok=True)
            savemat(path, {"frames": rng.normal(size=(320, 2, 7)) * (1 + 1j), "cfo": rng.normal(size=(7, 2))})
        done = pisa("import", "mat", tmp_path / "mat", "--out", tmp_path / "set", "--antennas", 2, "--array", "linear")
        assert done.returncode == 0, done.stderr
        assert "import mat, 3 captures, 21 frames" in done.stdout
        assert "not recorded: E2/D02/L1" in done.stderr
        frames = load(tmp_path / "set")
        assert frames.iq.shape == (21, 2, 320)
        assert frames.geometry.kind == "linear"

    def test_channel_state_becomes_a_dataset_that_can_be_inspected(self, tmp_path: Path) -> None:
        log = tmp_path / "logs/E1/D01/L1.dat"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"".join(intel_record(h, (2, 0, 1)) for h in np.full((4, 30, 3, 2), 5 + 3j)) + b"cut")
        command = ("import", "csi", tmp_path / "logs", "--out", tmp_path / "set", "--stream", 1, "--phases", "raw")
        refused = pisa(*command)
        assert refused.returncode != 0
        assert "E1/D01/L1.dat, byte " in refused.stderr
        done = pisa(*command, "--skip-bad", "--carrier", 5.18e9)
        assert done.returncode == 0, done.stderr
        assert "Left out, because they cannot be used: 1 packets." in done.stderr
        assert "Phases as the card reports them" in done.stderr
        assert "note: --phases is deprecated and goes with the next version." in done.stderr
        said = pisa("inspect", tmp_path / "set").stdout
        assert "4 frames of 3 × 30 subcarriers, 20 MHz at 5.18 GHz" in said
        assert "Front end of its channel state: none." in said

    def test_own_coordinates_come_from_a_file(self, folder: Path, tmp_path: Path) -> None:
        pisa("export", "npz", folder, "--out", tmp_path / "a.npz")
        place = {"coordinates_wavelengths": [[0, 0], [1, 0], [0, 2], [3, 3]]}
        (tmp_path / "array.json").write_text(json.dumps(place))
        done = pisa(
            "import", "npz", tmp_path / "a.npz", "--out", tmp_path / "set", "--array", tmp_path / "array.json", "--json"
        )
        assert json.loads(done.stdout)["captures"] == 18, done.stderr
        assert load(tmp_path / "set").geometry.coordinates[3] == (3, 3, 0)

    def test_two_sample_rates_in_an_archive_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", iq=np.ones((2, 4, 32), np.complex64), device=["A", "B"], sample_rate_hz=[1.0, 2.0])
        done = pisa("import", "npz", tmp_path / "a.npz", "--out", tmp_path / "set")
        assert "sample_rate_hz is float64 (2,); expected one number" in done.stderr
        assert not (tmp_path / "set").exists()

    def test_what_an_archive_does_not_say_is_assumed_aloud(self, tmp_path: Path) -> None:
        iq = np.random.default_rng(0).normal(size=(6, 4, 32)).astype(np.complex64)
        np.savez(tmp_path / "a.npz", iq=iq, device=["A", "B"] * 3, carrier_hz=2.4e9)
        done = pisa("import", "npz", tmp_path / "a.npz", "--out", tmp_path / "set", "--capture", "now")
        assert (
            "so assumed: iq (6, 4, 32) as nAT (--axes), environment E1 (--environment), 20 MHz of sample rate "
            "(--sample-rate), antennas half a wavelength apart (--array)." in done.stderr.replace("\n", " ")
        )

    def test_an_output_that_exists_is_not_touched(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        for format in ("mat", "sigmf", "hdf5"):
            done = pisa("export", format, folder, "--out", tmp_path, "--antenna", 0)
            assert done.returncode == 2
            assert "exists and is not an empty folder" in " ".join(done.stderr.split())
        done = pisa("export", "npz", folder, "--out", tmp_path / "notes.txt")
        assert done.returncode == 2
        assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_one_bad_file_among_good_ones_stops_before_anything_is_written(self, folder: Path, tmp_path: Path) -> None:
        pisa("export", "mat", folder, "--out", tmp_path / "mat")
        bad = tmp_path / "mat/E2/D03/M.mat"
        bad.write_bytes(bad.read_bytes()[:-100])
        done = pisa("import", "mat", tmp_path / "mat", "--out", tmp_path / "set", "--samples", 16)
        assert done.returncode == 2
        assert "E2/D03/M.mat: damaged MAT file" in done.stderr
        assert not (tmp_path / "set").exists()

    def test_ctrl_c_keeps_whole_captures_and_a_second_run_finishes(self, folder: Path, tmp_path: Path) -> None:
        pisa("export", "mat", folder, "--out", tmp_path / "mat")
        arguments = ["import", "mat", str(tmp_path / "mat"), "--out", str(tmp_path / "set"), "--samples", "16"]
        program = f"""
import os, signal, sys
import h5py
from pisa_capc.cli import main
create, seen = h5py.Group.create_dataset, []
def interrupted(self, name, *rest, **options):
    seen.append(name)
    if len(seen) == 8:  # the second array of the fourth capture
        os.kill(os.getpid(), signal.SIGINT)
    return create(self, name, *rest, **options)
h5py.Group.create_dataset = interrupted
sys.argv = ["pisa", *{arguments!r}]
main()
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode not in (0, 1, 2), done.stderr
        assert "Traceback" not in done.stderr
        dataset = Dataset.read(tmp_path / "set")
        assert len(dataset.missing(tmp_path / "set")) == 15
        assert not [p for p in (tmp_path / "set").rglob("*") if p.name.endswith(".tmp")]
        assert pisa(*arguments).returncode == 0
        np.testing.assert_array_equal(load(tmp_path / "set").iq, load(folder).iq)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["import", "matt", "SRC"], "unknown format 'matt'. Did you mean 'mat'?"),
            (["import", "mat", "nowhere"], "nowhere: no such file or folder"),
            (["import", "mat", "SRC", "--array", "squar"], "unknown array 'squar'. Did you mean 'square'?"),
            (["import", "npz", "SRC/dataset.json"], "cannot be read"),
        ],
    )
    def test_errors_are_short_and_exit_with_two(self, arguments, message: str, folder: Path, tmp_path: Path) -> None:
        filled = [a.replace("SRC", str(folder)) for a in arguments]
        done = pisa(*filled, "--out", tmp_path / "out")
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())
        assert not (tmp_path / "out").exists()


class TestSplit:
    def test_counts_are_printed(self, folder: Path) -> None:
        done = pisa("split", folder, "--source", "E2", "--target", "E1")
        assert done.returncode == 0, done.stderr
        assert "E2 → E1, seed 2026" in done.stdout
        assert "of 9 recordings fewer, for they are short: 2 of 10." in " ".join(done.stderr.split())

    def test_json_has_totals_and_details(self, folder: Path) -> None:
        found = json.loads(pisa("split", folder, "--source", "E2", "--target", "E1", "--seed", 7, "--json").stdout)
        # Ten frames a capture: two for validation, and the target leaves out a quarter.
        assert (found["train"], found["validation"], found["target"]) == (72, 18, 72)
        assert found["per_device"]["D02"] == {"train": 24, "validation": 6, "target": 24}
        assert found["per_capture"]["E1/M"] == {"train": 0, "validation": 0, "target": 24}

    def test_a_target_that_is_a_source_is_refused(self, folder: Path) -> None:
        done = pisa("split", folder, "--source", "E1,E2", "--target", "E1")
        assert done.returncode == 2
        assert "'E1' is both source and target" in done.stderr
