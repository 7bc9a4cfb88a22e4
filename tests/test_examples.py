"""The examples in the documentation of the package run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from examples import demo

import pisa_capc
from pisa_capc.cli import main

ROOT = Path(__file__).parents[1]
START = (ROOT / "docs/start.md").read_text(encoding="utf-8")


def test_examples_run() -> None:
    found: list[str] = []
    attempted = 0
    for module in pkgutil.walk_packages(pisa_capc.__path__, "pisa_capc."):
        if module.name.endswith(("__main__", ".fused")) or ".kernels" in module.name:  # a program, and code for a GPU
            continue
        failed, tried = doctest.testmod(importlib.import_module(module.name))
        attempted += tried
        found += [module.name] * bool(failed)
    assert not found
    assert attempted > 40


SMALL = {"--scale 0.05": "--scale 0.02", "--epochs 1 --batch 32": "--epochs 2 --batch 8", "--points 300": "--points 50"}


def tour() -> list[str]:
    """The commands of the tour."""
    block = START.split("## A tour")[1].split("```")[1]
    return [line.split("#")[0].strip() for line in block.splitlines() if line.startswith("pisa ")]


def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has the examples in it, as the repository does."""
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)


def test_every_command_of_the_tour_runs_and_it_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_folder(tmp_path, monkeypatch)
    lines = "\n".join(tour())
    for whole, part in SMALL.items():
        assert whole in lines
        lines = lines.replace(whole, part)
    for line in lines.splitlines():
        command, _, file = line.partition(" > ")
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert not ended.value.code, (line, printed.err)
        if file:
            Path(file).write_text(printed.out)
    assert json.loads(Path("tour/run/model.json").read_text())["method"] == "pisa-equalised"
    decided = [json.loads(line)["device"] for line in Path("tour/decisions.jsonl").read_text().splitlines()]
    monkeypatch.setattr(sys, "argv", ["pisa", "evaluate", "tour/run", "tour/wifi", "--json"])
    with pytest.raises(SystemExit):
        main()
    stages = json.loads(capsys.readouterr().out)["runs"][0]["stages"]
    assert stages["paper"]["macro_f1"] > 0.6  # of five devices
    assert len(decided) == sum(capture["frames"] for capture in stages["direct"]["per_capture"].values())


def test_the_activation_line_comes_before_the_first_command() -> None:
    block = START.split("## A tour")[1].split("```")[1].strip().splitlines()
    assert block[0].startswith("make setup")
    assert block[1].startswith(". .venv/bin/activate")


@pytest.mark.slow
def test_the_first_hour(tmp_path: Path) -> None:
    """The tour as the page has it and what comes after it, by the script; minutes of two cores."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [ROOT / "examples/first_hour.sh", tmp_path / "tour"]
    ran = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "tour/result.json").read_text())
    assert found["seconds_of_computing"] < 300
    assert min(found[of]["paper"]["macro_f1"] for of in ("target", "recording")) > 0.9


@pytest.mark.slow
def test_the_demo_ends_with_its_table_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(tmp_path, monkeypatch)
    demo.main()
    found = json.loads((tmp_path / "demo/result.json").read_text(encoding="utf-8"))["stages"]
    scores = [found[name]["macro_f1"] for name in demo.STAGES]
    assert scores == sorted(scores)
    assert scores[-1] > 0.9
    assert (tmp_path / "demo/report.html").is_file()


@pytest.mark.slow
def test_the_example_in_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(tmp_path, monkeypatch)
    example = START.split("```python\n")[1].split("```")[0]
    short = example.replace("scale=0.05", "scale=0.02").replace("epochs=1, batch=32", "epochs=2, batch=8, show=False")
    assert short.count("epochs=2") == short.count("scale=0.02") == 1
    Path("example.py").write_text(short, encoding="utf-8")
    ran = subprocess.run([sys.executable, "example.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) > 0.6  # of five devices


@pytest.mark.parametrize("name", ["pisa-listen", "pisa-serve"])
def test_the_units_are_shut_as_tightly_as_they_say(name: str) -> None:
    unit = ROOT / "examples" / "listen" / f"{name}.service"
    said = re.search(r"rates it (\d\.\d)\.", unit.read_text())
    assert said is not None
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rated = re.search(r"exposure level for \S+: (\d+\.\d)", found)
    if rated is None:
        pytest.skip("this systemd-analyze rates no files")
    assert float(rated[1]) <= 2.0
