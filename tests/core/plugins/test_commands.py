"""The example plugin, installed and as a file, through the command line as people call it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pisa_capc
from pisa_capc.core import plugins
from pisa_capc.core.registry import forget
from tests.cli.test_model_commands import Command, pisa, refused  # noqa: F401  (a fixture)
from tests.core.plugins.tools import EXAMPLE, write_encoder, write_scene
from tests.problems import write_small

FILE = EXAMPLE / "pisa_capc_example.py"
SOURCE = Path(pisa_capc.__file__).parents[1]
QUICK = ("--epochs", "1", "--batch", "16", "--device", "cpu")
Process = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("data") / "small", frames=20)


def command(folder: Path, *packages: Path) -> Process:
    """`pisa` in a process of its own, in `folder`, with these folders of installed packages."""
    environment = {k: v for k, v in os.environ.items() if k != plugins.VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, [SOURCE, *packages]))

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "pisa_capc", *map(str, arguments)]
        return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)

    return call


def train(data: Path, out: Path, *more: object) -> list[object]:
    return ["train", data, "--source", "E2,E3", "--target", "E1", "--out", out, *QUICK, *more]


@pytest.mark.slow
def test_the_example_is_installed_and_every_command_knows_its_parts(data: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(EXAMPLE, tmp_path / "example")  # building leaves files beside the source
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(copy)], check=True)
    run = command(tmp_path, site)
    trained = run(*train(data, Path("run"), "--encoder", "strided", "--method", "smoothed"))
    assert trained.returncode == 0, trained.stderr
    about = json.loads((tmp_path / "run" / "model.json").read_text(encoding="utf-8"))
    [plugin] = about["plugins"]  # of both parts
    assert (plugin["name"], plugin["version"]) == ("pisa-capc-example", "0.1.0")
    scored = run("evaluate", "run", data, "--target", "E1", "--json")
    assert 0 <= json.loads(scored.stdout)["runs"][0]["stages"]["direct"]["macro_f1"] <= 1, scored.stderr
    embedded = run("embed", "run", data, "--environment", "E1", "--out", "scores.npz")
    assert embedded.returncode == 0, embedded.stderr
    assert "warn" not in embedded.stderr
    without = command(tmp_path)("evaluate", "run", data, "--target", "E1")
    assert without.returncode == 2
    assert "its encoder 'strided' is not known here. It was trained with pisa-capc-example 0.1.0" in without.stderr


@pytest.mark.usefixtures("own_parts")
def test_every_later_command_on_a_run_takes_the_plugin(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    run = tmp_path / "run"
    assert pisa(*train(data, run, f"--plugin={FILE}", "--encoder", "strided", "--method", "smoothed")).code == 0
    about = json.loads((run / "model.json").read_text(encoding="utf-8"))
    assert [plugin["name"] for plugin in about["plugins"]] == ["pisa_capc_example"]
    lines = {
        "evaluate": ("evaluate", run, data, "--target", "E1", "--plot", tmp_path / "confusion.png"),
        "embed": ("embed", run, data, "--environment", "E1", "--out", tmp_path / "scores.npz"),
        "stream": ("calibrate", "stream", tmp_path / "scores.npz", "--run", run),
        "calibrate": (
            "calibrate",
            tmp_path / "scores.npz",
            "--out",
            tmp_path / "sharp.npz",
            "--calibration",
            "sharpened",
        ),
        "figures": ("figures", run, data, "--kind", "confusion,topology", "--out", tmp_path / "figures"),
        "report": ("report", run, "--data", data, "--kind", "confusion", "--out", tmp_path / "report.html"),
    }
    for name, line in lines.items():
        for path, origin in list(plugins._files.items()):  # as in a new process
            forget(origin)
            del plugins._files[path]
        if name == "calibrate":
            refused(pisa(*line), "unknown calibration 'sharpened'")
        elif name != "stream":  # whose model is looked at when there is a frame to decide
            refused(pisa(*line), "is not known here", "Give the plugin with --plugin FILE, or install it.")
        found = pisa(*line, "--plugin", FILE)
        assert found.code == 0, f"{name}: {found.err}"
        assert "plugin" not in found.err, found.err  # a toy model may well be at chance, which is said
    assert "Strided" in (tmp_path / "figures" / "captions.md").read_text(encoding="utf-8")
    assert "pisa_capc_example" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("own_parts")
def test_a_plugin_is_taken_in_any_place_of_the_line(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    path = write_encoder(tmp_path)
    for line in (("--plugin", path, "encoders", "--json"), ("encoders", "--json", f"--plugin={path}")):
        assert json.loads(pisa(*line).out)["mine"] > 0
    assert "--plugin" in pisa("--help").out
    refused(pisa("encoders", "--plugin"), "--plugin: expected a file")
    refused(pisa("encoders", "--plugin", tmp_path / "absent.py"), "cannot be read (No such file or directory)")
    (tmp_path / "broken.py").write_text("import torch\n1 / 0\n", encoding="utf-8")
    refused(pisa("methods", "--plugin", tmp_path / "broken.py"), "broken.py, line 2: ZeroDivisionError")


@pytest.mark.usefixtures("own_parts")
def test_another_version_of_a_plugin_is_a_note(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    path = write_encoder(tmp_path)
    given = ("--plugin", path, "--encoder", "mine", "--method", "single")
    assert pisa(*train(data, tmp_path / "run", *given)).code == 0
    write_encoder(tmp_path, "# changed")
    found = pisa("evaluate", tmp_path / "run", data, "--target", "E1", "--json", "--plugin", path)
    assert found.code == 0
    assert "note: " in found.err
    assert "its results may differ from those in training." in " ".join(found.err.split())
    refused(pisa(*train(data, tmp_path / "run", *given)), "already holds another model")


@pytest.mark.usefixtures("own_parts")
def test_the_format_of_the_example_writes_what_it_reads(pisa: Command, data: Path, tmp_path: Path) -> None:  # noqa: F811
    assert pisa("export", "text", data, "--out", tmp_path / "text", "--plugin", FILE).code == 0
    assert pisa("import", "text", tmp_path / "text", "--out", tmp_path / "back", "--plugin", FILE).code == 0
    a, b = (pisa_capc.load(folder) for folder in (data, tmp_path / "back"))
    assert a.devices == b.devices
    np.testing.assert_array_equal(a.iq, b.iq)
    made = json.loads((tmp_path / "back" / "dataset.json").read_text(encoding="utf-8"))["provenance"]
    assert [plugin["name"] for plugin in made["plugins"]] == ["pisa_capc_example"]


@pytest.mark.usefixtures("own_parts")
def test_the_waveform_of_the_example_is_simulated(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    scene = write_scene(tmp_path, "zadoff-chu", 5e6)
    line = ("simulate", "wifi", "--scene", scene, "--scale", "0.001", "--workers", 1, "--out", tmp_path / "set")
    refused(pisa(*line), "unknown waveform 'zadoff-chu'")
    assert pisa(*line, "--plugin", FILE).code == 0
    assert pisa_capc.load(tmp_path / "set").sample_rate_hz == 5e6
