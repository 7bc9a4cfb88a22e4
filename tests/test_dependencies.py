"""The page about dependencies names what the package declares, and the lock has a hash of everything but PyTorch."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pages import sbom

ROOT = Path(__file__).parents[1]


def name(requirement: str) -> str:
    return re.split(r"[=<>~! ;\[]", requirement)[0].lower().replace("_", "-")


def test_the_page_names_every_dependency_by_its_kind() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {(name(requirement), "core") for requirement in project["dependencies"]}
    for extra, requirements in project["optional-dependencies"].items():
        declared |= {(name(one), f"extra `{extra}`") for one in requirements if name(one) != project["name"]}
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", (ROOT / "docs" / "dependencies.md").read_text(), re.M)
    named = {(name(package), kind) for packages, kind in rows for package in packages.split(", ")}
    assert {row for row in named if row[1].startswith(("core", "extra"))} == declared


def test_the_extra_all_has_every_extra_but_the_tools_of_the_site() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    [every] = extras["all"]
    assert set(re.findall(r"[\w-]+", every.partition("[")[2].partition("]")[0])) == extras.keys() - {"all", "docs"}


@pytest.mark.parametrize("which", ["requirements", "requirements-run"])
def test_every_pinned_package_has_hashes(which: str) -> None:
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / f"{which}.in").read_text(), re.M)
    locked = dict(
        re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", (ROOT / f"{which}.lock").read_text(), re.M)
    )
    assert {(name(package), version) for package, version in pinned} == {(name(p), v) for p, v in locked.items()}
    assert "torch" not in locked


def test_a_container_runs_what_the_tests_ran() -> None:
    """The same versions, and nothing that only tests need; what is not tested here it may have besides."""
    here, there = (
        {name(p): v for p, v in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(), re.M)}
        for file in ("requirements.in", "requirements-run.in")
    )
    assert {package for package, version in there.items() if here.get(package, version) != version} == set()
    assert not {"pytest", "mypy", "ray", "triton", "playwright", "hypothesis"} & there.keys()


def test_the_page_gives_the_size_of_the_container_as_it_was_measured() -> None:
    record = json.loads((ROOT / "results/speed/container.json").read_text())
    base, _ = record["layers_bytes"]
    page = " ".join((ROOT / "docs/dependencies.md").read_text(encoding="utf-8").split())
    assert f"an image of {record['image_bytes'] / 1e9:.2f} GB on a Debian base of {base / 1e6:.0f} MB" in page
    assert record["image_bytes"] < 1.5e9
    assert record["user"] not in ("", "root")
    assert {"simulate radios", "train", "listen"} <= {row["what"] for row in record["rows"]}


def test_the_page_of_the_index_has_no_link_that_leads_nowhere() -> None:
    spec = importlib.util.spec_from_file_location("setup_of_the_package", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    page = setup.described()
    assert page.startswith("# PISA-CAPC")
    assert re.findall(r"\]\((?!https?:|#|mailto:)[^)]*\)", page) == []
    assert "how](" in (ROOT / "README.md").read_text(encoding="utf-8")  # so there was something to do


def test_every_lock_but_torchs_has_hashes_and_the_bill_of_materials_lists_them_all() -> None:
    locks = {name: sbom.packages(ROOT / name) for name in sbom.LOCKS}
    assert list(locks.pop("requirements-torch.lock")) == [("torch", "2.13.0")]
    for name, found in locks.items():
        assert found, name
        assert not [package for package, hashes in found.items() if not hashes], name
    listed = {(one["name"], one["version"]) for one in sbom.bill()["components"]}
    assert listed == {("torch", "2.13.0"), *(package for found in locks.values() for package in found)}


def test_formats_and_detection_start_without_torch() -> None:
    """It takes seconds to import, and `pisa import` and `pisa detect` need nothing of it."""
    code = "import sys, pisa_capc.signal.detection, pisa_capc.signal.formats; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
