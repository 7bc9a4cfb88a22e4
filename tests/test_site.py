"""The site: what is generated is whole, what is named is there, and it builds without a warning."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pages import api, commands, file_bytes, schemas

import pisa_capc

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_every_command_and_option_is_on_the_page() -> None:
    page = commands.page()
    every = dict(commands.commands())
    assert len(every) > 20
    for name, command in every.items():
        section = page.split(f"### pisa {name}\n")[1].split("\n### ")[0]
        assert (command.help or "").split(".")[0].split("\n")[0] in section
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if f"{option} " not in section and f"{option}`" not in section] == []


@pytest.mark.parametrize("page", [schemas.protocol_page, schemas.scene_page])
def test_every_setting_is_explained(page) -> None:
    rows = re.findall(r"^\| `([\w.]+)` \|.*\| (.*) \|$", page(), re.M)
    assert len(rows) > 50
    assert [name for name, meaning in rows if not meaning.strip()] == []


def test_the_api_has_what_the_package_exports() -> None:
    page = api.page()
    for name in pisa_capc.__all__:
        assert f"   pisa_capc.{name}\n" in page or name.startswith("_")
    assert page.count("\n   pisa_capc.") > 100
    names = re.findall(r"^   (pisa_capc\S+)$", page, re.M)
    assert len(names) == len(set(names))


def test_the_samples_are_in_the_dumps() -> None:
    page = file_bytes.page()
    assert page.count("00 00 00 3f 00 00 80 be") == 4  # HDF5, SigMF, NPZ and cf32; MAT has real parts first
    assert "00 40 00 e0" in page


def test_examples_are_in_the_order_and_in_the_pages() -> None:
    tree = ast.parse((DOCS / "conf.py").read_text(encoding="utf-8"))
    [order] = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ORDER"
    ]
    there = {path.stem.removeprefix("plot_") for path in (ROOT / "examples/gallery").glob("plot_*.py")}
    assert set(order) == there
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert all(f"gallery/plot_{name}.rst" in index for name in order)


def test_pages_link_to_files_that_are_there() -> None:
    made = ("gallery/", "reference/")  # when the site is built, which checks links to these
    pages = [path for path in DOCS.rglob("*.md") if not {"_build", "reference", "gallery"} & set(path.parts)]
    for page in [*ROOT.glob("*.md"), *pages]:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            if not link.startswith(("http", "#")) and not any(part in link for part in made):
                assert (page.parent / link.split("#")[0]).exists(), f"{page}: {link}"


def test_the_citation_is_of_this_version() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert found["version"] == pisa_capc.__version__


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx_gallery", reason="make docs installs the tools of the site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", str(tmp_path / "html")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    examples = list((tmp_path / "html" / "gallery").glob("plot_*.html"))
    assert examples
    for page in examples:
        assert "sphx-glr-script-out" in page.read_text(encoding="utf-8")
    used = (tmp_path / "html" / "reference" / "objects" / "pisa_capc.UCAPC.html").read_text(encoding="utf-8")
    assert "plot_own_classifier" in used
