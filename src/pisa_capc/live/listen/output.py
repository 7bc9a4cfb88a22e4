"""Events as lines of JSON: to standard output, or into a file that is exchanged before it grows too large."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from pisa_capc.core.errors import DataError


class Line(Protocol):
    def to_json(self) -> dict[str, Any]: ...


class Lines:
    """Writes a line for each event at once. path: None for standard output. A file of `most_bytes` becomes FILE.1, that
    one FILE.2, and so on, up to FILE.`kept`.

    Where a file cannot be written, as on a full disk, `note` hears of it, and lines are left out until it can be.
    """

    def __init__(
        self,
        path: Path | None,
        most_bytes: int = 100 << 20,
        kept: int = 5,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._path, self._most, self._kept, self._note = path, most_bytes, kept, note
        self._file: BinaryIO | None = None if path is None else self._opened(path)
        self._left_out = 0  # lines since the last one that was written
        self._cut = False  # whether the file ends within a line

    def write(self, event: Line) -> None:
        line = json.dumps(event.to_json()) + "\n"  # as ASCII: some readers end lines at other characters
        if self._path is None:
            sys.stdout.write(line)
            sys.stdout.flush()
            return
        try:
            self._append(self._path, line.encode())
        except OSError as error:
            if not self._left_out:
                self._note(f"{self._path}: cannot be written ({error.strerror}); lines are left out until it can be.")
            self._left_out += 1

    def _append(self, path: Path, line: bytes) -> None:
        if self._file is None:
            self._file = path.open("ab", buffering=0)
        data = b"\n" * self._cut + line
        written = self._file.write(data)
        self._cut = 0 < written < len(data)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._left_out:
            self._note(f"{path}: is written again; {self._left_out:,} lines were left out.")
            self._left_out = 0
        if self._file.tell() >= self._most:
            self._rotate(path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _rotate(self, path: Path) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None  # should the next one not open
        for number in range(self._kept, 0, -1):
            older = path if number == 1 else _numbered(path, number - 1)
            if older.exists():
                os.replace(older, _numbered(path, number))
        self._file = path.open("ab", buffering=0)

    @staticmethod
    def _opened(path: Path) -> BinaryIO:
        """To be written on; a line that was cut when a listener was killed is ended first."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
            return path.open("ab", buffering=0)
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror}). Choose another place.") from error


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
