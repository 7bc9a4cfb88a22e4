"""A check of MAT files before they are parsed.

SciPy's version 5 reader trusts the type codes in a file and looks them up in a table without asking how long it is, so
a damaged file can end the process. This walks the file's elements first (MAT-File Format, chapter 1): every element
must have a type that may stand where it stands, and must end within the one that holds it.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.files import reading
from pisa_capc.data.store.outside import RATIO, ROOM

HEADER = 128  # bytes
VERSION_5, VERSION_7_3 = 0x0100, 0x0200
MATRIX, COMPRESSED = 14, 15
NUMBERS = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13})  # int8 … uint64, single, double
TEXT = frozenset({16, 17, 18})  # UTF-8, UTF-16, UTF-32
CELL, STRUCT, OBJECT, CHARACTERS, SPARSE, FUNCTION, OPAQUE = 1, 2, 3, 4, 5, 16, 17
NUMERIC_CLASSES = frozenset({SPARSE, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
FLAGS, DIMENSIONS, NAME = 6, 5, 1  # types of a matrix's first three elements: uint32, int32, int8
DEEPEST = 16  # structs in structs


def is_hdf5(path: Path) -> bool:
    """Whether a file announces itself as version 7.3."""
    with reading(path, "a MAT file"), path.open("rb") as file:
        return _version(file.read(HEADER))[0] == VERSION_7_3


def _version(header: bytes) -> tuple[int | None, str]:
    """The version that a file's first bytes name, and the order of bytes in its numbers."""
    order = {b"IM": "<", b"MI": ">"}.get(header[126:])
    return (struct.unpack(f"{order}H", header[124:126])[0], order) if order else (None, "")


def check(path: Path, where: str) -> None:
    """Refuse what is neither a sound version 5 file nor announces itself as version 7.3."""
    with path.open("rb") as file:
        version, order = _version(file.read(HEADER))
        if version == VERSION_7_3:
            return
        if version != VERSION_5:
            raise DataError(f"{where}: not a MAT file of version 5 or 7.3: its header names neither.")
        content = file.read()
    try:
        _check_file(memoryview(content), order)
    except (ValueError, struct.error, zlib.error) as error:
        raise DataError(f"{where}: damaged MAT file ({error}). Save it again.") from error


def _check_file(content: memoryview, order: str) -> None:
    left = max(ROOM, RATIO * len(content))  # bytes that all variables together may unpack to
    while content:
        kind, body, content = _element(content, order, padded=False)
        if kind == COMPRESSED:
            unpacked = _unpacked(body, left)
            left -= len(unpacked)
            kind, body, rest = _element(memoryview(unpacked), order, padded=False)
            if rest:
                raise ValueError("more than one variable in a compressed element")
        if kind != MATRIX:
            raise ValueError(f"a variable of type {kind}")
        _check_matrix(body, order, 0)


def _unpacked(packed: memoryview, most: int) -> bytes:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(packed, most + 1)
    if len(content) > most:
        raise ValueError(f"a compressed element of {len(packed):,} bytes that unpacks to more than {most:,}")
    if not unpacker.eof:
        raise ValueError("a compressed element that is cut off")
    return content


def _check_matrix(content: memoryview, order: str, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels of structs or cells")
    if not content:  # an empty cell
        return
    parts = []
    while content:
        kind, body, content = _element(content, order)
        parts.append((kind, body))
    kinds = tuple(kind for kind, _ in parts)
    if kinds[0] != FLAGS or len(parts[0][1]) != 8:
        raise ValueError(f"an array that begins with an element of type {kinds[0]}")
    array_class = struct.unpack(f"{order}I", parts[0][1][:4])[0] & 0xFF
    if array_class != OPAQUE and (kinds[1:3] != (DIMENSIONS, NAME) or len(parts[1][1]) % 4):
        raise ValueError(f"an array whose size and name have types {kinds[1:3]}")
    if array_class in NUMERIC_CLASSES:
        allowed = NUMBERS
    elif array_class == CHARACTERS:
        allowed = NUMBERS | TEXT
    elif array_class in (CELL, STRUCT, OBJECT, FUNCTION, OPAQUE):
        allowed = NUMBERS | {MATRIX}
    else:
        raise ValueError(f"an array of class {array_class}")
    for kind, body in parts[1:]:
        if kind not in allowed:
            raise ValueError(f"an element of type {kind} in an array of class {array_class}")
        if kind == MATRIX:
            _check_matrix(body, order, depth + 1)


def _element(content: memoryview, order: str, padded: bool = True) -> tuple[int, memoryview, memoryview]:
    """Type and bytes of the first element, and what follows it; inside arrays, elements are padded to eight bytes."""
    first, second = struct.unpack(f"{order}II", content[:8])
    if first >> 16:  # a small element: both in one word, its bytes in the other
        kind, size, start, end = first & 0xFFFF, first >> 16, 4, 8
        if size > 4:
            raise ValueError(f"a small element of {size} bytes")
    else:
        kind, size, start = first, second, 8
        end = 8 + (-(-size // 8) * 8 if padded else size)
    if start + size > len(content):
        raise ValueError(f"an element of {size} bytes where {len(content) - start} are left")
    return kind, content[start : start + size], content[end:]
