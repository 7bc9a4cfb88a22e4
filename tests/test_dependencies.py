"""The page about dependencies names what the package declares, and the lock has a hash of everything but PyTorch."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def name(requirement: str) -> str:
    return re.split(r"[=<>~! ;\[]", requirement)[0].lower().replace("_", "-")


def test_the_page_names_every_dependency_by_its_kind() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {(name(requirement), "core") for requirement in project["dependencies"]}
    for extra, requirements in project["optional-dependencies"].items():
        declared |= {(name(requirement), f"extra `{extra}`") for requirement in requirements}
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", (ROOT / "docs" / "dependencies.md").read_text(), re.M)
    named = {(name(package), kind) for packages, kind in rows for package in packages.split(", ")}
    assert {row for row in named if row[1].startswith(("core", "extra"))} == declared


def test_every_pinned_package_has_hashes() -> None:
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.in").read_text(), re.M)
    locked = dict(
        re.findall(
            r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", (ROOT / "requirements.lock").read_text(), re.M
        )
    )
    assert {(name(package), version) for package, version in pinned} == {(name(p), v) for p, v in locked.items()}
    assert "torch" not in locked
