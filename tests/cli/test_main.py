"""The command itself."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from pisa_capc import cli
from pisa_capc.cli.help import STAGES
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (a fixture)


def test_the_version_is_the_one_of_the_package(pisa: Command) -> None:  # noqa: F811
    about = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    found = pisa("--version")
    assert (found.code, found.out) == (0, f"pisa-capc {about['project']['version']}\n")


def test_the_help_has_every_command_once_by_stage_with_all_of_its_summary(pisa: Command) -> None:  # noqa: F811
    def summaries(command: Any, name: str) -> dict[str, str]:
        found = {name.strip(): command.get_short_help_str(limit=1000)}
        for key, own in getattr(command, "commands", {}).items():
            found |= summaries(own, f"{name} {key}")
        return found

    found = pisa("--help")
    assert found.code == 0
    known = summaries(get_command(cli.app), "")
    not_called_so = {"", "bench", "calibrate once"}
    assert sorted(name for names in STAGES.values() for name in names) == sorted(known.keys() - not_called_so)
    shown = " ".join(found.out.split())
    for name in known.keys() - not_called_so:
        assert f" {name} {known[name]} " in shown
    for stage in STAGES:
        assert f" {stage} " in shown
    assert " --plugin FILE.py " in shown
    assert "pisa simulate wifi --out wifi" in shown


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", [["--help"], ["methods"]])
def test_a_full_disk_under_standard_output_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pisa_capc", *command], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "standard output: No space left on device" in done.stderr


def test_a_name_that_is_too_long_is_called_that(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    found = pisa("inspect", str(tmp_path / ("x" * 300)))
    assert found.code == 2
    assert found.err.endswith("File name too long. Give a shorter name.\n")


HEAVY = ("torch", "scipy", "sklearn", "matplotlib", "h5py", "onnxruntime")


@pytest.mark.parametrize("code", ["import pisa_capc", "from pisa_capc.cli import main; main()"])
def test_help_and_the_package_itself_import_nothing_heavy(code: str) -> None:
    """What takes a second to import is imported where it is used."""
    ask = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run([sys.executable, "-c", ask, "--help"], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stderr.split())
