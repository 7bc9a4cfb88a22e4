"""Files that are complete or absent, and errors that name the file."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import secrets
import shutil
import socket
import string
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from pisa_capc.core.config import LONGEST, parse_json
from pisa_capc.core.errors import ConfigError, DataError, PisaError, unknown_name
from pisa_capc.data.store.outside import files_under

FIELDS = ("environment", "device", "capture")
STALE_S = 7 * 24 * 3600.0
UNREACHABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`: renamed to it when the block ends well, removed when it does not.

    What a killed writer had begun beside it is removed.
    """
    temporary = path.with_name(f".{path.name[:40]}.{writer_mark()}.tmp")
    try:
        check_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_begun(path)
        yield temporary
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        # h5py cannot close a file on a full disk either, and its RuntimeError then hides the cause.
        cause = error.__context__ if isinstance(error, RuntimeError) and error.__context__ is not None else error
        reason = os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else cause
        full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "Free space and run again." if full else "Choose another place to write to."
        raise DataError(f"{path}: cannot be written ({reason}). {advice}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary place for a folder or file that is to be at `path`: in the end all of it is there, or nothing.

    path: new, or an empty folder. What a killed writer had begun beside it is removed. A folder that is there may be a
    mount, whose place nothing can take: it is written into, and emptied where that fails.
    """
    new_folder(path)
    path = path.absolute()
    place = path if path.exists() else path.with_name(f".{path.name[:40]}.{writer_mark()}.tmp")
    try:
        if place != path:
            _remove_begun(path)
        yield place
        if place != path:
            os.replace(place, path)
    except BaseException as error:
        for left in list(path.iterdir()) if place == path else [place]:
            _remove(left)
        if isinstance(error, OSError):
            raise DataError(
                f"{path}: cannot be written ({error.strerror}). Choose another place to write to."
            ) from error
        if isinstance(error, DataError):  # it names a place that is gone now
            raise DataError(str(error).replace(str(place), str(path))) from error
        raise


def _remove_begun(path: Path) -> None:
    """What killed writers of `path` had begun."""
    for left in path.parent.glob(f".{glob.escape(path.name[:40])}.*.tmp"):
        with suppress(OSError):
            if _is_stale(left):
                _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def bytes_text(size: float) -> str:
    """A number of bytes for people.

    >>> bytes_text(3.4e6), bytes_text(1.25e9), bytes_text(12)
    ('3.4 MB', '1.2 GB', '12 bytes')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} bytes"


def check_replaceable(path: Path) -> None:
    """Refuse to replace a folder, a device or a pipe by a file."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device, a pipe or the like"
        raise DataError(f"{path}: is {kind}; only plain files are replaced. Give the name of a file.")


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse an output file that exists, unless it is to be replaced and can be."""
    check_replaceable(path)
    if path.exists() and not force:
        raise DataError(f"{path} exists already; give another name or --force to replace it.")


def read_json(path: Path) -> Any:
    """The value in a JSON file; ValueError where it is none, or goes beyond what a description may be."""
    if path.stat().st_size > LONGEST["JSON"]:
        raise ValueError(f"{path.stat().st_size:,} bytes; expected at most {LONGEST['JSON']:,}")
    return parse_json(path.read_text(encoding="utf-8"))


def write_text_atomic(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the whole new one."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def writer_mark() -> str:
    """A unique name for a writer in a shared folder: its machine, its process and a random part."""
    return f"{_here()}-{os.getpid()}-{secrets.token_hex(4)}"


@cache
def _here() -> str:
    """Names the machine, or the container, in which process numbers count."""
    known = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):
            known.append(os.readlink(path) if os.path.islink(path) else Path(path).read_text())
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]


def remove_stale(folder: Path) -> None:
    """Remove temporary files whose writer was killed; those of a living process are left to it.

    Who lives on another machine cannot be known, so what was begun there is removed when it is a week old.
    """
    for path in folder.rglob(".*.tmp"):
        with suppress(OSError):
            if _is_stale(path):
                path.unlink()


def _is_stale(path: Path) -> bool:
    """Whether no process works on this temporary file any more."""
    *place, process = path.name.split(".")[-2].rsplit("-", 1)[0].split("-")  # files of earlier versions: a number
    if not process.isdecimal():
        return False
    return not _alive(int(process)) if place in ([], [_here()]) else path.stat().st_mtime < time.time() - STALE_S


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return not _has_ended(process)


def _has_ended(process: int) -> bool:
    """Whether a process is over and only waits to be taken note of, which in a container may take a while."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z"
    return False


@contextmanager
def reading(path: Path | str, expected: str) -> Iterator[None]:
    """Turn any error of a parser on a damaged or foreign file into one that names the file.

    Parsers of foreign formats raise anything from struct.error to MemoryError on damaged bytes, so nothing is let by.
    """
    try:
        yield
    except PisaError:
        raise
    except Exception as error:
        if unreachable(error):
            raise cannot_be_read(path, error) from error
        reason = " ".join(str(error).split())
        if "pickle" in reason:  # NumPy's message recommends unpickling, which is never done here
            reason = "not plain arrays"
        raise DataError(f"{path}: cannot be read ({type(error).__name__}: {reason}). Expected {expected}.") from error


def unreachable(error: BaseException) -> bool:
    """Whether an error says nothing about a file but that it cannot be got at now."""
    return isinstance(error, OSError) and error.errno in UNREACHABLE


def cannot_be_read(path: Path | str, error: BaseException, kind: type[PisaError] = DataError) -> PisaError:
    """A file that may be intact, so the message does not advise to remove it."""
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return kind(f"{path}: cannot be read ({reason}). It may be good: see who may read it and where it is.")


def new_folder(path: Path) -> None:
    """Refuse an output folder that already holds something, but for what a killed writer had begun there."""
    if path.is_dir() and all(inside.name.endswith(".tmp") for inside in path.iterdir()):
        remove_stale(path)
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


def fields_of(pattern: str) -> tuple[str, ...]:
    """The fields that a pattern names, each once."""
    return tuple(re.compile(_expression(pattern)).groupindex)


def named_by(path: Path, pattern: str) -> dict[str, str]:
    """The fields that `pattern` finds at the end of a path.

    >>> named_by(Path("/data/roof/D03/noon.cs16"), "{environment}/{device}/{capture}.cs16")["device"]
    'D03'
    """
    match = re.search(f"(?:^|/){_expression(pattern)}$", path.absolute().as_posix())
    if match is None:
        raise DataError(f"{path}: does not fit the pattern {pattern!r}. Correct --pattern.")
    return match.groupdict()


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
