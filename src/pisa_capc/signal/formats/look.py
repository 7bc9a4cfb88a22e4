"""HDF5 files of others are first read by a process that can be ended; see `data/store/hdf5.py`."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pisa_capc.core.errors import DataError
from pisa_capc.data.store import hdf5

LIMIT_S = 30.0  # for a file, besides a second for every
BYTES_PER_S = 5e6  # that it holds


def look_at(files: Mapping[Path, str], expected: str) -> None:
    """Refuse HDF5 files that are damaged, or lead to other files, or would fill the memory; by name, for messages."""
    if not files:
        return
    # -P: the folder of the program is not a place to import from.
    reader = subprocess.Popen(
        [sys.executable, "-P", hdf5.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        for path, name in files.items():
            _look_at(reader, path, name, expected)
    finally:
        reader.kill()
        reader.communicate()


def _look_at(reader: subprocess.Popen[bytes], path: Path, name: str, expected: str) -> None:
    assert reader.stdin is not None
    assert reader.stdout is not None
    try:
        size = path.stat().st_size
        reader.stdin.write(json.dumps(str(path)).encode() + b"\n")
        reader.stdin.flush()
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}). Expected {expected}.") from error
    limit_s = LIMIT_S + size / BYTES_PER_S
    if not select.select([reader.stdout], [], [], limit_s)[0]:
        raise DataError(
            f"{name}: damaged (reading it did not end within {limit_s:.0f} s). Expected {expected}. Copy it again."
        )
    answer = reader.stdout.readline()
    if not answer:
        raise DataError(f"{name}: damaged (reading it ended the program that read it). Expected {expected}.")
    if (problem := json.loads(answer)) is not None:
        kind, message = problem
        found = message if kind == "ValueError" else f"{kind}: {message}"
        raise DataError(f"{name}: cannot be read ({found}). Expected {expected}.")
