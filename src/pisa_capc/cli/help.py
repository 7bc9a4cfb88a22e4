"""What `pisa --help` prints: the commands by stage.

It is written here because Typer's help would first load what reads Markdown, which takes longer than all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from pisa_capc.cli.completion import complete
from pisa_capc.cli.old import renewed
from pisa_capc.core import quantities
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import PlainConsole

STAGES = {  # with their commands, in the order the data flows
    "Frames in": ("simulate", "detect", "import", "inspect", "measure", "check", "limit", "split", "export"),
    "Model": ("encoders", "methods", "train", "embed", "evaluate", "export-model", "sign"),
    "Calibration": ("calibrate", "calibrate fit", "calibrate apply", "calibrate stream"),
    "Decisions": ("predict", "identify", "verify", "enrol"),
    "On the air": ("listen", "serve"),
    "Benchmarks": ("bench new", "bench run", "bench select", "bench status", "bench tables", "bench figures"),
    "Results to show": ("figures", "report"),
}
TOUR = """\
pisa simulate wifi --out wifi --scale 0.1
pisa inspect wifi --plot wifi.png
pisa train wifi --source E2,E3 --target E1 --epochs 5 --out run
pisa evaluate run wifi
pisa embed run wifi --environment E1 --out scores.npz
pisa calibrate scores.npz --out calibrated.npz"""


class BoundedGroup(TyperGroup):
    """Commands whose numbers are what `core.quantities` says that they may be: NaN would pass every range.

    Values of their options are completed in shells.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        options: list[Any] = [] if command is None else [*command.params]
        for option in options:
            if not isinstance(option.callback, _Bounded):
                option.callback = _Bounded(option.callback)
                complete(option)
        return command


@dataclass(frozen=True)
class _Bounded:
    """The callback of an option: values that are numbers are checked. before: the callback that it had."""

    before: Callable[[Any, Any, Any], Any] | None

    def __call__(self, ctx: Any, param: Any, value: Any) -> Any:
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, int | float) and not isinstance(number, bool):
                try:
                    quantities.option(param.name, number)
                except ConfigError as error:
                    raise typer.BadParameter(str(error), ctx=ctx, param=param) from error
        return value if self.before is None else self.before(ctx, param, value)


class Overview(BoundedGroup):
    """The command `pisa`, whose help has the others by stage."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        command: Any = self
        words, valued = [], _valued(self)
        left = iter(args)
        for word in left:
            if word in valued:
                next(left, "")
            elif (inner := getattr(command, "commands", {}).get(word)) is not None:
                command = inner
                words.append(word)
            elif not word.startswith("-"):
                break
        others = getattr(command, "commands", {}).values()  # one of which may go without its name
        return super().parse_args(ctx, renewed(args, words, lambda: _valued(self, command, *others)))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it; the formatter has no say in it."""
        out = PlainConsole()
        out.print(Text.assemble(("Usage: ", "bold"), " ".join([ctx.command_path, *self.collect_usage_pieces(ctx)])))
        out.print(f"\n{self.help}\n")
        width = max(len(name) for names in STAGES.values() for name in names)
        for stage, names in STAGES.items():
            out.print(_columns(stage, [(name, self._summary(name)) for name in names], width))
        options = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx))]
        out.print(_columns("Options", options, max(len(name) for name, _ in options)))
        out.print(Text.assemble(("A first tour\n", "bold"), indent(TOUR, "  "), "\n"))
        out.print("Help of a command: pisa train --help")

    def _summary(self, name: str) -> str:
        """Of a command, or of one inside another, as 'bench run'."""
        command: Any = self
        for word in name.split():
            command = command.commands[word]
        return str(command.get_short_help_str(limit=1000))


def _valued(*commands: Any) -> set[str]:
    """The options of commands that take a value."""
    options = [option for command in commands for option in command.params]
    return {word for option in options if not getattr(option, "is_flag", True) for word in option.opts}


def _columns(title: str, rows: Sequence[tuple[str, str]], width: int) -> Table:
    table = Table(title=Text(title, "bold"), title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(width=width + 2)
    table.add_column()
    for name, about in rows:
        table.add_row(Text(f"  {name}", "cyan"), Text(about))
    table.add_row("", "")
    return table
