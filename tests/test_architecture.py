"""The page about the architecture says what is so: packages, modules, the contract of imports, and the old names."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

from pisa_capc.core.moved import MOVED

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]


def table(heading: str) -> list[list[str]]:
    """Rows of the tables under a heading, cell by cell; a row begins with a name."""
    section = PAGE.split(f"{heading}\n", 1)[1].split("\n## ")[0]
    return [row.strip("|").split("|") for row in section.splitlines() if row.startswith("| `")]


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def test_the_packages_are_few_and_in_the_order_of_the_contract() -> None:
    package = ROOT / "src" / "pisa_capc"
    entries = {path.stem for path in package.iterdir() if not path.name.startswith("__") and path.name != "py.typed"}
    assert len(entries) <= 10
    order = list(reversed(CONTRACTS[0]["layers"]))
    assert sorted(order) == sorted(entries)
    assert [name for row in table("# Architecture") for name in names(row[0])] == order


def test_the_page_quotes_the_contract() -> None:
    [quoted] = tomllib.loads(PAGE.split("```toml\n")[1].split("```")[0])["tool"]["importlinter"]["contracts"]
    assert quoted == CONTRACTS[0]


def test_the_page_names_every_module_from_the_lowest_to_the_highest() -> None:
    layers = [["cli"]]
    for contract in CONTRACTS[1:]:
        package = contract["containers"][0].removeprefix("pisa_capc.")
        layers += [[f"{package}.{name}" for name in layer.split(" | ")] for layer in contract["layers"]]
    height = {module: -i for i, layer in enumerate(layers) for module in layer}
    rows = [names(row[0]) for row in table("## Modules")]
    assert sorted(name for row in rows for name in row) == sorted(height)
    lowest = [min(height[module] for module in row) for row in rows]
    assert lowest == sorted(lowest)


def test_every_package_has_a_contract_that_leaves_nothing_out() -> None:
    inside = {contract["containers"][0] for contract in CONTRACTS[1:]}
    assert inside == {f"pisa_capc.{package}" for package in CONTRACTS[0]["layers"]} - {"pisa_capc.cli"}
    assert all(contract["exhaustive"] for contract in CONTRACTS)
    assert CONTRACTS[0]["exhaustive_ignores"] == ["__main__"]


def test_the_page_lists_every_old_name() -> None:
    listed: dict[str, str] = {}
    for row in table("## Old names"):
        [place], modules = names(row[0]), names(row[1])
        kept = place.removeprefix("pisa_capc.") in CONTRACTS[0]["layers"]
        listed |= (
            {name: f"{place}.{name}" for name in modules} if kept else {place.removeprefix("pisa_capc."): modules[0]}
        )
    assert listed == {old: f"pisa_capc.{new}" for old, new in MOVED.items()}


def test_each_class_name_is_used_once() -> None:
    """Private classes and the layers of `stacked`, which are twins of PyTorch's, are left out."""
    places: dict[str, list[str]] = defaultdict(list)
    package = ROOT / "src" / "pisa_capc"
    for path in package.rglob("*.py"):
        if "stacked" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(package)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
