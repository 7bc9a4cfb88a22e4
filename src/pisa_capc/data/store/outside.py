"""Files from outside: bounded before they are unpacked, and nothing left out silently."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError

ROOM = 256 << 20  # bytes that anything may unpack to
RATIO = 100  # beyond it, bytes for each byte of the file: samples do not shrink to a hundredth
PIECE = 1 << 20


def check_unpacked(unpacked: int, stored: int, what: str) -> None:
    """Refuse a file that would fill the memory, by its own header. stored, unpacked: bytes."""
    if unpacked > max(ROOM, RATIO * stored):
        raise DataError(
            f"{what} would unpack {stored:,} bytes to {unpacked:,}; expected at most {RATIO} times as many. "
            "Store it without compression if that is what it holds."
        )


def files_under(folder: Path, suffix: str = "", deep: bool = True) -> list[Path]:
    """The files in a folder, and in those inside it where `deep`, whose names end so, sorted by their paths.

    A folder that may not be read is an error; what is in it would be left out.
    """
    found: list[Path] = []
    for here, folders, names in os.walk(folder, onerror=_unreadable):
        try:
            found += [path for name in names if name.endswith(suffix) and (path := Path(here, name)).is_file()]
        except OSError as error:  # a folder whose names may be read, and nothing else
            _unreadable(error)
        if not deep:
            folders.clear()
    return sorted(found)


def _unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror}), so what is in it would be left out. "
            "Give yourself permission to read it, or move it elsewhere."
        ) from error


def read_arrays(path: Path, wanted: Iterable[str] | None = None, optional: str = "") -> dict[str, NDArray[Any]]:
    """Those arrays of an .npz archive that are wanted, or begin with `optional`; nothing is ever unpickled.

    Each must be exactly as long as its header says, and match the archive's checksum.
    """
    with zipfile.ZipFile(path) as archive:
        chosen = {
            name: member
            for name, member in array_members(archive).items()
            if wanted is None or name in wanted or (optional and name.startswith(optional))
        }
        check_unpacked(sum(m.file_size for m in chosen.values()), path.stat().st_size, f"{path}: the archive")
        arrays = {}
        for name, member in chosen.items():
            with archive.open(member) as file:
                shape, fortran, dtype = read_header(file, member, f"{path}: {name}")
                values = np.frombuffer(file.read(), dtype)
                arrays[name] = values.reshape(shape, order="F" if fortran else "C").copy()
    return arrays


def array_members(archive: zipfile.ZipFile) -> Mapping[str, zipfile.ZipInfo]:
    """The arrays of an archive by name, each once."""
    for member in archive.infolist():
        archive.open(member).close()  # its name in the list must be the one that stands before its content
    members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
    found = {member.filename.removesuffix(".npy"): member for member in members}
    if len(found) != len(members):
        raise DataError("it holds two arrays of one name; expected one")
    return found


def read_header(file: IO[bytes], member: zipfile.ZipInfo, what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and type of an array in an archive, which must be as long as these say."""
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise DataError(f"{what} is stored in version {version} of NumPy's format; expected 1.0 or 2.0.")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise DataError(f"{what} holds Python objects; expected numbers. Nothing is unpickled here.")
    size = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
    if any(n < 0 for n in shape) or size != member.file_size - file.tell():
        raise DataError(
            f"{what} {shape} of {dtype} needs {size:,} bytes; the archive has {member.file_size - file.tell():,}."
        )
    return shape, fortran, dtype


def check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Read a member once, piece by piece, so that its checksum is compared."""
    with archive.open(member) as file:
        while file.read(PIECE):
            pass
