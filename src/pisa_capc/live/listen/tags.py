"""The header that GNU Radio's ZMQ sinks put before the samples of a message when they pass tags on.

    magic 0x5FF0 (u16) · version 1 (u8) · offset of the first item (u64) · number of tags (u64)     little-endian
    and for each tag: offset (u64) · key · value · source, serialised PMTs                          PMTs big-endian

The offset is what makes lost messages known. Tags themselves are only skipped.
"""

from __future__ import annotations

import struct

from pisa_capc.core.errors import DataError

MAGIC, VERSION = 0x5FF0, 1
FIXED = struct.Struct("<HBQQ")
MOST_TAGS = 4096
MOST_PARTS = 1 << 16  # of all PMTs in a header

# By the first byte of a PMT: how many bytes follow, where that is always the same.
_PLAIN = {0x00: 0, 0x01: 0, 0x03: 4, 0x04: 8, 0x05: 16, 0x06: 0, 0x0B: 8, 0x0D: 8}
_SYMBOL, _PAIR, _VECTOR, _DICT, _UNIFORM, _TUPLE = 0x02, 0x07, 0x08, 0x09, 0x0A, 0x0C
_ELEMENT = (1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16)  # bytes, by the kind of a uniform vector


def has_header(message: memoryview) -> bool:
    """Whether a message begins as those with a header do."""
    return len(message) >= FIXED.size and FIXED.unpack_from(message)[:2] == (MAGIC, VERSION)


def parse_header(message: memoryview) -> tuple[int, int]:
    """(the offset of the first item, where the items begin); DataError where there is no such header."""
    if not has_header(message):
        raise DataError("a message without the header of a sink that passes tags.")
    _, _, offset, tags = FIXED.unpack_from(message)
    if tags > MOST_TAGS:
        raise DataError(f"a header with {tags:,} tags; expected at most {MOST_TAGS:,}.")
    at = FIXED.size
    try:
        for _ in range(tags):
            at = _after(message, at + 8, 3)
    except (struct.error, IndexError) as error:
        raise DataError("a header that ends within its tags.") from error
    if at > len(message):
        raise DataError("a header that ends within its tags.")
    return offset, at


def _after(data: memoryview, at: int, wanted: int) -> int:
    """Where `wanted` PMTs that begin at `at` end. Lists may be long and deep, so nothing is recursive."""
    for _ in range(MOST_PARTS):
        if not wanted:
            return at
        kind, at, wanted = data[at], at + 1, wanted - 1
        if kind in _PLAIN:
            at += _PLAIN[kind]
        elif kind == _SYMBOL:
            at += 2 + struct.unpack_from(">H", data, at)[0]
        elif kind in (_PAIR, _DICT):
            wanted += 2
        elif kind in (_VECTOR, _TUPLE):
            wanted += struct.unpack_from(">I", data, at)[0]
            at += 4
        elif kind == _UNIFORM:
            element, count, padding = struct.unpack_from(">BIB", data, at)
            at += 6 + padding + count * _ELEMENT[element & 0x7F]
        else:
            raise DataError(f"a header with a tag of an unknown kind, {kind}.")
    raise DataError(f"a header whose tags have more than {MOST_PARTS:,} parts.")
