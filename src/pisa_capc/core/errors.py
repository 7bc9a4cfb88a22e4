"""Errors a user can act on.

Every message says what was found, what was expected and what to do. The command line prints these without a
traceback and exits with a non-zero code; anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class PisaError(Exception):
    """Base of all errors caused by input rather than by a bug."""


class DataError(PisaError):
    """A file, folder or array does not hold what it should."""


class ConfigError(PisaError):
    """A setting is unknown or out of range."""


class ModelError(PisaError):
    """A saved model cannot be used here, or a training cannot go on."""


class SealError(PisaError):
    """A file lacks the digest or the signature by which it is known to be what was written."""


class PluginError(PisaError):
    """A plugin cannot be loaded, or is not the one that was asked for."""


class MissingExtraError(PisaError):
    """An optional package is needed and absent."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}: pip install 'pisa-capc[{extra}]'")


def unknown_name(kind: str, name: object, known: Iterable[object]) -> str:
    """Message for a name that is not among `known`, naming the nearest one. In YAML a name may be a number."""
    choices = sorted(map(str, known))
    near = get_close_matches(str(name), choices, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(choices)}."
