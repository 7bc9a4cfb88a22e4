"""The command itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (a fixture)


def test_the_version_is_the_one_of_the_package(pisa: Command) -> None:  # noqa: F811
    about = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    found = pisa("--version")
    assert (found.code, found.out) == (0, f"pisa-capc {about['project']['version']}\n")
