"""`pisa check` and `pisa report DATASET`, as people use them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pisa_capc.cli import app
from pisa_capc.cli import check as _registers_check  # noqa: F401
from pisa_capc.cli import report as _registers_report  # noqa: F401
from pisa_capc.core.errors import ConfigError
from pisa_capc.data.frames import Frames
from pisa_capc.signal.waveforms import WAVEFORMS

STRANGE = "[red]D&amp2$x$"  # as strange as a file's name may be


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two sets of four devices in two places, channels new in every frame; in one of them an antenna is silent."""
    rng = np.random.default_rng(0)
    names = ["D1", STRANGE, "D3", "D4"]
    device, environment = np.repeat(names, 80), np.tile(np.repeat(["E1", "E2"], 40), 4)

    def noise(*shape: int) -> np.ndarray:
        return rng.normal(size=(*shape, 2)) @ [1, 1j]

    iq = noise(320, 2, 1) * WAVEFORMS["wifi"].preamble() + 0.05 * noise(320, 2, 320)
    folders = {name: tmp_path_factory.mktemp("sets") / name for name in ("sound", "faulty")}
    Frames.from_arrays(iq, device, environment).save(folders["sound"])
    iq[device == STRANGE, 1] *= 1e-4
    Frames.from_arrays(iq, device, environment).save(folders["faulty"])
    return folders


def test_the_exit_code_says_whether_a_set_is_fit(folders: dict[str, Path]) -> None:
    for name, code in {"sound": 0, "faulty": 1}.items():
        done = CliRunner().invoke(app, ["check", str(folders[name])])
        assert done.exit_code == code, done.output
    assert "Not fit to be trained on as it is. Faults: 1" in done.output
    assert STRANGE in done.output  # brackets in names are no markup
    assert "→ Look at cables" in done.output


def test_json_holds_every_finding_with_its_numbers(folders: dict[str, Path]) -> None:
    done = CliRunner().invoke(app, ["check", str(folders["faulty"]), "--json", "--frames", "20"])
    found = json.loads(done.stdout)
    assert not found["fit"]
    assert found["frames"] == 320
    assert found["frames_looked_at"] == 160
    assert found["findings"]["silent-antennas"]["verdict"] == "fault"
    assert found["findings"]["silent-antennas"]["numbers"]["silent"] == [
        f"E1/{STRANGE}/L1 antenna 1",
        f"E2/{STRANGE}/L1 antenna 1",
    ]
    places = found["findings"]["room"]["numbers"]["places"]
    assert [place["place"] for place in places] == ["E1/L1", "E2/L1"]
    assert places[0]["later"]["chance"] == 0.25


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_picture_is_drawn(suffix: str, folders: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / f"check.{suffix}"
    done = CliRunner().invoke(app, ["check", str(folders["faulty"]), "--plot", str(path)])
    assert done.exit_code == 1
    assert path.stat().st_size > 1000


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(tmp_path / "nothing"), "--plot", "a.nonsense"])
    assert isinstance(done.exception, ConfigError)
    assert "unknown picture format" in str(done.exception)


def test_the_report_of_a_dataset_has_the_findings_with_names_escaped(folders: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(folders["faulty"]), "--out", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert "Is it fit to be trained on?" in text
    assert "Antennas that hear nothing" in text
    assert "[red]D&amp;amp2$x$" in text
    assert "D&amp2" not in text
    assert text.count("<img") == 2
