"""Every command of `pisa` with its arguments and options, as a page of the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import typer

from pages.against_paper import markdown_table as table
from pisa_capc import cli

STAGES = {
    "Data": ("simulate", "detect", "import", "inspect", "measure", "check", "limit", "split", "export"),
    "Model": ("encoders", "methods", "train", "embed", "evaluate", "export-model", "sign"),
    "Calibration": ("calibrate",),
    "Identification": ("predict", "identify", "verify", "enrol", "listen", "serve"),
    "Benchmarks": ("bench",),
    "Figures and reports": ("figures", "report"),
}
USUAL = {"calibrate once": "calibrate"}  # what stands for a group without a name behind it


def page() -> str:
    """Commands in the order the data flows; one that no stage names comes last."""
    every = dict(commands())
    parts = ["# Commands\n"]
    named = [name for names in STAGES.values() for name in names]
    others = tuple(dict.fromkeys(first for first in (name.split()[0] for name in every) if first not in named))
    for stage, names in {**STAGES, "More": others}.items():
        found = [name for first in names for name in every if name.split()[0] == first]
        if found:
            parts += [f"## {stage}\n", *(section(name, every[name]) for name in found)]
    everywhere = [record(cli_group(), parameter) for parameter in cli_group().params]
    parts += ["## Options of every command\n", options(everywhere)]
    return "\n".join(parts)


def cli_group() -> Any:
    """The command `pisa` with all of its own, as typer makes it."""
    for module in iter_modules(cli.__path__):
        import_module(f"{cli.__name__}.{module.name}")  # each registers its commands
    return typer.main.get_command(cli.app)


def commands() -> Iterator[tuple[str, Any]]:
    """Names, as `bench run`, and the commands they stand for."""

    def inside(group: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            full = f"{path}{name}"
            if hasattr(command, "commands"):
                yield from inside(command, f"{full} ")
            else:
                yield USUAL.get(full, full), command

    yield from inside(cli_group(), "")


def section(name: str, command: Any) -> str:
    context = typer.Context(command)
    records = {parameter: record(command, parameter) for parameter in command.params}
    given = {p: r for p, r in records.items() if p.param_type_name == "argument"}
    arguments = " ".join(r[0].split()[0].upper() for r in given.values())
    usage = " ".join(filter(None, [f"pisa {name}", arguments, "[OPTIONS]" if len(given) < len(records) else ""]))
    help = re.sub(r"\n +", "\n", (command.help or "").strip())
    context.close()
    return f"### pisa {name}\n\n```\n{usage}\n```\n\n{help}\n\n{options(list(records.values()))}"


def record(command: Any, parameter: Any) -> tuple[str, str]:
    """An option as the command line's own help has it: how it is written, and what it is."""
    found = parameter.get_help_record(typer.Context(command))
    return found or (parameter.opts[0], "")


def options(records: list[tuple[str, str]]) -> str:
    rows = []
    for written, about in records:
        words, _, rest = about.partition("  [")
        notes = rest.removesuffix("]").split("; ") if rest else []
        default = [note for note in notes if note == "required" or note.startswith("default: ")]
        words = " ".join([words, *(_limits(note) for note in notes if note not in default)]).replace("|", "\\|")
        rows.append([f"`{written.replace(' range>', '>')}`", words, "; ".join(default).replace("default: ", "")])
    return table(["", "meaning", "default"], rows) + "\n"


def _limits(note: str) -> str:
    """A range of click, as `x>=1` or `0<=x<=9`, in words."""
    low, _, high = note.replace("x>=", "").partition("<=x<=")
    return f"From {low} to {high}." if high else f"At least {low}."
