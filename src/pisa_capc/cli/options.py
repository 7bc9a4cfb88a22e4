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

S = TypeVar("S")
T = TypeVar("T")
Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


def options_of(
    function: Callable[..., T], arguments: Mapping[str, str] | None = None, without: tuple[str, ...] = ()
) -> Decorator:
    """A command that calls `function` with what is given on the line, and then the decorated with its result.

    Every parameter of `function` that is annotated `Annotated[type, "help"]` becomes an option, or an argument where
    `arguments` gives it a metavar; one whose default is an option of typer stays that. The decorated takes the result
    first, and options of its own.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    named = arguments or {}
    theirs = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=_typer(hints[name], named.get(name)))
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


def _typer(hint: Any, metavar: str | None) -> Any:
    """The annotation that typer understands; a path may be text in Python, on the command line it is a path."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    kind, help = typing.get_args(hint)
    if Path in typing.get_args(kind):
        kind = Path | None if types.NoneType in typing.get_args(kind) else Path
    if metavar is not None:
        return Annotated[kind, typer.Argument(metavar=metavar, help=help)]
    return Annotated[kind, typer.Option(help=help)]


HeldOut = typer.Option(
    "random",
    help="Validation frames of a recording: random, as published, or block, one block of time with a gap on either "
    "side, so that neighbours are not in both parts.",
)
