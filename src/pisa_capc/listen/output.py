"""Events as lines of JSON: to standard output, or into a file that is exchanged before it grows too large."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TextIO

from pisa_capc.errors import DataError
from pisa_capc.listen.events import Event


class Lines:
    """Writes a line for each event at once. path: None for standard output. A file of `most_bytes` becomes FILE.1, that
    one FILE.2, and so on, up to FILE.`kept`."""

    def __init__(self, path: Path | None, most_bytes: int = 100 << 20, kept: int = 5) -> None:
        self._path, self._most, self._kept = path, most_bytes, kept
        self._file: TextIO = sys.stdout if path is None else self._opened(path)

    def write(self, event: Event) -> None:
        self._file.write(json.dumps(event.to_json()) + "\n")  # as ASCII: some readers end lines at other characters
        self._file.flush()
        if self._path is not None and self._file.tell() >= self._most:
            self._rotate(self._path)

    def close(self) -> None:
        if self._path is not None:
            self._file.close()

    def _rotate(self, path: Path) -> None:
        self._file.close()
        for number in range(self._kept, 0, -1):
            older = path if number == 1 else _numbered(path, number - 1)
            if older.exists():
                os.replace(older, _numbered(path, number))
        self._file = self._opened(path)

    @staticmethod
    def _opened(path: Path) -> TextIO:
        """To be written on; a line that was cut when a listener was killed is ended first."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
            return path.open("a", encoding="utf-8")
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror}). Choose another --out.") from error


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
