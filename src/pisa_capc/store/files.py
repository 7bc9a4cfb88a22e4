"""Files that are whole or not there, and errors that name the file."""

from __future__ import annotations

import errno
import os
import re
import string
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pisa_capc.errors import ConfigError, DataError, PisaError, unknown_name
from pisa_capc.store.outside import files_under

FIELDS = ("environment", "device", "capture")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`: renamed to it when the block ends well, removed when it does not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        # h5py cannot close a file on a full disk either, and its RuntimeError then hides the cause.
        cause = error.__context__ if isinstance(error, RuntimeError) and error.__context__ is not None else error
        reason = os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else cause
        full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "Free space and run again: what is whole is kept." if full else "Choose another place to write to."
        raise DataError(f"{path}: cannot be written ({reason}). {advice}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text_atomic(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the whole new one."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_stale(folder: Path) -> None:
    """Remove temporary files whose writer was killed; those of a living process are left to it."""
    for path in folder.rglob(".*.tmp"):
        writer = path.name.split(".")[-2]
        if writer.isdecimal() and not _alive(int(writer)):
            with suppress(OSError):
                path.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


@contextmanager
def reading(path: Path | str, expected: str) -> Iterator[None]:
    """Turn whatever a parser raises on a damaged or foreign file into one error that names the file.

    Parsers of foreign formats raise anything from struct.error to MemoryError on damaged bytes, so nothing is let by.
    """
    try:
        yield
    except PisaError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        if "pickle" in reason:  # NumPy's message recommends unpickling, which is never done here
            reason = "not plain arrays"
        raise DataError(f"{path}: cannot be read ({type(error).__name__}: {reason}). Expected {expected}.") from error


def new_folder(path: Path) -> None:
    """Refuse an output folder that already holds something."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise DataError(f"{path}: exists and is not an empty folder. Choose another --out, or remove it.")


def new_file(path: Path) -> None:
    """Refuse an output file that already exists."""
    if path.exists():
        raise DataError(f"{path}: exists. Choose another --out, or remove it.")


def find_captures(source: Path, pattern: str, defaults: dict[str, str]) -> list[tuple[Path, dict[str, str]]]:
    """Files under `source` whose relative path fits `pattern`, with the fields that it names, in sorted order.

    A field that the pattern does not have takes its default. `{device}` may stand alone: "{device}.mat".
    """
    if not source.is_dir():
        raise DataError(f"{source}: is not a folder. Expected the folder that holds the captures' files.")
    expression = re.compile(_expression(pattern))
    found = []
    files = sorted(path.relative_to(source).as_posix() for path in files_under(source))
    for name in files:
        if match := expression.fullmatch(name):
            found.append((source / name, {**defaults, **match.groupdict()}))
    if not found:
        there = f"the first of {len(files)} files is {files[0]}" if files else "it holds no files"
        raise DataError(f"{source}: no file fits the pattern {pattern!r}; {there}. Give --pattern.")
    return found


def fill(pattern: str, captures: Iterable[tuple[str, str, str]]) -> list[str]:
    """The path that `pattern` gives each capture (environment, device, capture); no two may share one."""
    _expression(pattern)
    paths: dict[str, tuple[str, str, str]] = {}
    for names in captures:
        path = pattern.format(**dict(zip(FIELDS, names, strict=True)))
        if path in paths:
            raise ConfigError(
                f"--pattern {pattern!r} gives {'/'.join(paths[path])} and {'/'.join(names)} the same file {path}. "
                "Name every field in which captures differ."
            )
        paths[path] = names
    return list(paths)


def _expression(pattern: str) -> str:
    parts: list[str] = []
    seen: set[str] = set()
    try:
        for text, field, _, _ in string.Formatter().parse(pattern):
            parts.append(re.escape(text))
            if field is None:
                continue
            if field not in FIELDS:
                raise ConfigError(f"--pattern {pattern!r}: " + unknown_name("field", field, FIELDS))
            parts.append(f"(?P={field})" if field in seen else f"(?P<{field}>[^/]+)")
            seen.add(field)
    except ValueError as error:
        raise ConfigError(f"--pattern {pattern!r}: {error}. Expected text with {{environment}} etc.") from error
    return "".join(parts)
