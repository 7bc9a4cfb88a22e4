"""Options of a command from the signature of the function it calls, so that they are written once."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from typer.core import TyperCommand

from pisa_capc.core.errors import ConfigError

# Options that several commands have. One word has one meaning everywhere: `tests/cli/test_words.py`.
AsJson = typer.Option(False, "--json", help="Print JSON instead of text.")
Force = typer.Option(False, "--force", help="Replace files that exist.")
Alpha = typer.Option(0.05, help="Share of source-like frames of a known device to set aside at most.")
AlarmAlpha = typer.Option(0.01, help="Chance of a false alarm for each address or device, on source-like frames.")
Addresses = typer.Option(
    None,
    help="Owners of addresses: .csv with lines address,device, .json {address: device}, or a dataset of `pisa detect`. "
    "By default devices are named by their addresses.",
    show_default=False,
)
TestEvery = typer.Option(0.0, min=0.0, help="Seconds between frames of an address that are tested.")
CalibrationName = typer.Option(
    None,
    "--calibration",
    help="What corrects decisions with the frames' own capture: careful, ucapc (as published), direct (nothing), t3a, "
    "lame, label-propagation, pt-map, bd-cspn, transclip, stata, mlls, bbse, lda, or a plugin's. Default: careful, or "
    "U-CAPC without a prior where the source statistics that careful needs are missing.",
    show_default=False,
)
HeldOut = typer.Option(
    "random",
    help="Validation frames of a recording: random, as published, or block, one block of time with a gap on either "
    "side, so that neighbours are not in both parts.",
)


def reject_option(default: str) -> Any:
    """--reject, which some commands do without being asked."""
    return typer.Option(
        default,
        "--reject",
        help="Reject unknown devices by gaussian (closed-form models), session, carrier, crowd (whole captures, frame "
        "by frame), knn, mahalanobis, energy, a plugin's, or none. auto is gaussian where the model gives error bars, "
        "else session, or knn for models of earlier versions, which keep no sessions.",
    )


S = TypeVar("S")
T = TypeVar("T")
Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


def options_of(
    function: Callable[..., T],
    arguments: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
    words: Mapping[str, str] | None = None,
) -> Decorator:
    """A command that calls `function` with what is given on the line, and then the decorated with its result.

    Every parameter of `function` that is annotated `Annotated[type, "help"]` becomes an option, or an argument where
    `arguments` gives it a metavar; one whose default is an option of typer stays that. The decorated takes the result
    first, and options of its own. words: options that are called otherwise than the parameters.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    named = arguments or {}
    theirs = [
        parameter.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            annotation=_typer(hints[name], named.get(name), (words or {}).get(name)),
        )
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in without
    ]

    def decorate(show: Callable[..., None]) -> Callable[..., None]:
        _, *given = inspect.signature(show).parameters.values()
        # The result's type is left out: where its room is deferred, only type checkers know it.
        unread = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation for parameter in given})
        own_hints = typing.get_type_hints(unread, show.__globals__, include_extras=True)
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own_hints[parameter.name])
            for parameter in given
        ]
        names = [parameter.name for parameter in own]

        @wraps(show)
        def command(**given: Any) -> None:
            others = {name: given.pop(name) for name in names}
            show(function(**given), **others)

        parameters = [*theirs, *own]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def deferred(app: typer.Typer, options: Callable[[], Decorator]) -> Callable[[Callable[..., None]], None]:
    """`app.command()` of a function whose options are those of a room that takes long to import.

    `options` imports it and gives what `options_of` gives. It is called when the command is, or its options are looked
    at; the list of all commands needs the docstring alone.
    """

    def register(show: Callable[..., None]) -> None:
        @cache
        def whole() -> Any:
            alone = typer.Typer()
            alone.command(show.__name__)(options()(show))
            return typer.main.get_command(alone)

        class Deferred(TyperCommand):
            params = property(lambda self: whole().params, lambda self, _: None)
            callback = property(lambda self: whole().callback, lambda self, _: None)

        @app.command(show.__name__, cls=Deferred, help=show.__doc__)
        def _() -> None: ...

    return register


def either(usual: Callable[..., T], other: Callable[..., S], when: str) -> Callable[..., T | S]:
    """A function with the parameters of both: `other` is called where its parameter `when` is given, else `usual`.

    What both have is as `usual` has it. A value for a parameter that the called one does not have is refused.
    """
    first, second = (inspect.signature(function).parameters for function in (usual, other))
    merged = {**second, when: second[when].replace(default=None), **first}
    hints = typing.get_type_hints(other, include_extras=True) | typing.get_type_hints(usual, include_extras=True)
    kind, help = typing.get_args(hints[when])
    hints[when] = Annotated[kind | None, help]
    option = f"--{when}"

    def call(**given: Any) -> T | S:
        chosen, known = (usual, first) if given[when] is None else (other, second)
        for name in merged:
            if name not in known and given[name] != merged[name].default:
                how = f"needs {option}: give that too, or leave it out"
                how = how if chosen is usual else f"does not go with {option}: leave one of them out"
                raise ConfigError(f"--{name.replace('_', '-')} {how}.")
        return chosen(**{name: value for name, value in given.items() if name in known})

    names = [*first, *(name for name in second if name not in first)]
    parameters = [merged[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = hints
    return call


def _typer(hint: Any, metavar: str | None, word: str | None = None) -> Any:
    """The annotation that typer understands; a path may be text in Python, on the command line it is a path."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    kind, help = typing.get_args(hint)
    if Path in typing.get_args(kind):
        kind = Path | None if types.NoneType in typing.get_args(kind) else Path
    if metavar is not None:
        return Annotated[kind, typer.Argument(metavar=metavar, help=help)]
    return Annotated[kind, typer.Option(*([] if word is None else [word]), help=help)]
