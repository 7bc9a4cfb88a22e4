"""The command `pisa`: one module per stage, in the order the data flows.

Heavy imports (torch, matplotlib) happen inside the commands, so that `pisa --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import Any

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from pisa_capc import plugins
from pisa_capc.cli.output import warnings_as_notes
from pisa_capc.errors import ConfigError, PisaError
from pisa_capc.progress import PlainConsole, console
from pisa_capc.revisions import PACKAGE

STAGES = {  # of the help, with their commands in the order the data flows
    "Frames in": ("simulate", "detect", "import", "inspect", "check", "limit", "split", "export"),
    "Model": ("encoders", "methods", "train", "embed", "evaluate", "export-model"),
    "Calibration": ("calibrate", "calibrate fit", "calibrate apply", "calibrate stream"),
    "Recordings": ("identify", "verify", "enrol"),
    "On the air": ("listen", "serve"),
    "Benchmarks": ("bench run", "bench select", "bench status", "bench tables", "bench figures"),
    "Results to show": ("figures", "report"),
}
TOUR = """\
pisa simulate wifi --out wifi --scale 0.1
pisa inspect wifi --plot wifi.png
pisa train wifi --source E2,E3 --target E1 --epochs 5 --out run
pisa evaluate run wifi
pisa embed run wifi --environment E1 --out scores.npz
pisa calibrate scores.npz --out calibrated.npz"""


class Stages(TyperGroup):
    """The command itself, whose help has the others by stage.

    It is written here because Typer's would first load what reads Markdown, which takes longer than all the rest.
    """

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


def _columns(title: str, rows: Sequence[tuple[str, str]], width: int) -> Table:
    table = Table(title=Text(title, "bold"), title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(width=width + 2)
    table.add_column()
    for name, about in rows:
        table.add_row(Text(f"  {name}", "cyan"), Text(about))
    table.add_row("", "")
    return table


app = typer.Typer(
    cls=Stages,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Tell transmitters apart by the flaws of their hardware, in places the receiver was never trained in.",
)


PLUGIN = "--plugin"
INTERRUPTED = 130  # exit code
# What these have finished is kept, and the same command does the rest.
GO_ON = (("simulate",), ("import",), ("train",), ("detect",), ("bench", "run"), ("bench", "select"))


def _print_version(asked: bool) -> None:
    if asked:
        print(f"pisa-capc {PACKAGE}")
        raise typer.Exit


@app.callback()
def _stages(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
    plugin: list[Path] = typer.Option(
        [],
        PLUGIN,
        metavar="FILE.py",
        help="A file with encoders, methods or other parts of your own; of any command, in any place of the line.",
        show_default=False,
    ),
) -> None:
    """With a callback, typer keeps naming a command even where it is the only one."""
    for file in plugin:
        plugins.load_file(file)


def plugins_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with every `--plugin FILE` in front of the command, where it is an option of all of them.

    >>> plugins_first(["train", "wifi", "--plugin", "mine.py", "--encoder", "mine"])
    ['--plugin', 'mine.py', 'train', 'wifi', '--encoder', 'mine']
    """
    files: list[str] = []
    others: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if argument == "--":
            others += [argument, *left]
        elif name != PLUGIN:
            others.append(argument)
        elif file := value if equals else next(left, ""):
            files += [PLUGIN, file]
        else:
            raise ConfigError(f"{PLUGIN}: expected a file, as {PLUGIN} mine.py.")
    return [*files, *others]


def goes_on(arguments: Sequence[str]) -> bool:
    """Whether the command of these arguments, started again, goes on where it was stopped.

    >>> goes_on(["--plugin", "mine.py", "train", "wifi"]), goes_on(["evaluate", "run", "wifi"])
    (True, False)
    """
    words = [word for before, word in zip(("", *arguments), arguments, strict=False) if PLUGIN not in (before, word)]
    return any(tuple(words[: len(command)]) == command for command in GO_ON)


def main() -> None:
    """Entry point: user errors become one message and exit code 2; Typer turns Ctrl-C into exit code 130."""
    # In the order the data flows, which is the order of the commands in the help.
    from pisa_capc.cli import simulate  # noqa: F401, I001  (each import registers its commands)
    from pisa_capc.cli import detect  # noqa: F401
    from pisa_capc.cli import data  # noqa: F401
    from pisa_capc.cli import check  # noqa: F401
    from pisa_capc.cli import limit  # noqa: F401
    from pisa_capc.cli import model  # noqa: F401
    from pisa_capc.cli import edge  # noqa: F401
    from pisa_capc.cli import calibrate  # noqa: F401
    from pisa_capc.cli import frozen  # noqa: F401
    from pisa_capc.cli import stream  # noqa: F401
    from pisa_capc.cli import identify  # noqa: F401
    from pisa_capc.cli import enrol  # noqa: F401
    from pisa_capc.cli import listen  # noqa: F401
    from pisa_capc.cli import serve  # noqa: F401
    from pisa_capc.cli import bench  # noqa: F401
    from pisa_capc.cli import report  # noqa: F401

    sys.exit(_run())


def _run() -> int | str | None:
    """The command of the command line; its exit code."""
    try:
        try:
            with warnings_as_notes():
                app(plugins_first(sys.argv[1:]), standalone_mode=True)
            code: int | str | None = 0
        except SystemExit as ended:
            code = ended.code
            if code == INTERRUPTED and goes_on(sys.argv[1:]):
                console.print("Stopped. What was finished is kept: the same command goes on from there.")
        sys.stdout.flush()
        return code
    except PisaError as error:
        _say(str(error))
    except OSError as error:
        # Standard output among them: what is left in its buffer would be tried again at the very end.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno == errno.EPIPE:  # who read it has read enough
            return 1
        place = error.filename or "standard output"
        advice = "See who may read and write there, and whether there is space."
        if error.errno == errno.ENAMETOOLONG:
            advice = "Give a shorter name."
        _say(f"{place}: {error.strerror or error}. {advice}")
    return 2


def _say(text: str) -> None:
    console.print(Text("error:", style="bold red"), text, soft_wrap=True)
