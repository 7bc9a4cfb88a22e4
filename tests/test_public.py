"""What `import pisa_capc` offers: every name can be seen, imported and completed, and none hides another."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from rlcompleter import Completer
from types import ModuleType

import pytest

import pisa_capc

ROOT = Path(pisa_capc.__file__).parent


def test_dir_shows_the_public_names_and_the_packages() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(dir(pisa_capc)) == {*pisa_capc.__all__, *folders}
    assert {"Frames", "simulate", "split", "fit", "embed", "UCAPC", "identify", "Listener"} <= set(dir(pisa_capc))


@pytest.mark.parametrize("name", dir(pisa_capc))
def test_every_name_is_what_it_says(name: str) -> None:
    found = getattr(pisa_capc, name)
    if name in pisa_capc.PACKAGES:
        assert isinstance(found, ModuleType)
    elif name != "__version__":
        assert callable(found)
        assert found.__doc__, "the API page says what it is"


def test_names_are_completed() -> None:
    assert "pisa_capc.embed(" in Completer({"pisa_capc": pisa_capc}).attr_matches("pisa_capc.em")


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname: f"{node.module}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: f"pisa_capc.{module}" for name, module in pisa_capc._HOME.items()}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pisa_capc' has no attribute 'nothing'"):
        pisa_capc.nothing  # noqa: B018


def test_no_module_has_the_name_of_what_its_package_exports() -> None:
    """Importing the module would put it in the place of the function."""
    for path in ROOT.rglob("__init__.py"):
        name = ".".join(("pisa_capc", *path.parent.relative_to(ROOT).parts))
        if ".kernels" in name or ".fused" in name:  # the house's own, and not importable everywhere
            continue
        package = import_module(name)
        inside = {
            child.stem for child in path.parent.iterdir() if child.suffix == ".py" or (child / "__init__.py").exists()
        }
        hidden = inside & set(getattr(package, "__all__", ()))
        assert [one for one in hidden if not isinstance(getattr(package, one), ModuleType)] == [], name
