"""One runner at a time in a folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pisa_capc.errors import DataError


@contextmanager
def only_runner(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the folder. The system lets go of it when the process ends, however it ends, so no lock outlives its runner.

    The file `.lock` stays; it says who was last. wait: for another runner to let go, instead of refusing.
    """
    import fcntl  # not on every system, and needed by runners alone

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror}). Choose another folder.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            file.seek(0)
            raise DataError(
                f"{folder}: another runner is at work here ({file.read().strip() or 'unknown'}). "
                "Wait for it, or choose another folder."
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        yield
