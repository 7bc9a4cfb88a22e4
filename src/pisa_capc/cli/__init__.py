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

import typer
from rich.text import Text

from pisa_capc.cli.help import Overview
from pisa_capc.cli.output import warnings_as_notes
from pisa_capc.core import plugins
from pisa_capc.core.errors import ConfigError, PisaError
from pisa_capc.core.progress import console
from pisa_capc.core.revisions import PACKAGE

app = typer.Typer(
    cls=Overview,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Tell transmitters apart by the flaws of their hardware, in places the receiver was never trained in.",
)


PLUGIN, TRUSTED, UNSEALED, QUIET = "--plugin", "--trusted", "--unsealed", "--quiet"
WITH_FILE = (PLUGIN, TRUSTED)  # options of every command that take a file
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
    trusted: list[Path] = typer.Option(
        [],
        TRUSTED,
        metavar="KEY.pub",
        help="Read only models, datasets and calibrations that this key signed (`pisa sign`); of any command.",
        show_default=False,
    ),
    unsealed: bool = typer.Option(
        False, UNSEALED, help="Read files of earlier versions that have no digest; of any command."
    ),
    quiet: bool = typer.Option(
        False, QUIET, help="Print results and errors alone, no notes and no progress; of any command."
    ),
) -> None:
    """With a callback, typer keeps naming a command even where it is the only one."""
    console.quiet = quiet
    if unsealed:
        from pisa_capc.data.store import seal

        os.environ[seal.VARIABLE] = "1"
    if trusted:
        from pisa_capc.data.store import signature

        signature.trust(trusted)
    for file in plugin:
        plugins.load_file(file)


def common_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with those options in front of the command that all commands have, as `--plugin FILE`.

    >>> common_first(["train", "wifi", "--plugin", "mine.py", "--encoder", "mine"])
    ['--plugin', 'mine.py', 'train', 'wifi', '--encoder', 'mine']
    """
    common: list[str] = []
    others: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if argument == "--":
            others += [argument, *left]
        elif argument in (UNSEALED, QUIET):
            common.append(argument)
        elif name not in WITH_FILE:
            others.append(argument)
        elif file := value if equals else next(left, ""):
            common += [name, file]
        else:
            raise ConfigError(f"{name}: expected a file, as {name} {'mine.py' if name == PLUGIN else 'key.pub'}.")
    return [*common, *others]


def goes_on(arguments: Sequence[str]) -> bool:
    """Whether the command of these arguments, started again, goes on where it was stopped.

    >>> goes_on(["--plugin", "mine.py", "train", "wifi"]), goes_on(["evaluate", "run", "wifi"])
    (True, False)
    """
    pairs = zip(("", *arguments), arguments, strict=False)
    words = [word for before, word in pairs if before not in WITH_FILE and word not in (*WITH_FILE, UNSEALED, QUIET)]
    return any(tuple(words[: len(command)]) == command for command in GO_ON)


def main() -> None:
    """Entry point: user errors become one message and exit code 2; Typer turns Ctrl-C into exit code 130."""
    # In the order the data flows, as the stages of the help have them.
    from pisa_capc.cli import simulate  # noqa: F401, I001  (each import registers its commands)
    from pisa_capc.cli import detect  # noqa: F401
    from pisa_capc.cli import data  # noqa: F401
    from pisa_capc.cli import measure  # noqa: F401
    from pisa_capc.cli import check  # noqa: F401
    from pisa_capc.cli import model  # noqa: F401
    from pisa_capc.cli import evaluate  # noqa: F401
    from pisa_capc.cli import edge  # noqa: F401
    from pisa_capc.cli import calibrate  # noqa: F401
    from pisa_capc.cli import stream  # noqa: F401
    from pisa_capc.cli import identify  # noqa: F401
    from pisa_capc.cli import enrol  # noqa: F401
    from pisa_capc.cli import listen  # noqa: F401
    from pisa_capc.cli import serve  # noqa: F401
    from pisa_capc.cli import bench  # noqa: F401
    from pisa_capc.cli import report  # noqa: F401
    from pisa_capc.cli import sign  # noqa: F401

    sys.exit(_run())


def _run() -> int | str | None:
    """The command of the command line; its exit code."""
    try:
        try:
            with warnings_as_notes():
                app(common_first(sys.argv[1:]), standalone_mode=True)
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
    console.quiet = False  # an error is no note
    console.print(Text("error:", style="bold red"), text, soft_wrap=True)
