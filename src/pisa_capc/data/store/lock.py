"""One runner at a time in a folder."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from pisa_capc.core.errors import DataError

_held: Counter[Path] = Counter()  # folders that this process holds, and how often


@contextmanager
def only_runner(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the folder. The system lets go of it when the process ends, however it ends, so no lock outlives its runner.

    The file `.lock` says who holds it, and is gone afterwards. A process that holds a folder may hold it again inside.
    wait: for another runner to let go, instead of refusing.
    """
    here = folder.resolve()
    if _held[here]:
        _held[here] += 1
        try:
            yield
        finally:
            _held[here] -= 1
        return
    path = folder / ".lock"
    with _locked(path, wait):
        _held[here] += 1
        try:
            yield
        finally:
            _held[here] -= 1
            with suppress(OSError):
                path.unlink()  # while it is held: who waits for it finds that out, and takes the next


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    import fcntl  # not on every system, and needed by runners alone

    while True:
        with _opened(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                file.seek(0)
                raise DataError(
                    f"{path.parent}: another runner is at work here ({file.read().strip() or 'unknown'}). "
                    "Wait for it, or choose another folder."
                ) from error
            if not _is_at(file, path):  # the runner before has removed it meanwhile
                continue
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}\n")
            file.flush()
            yield
            return


def _opened(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path.parent}: cannot be written ({error.strerror}). Choose another folder.") from error


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        there, here = os.stat(path), os.fstat(file.fileno())
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
