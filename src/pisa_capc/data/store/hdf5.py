"""Checks of HDF5 files from outside, before they are trusted.

HDF5 follows links to other files and reads samples from them; arrays may announce more than any memory holds; and on a
damaged file the library can go on for ever without answering Ctrl-C. So a process of its own walks through the whole
file and reads all of it once, and is ended when it takes too long. This file is what that process runs: it imports
nothing of the package.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import h5py
import numpy as np

DEEPEST = 64  # groups in groups
ROOM, RATIO = 256 << 20, 100  # as in `outside`
PIECE = 4 << 20  # bytes that are read at a time


def link_problem(group: Any, name: str) -> str:
    """Why a link is not to something that lies in the file itself, or nothing."""
    kind = group.id.links.get_info(name.encode()).type
    if kind != h5py.h5l.TYPE_HARD:
        found = {h5py.h5l.TYPE_SOFT: "a soft link", h5py.h5l.TYPE_EXTERNAL: "a link to another file"}
        return f"{name} is {found.get(kind, 'a link')}; expected an array in the file itself"
    return stored_outside(group[name], name)


def stored_outside(found: Any, name: str) -> str:
    """Why the numbers of an array do not lie in its file, or nothing."""
    if isinstance(found, h5py.Dataset):
        created = found.id.get_create_plist()
        if created.get_external_count():
            return f"{name} has its numbers in another file; expected them in the file itself"
        if created.get_layout() == h5py.h5d.VIRTUAL:
            return f"{name} is put together from other arrays; expected its numbers in the file itself"
    return ""


def has_heap(file: Any, attribute: str) -> bool:
    """Whether an attribute is text of variable length, which lies in a heap of the file."""
    name = attribute.encode()
    if not h5py.h5a.exists(file.id, name):
        return False
    kind = h5py.h5a.open(file.id, name).get_type()
    return isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()


def check_heaps(path: str, samples: range) -> None:
    """Refuse a file in whose heaps the library would go on for ever: at an object without a number and without a size.

    samples: the bytes of the file that are samples, in which nothing is looked for.
    """
    with open(path, "rb") as file:
        content = file.read(samples.start)
        file.seek(samples.stop)
        content += bytes(8) + file.read()
    start = content.find(b"GCOL")
    while start >= 0:
        at, end = start + 16, start + int.from_bytes(content[start + 8 : start + 16], "little")
        while at + 16 <= min(end, len(content)):
            number = int.from_bytes(content[at : at + 2], "little")
            size = int.from_bytes(content[at + 8 : at + 16], "little")
            if not number:  # the rest is free, and counts this header
                if size < 16:
                    raise ValueError("a heap that is damaged")
                break
            at += 16 + -(-size // 8) * 8
        start = content.find(b"GCOL", start + 1)


def look(path: str) -> None:
    """Read everything in a file once; ValueError where something should not be read by anybody."""
    left = max(ROOM, RATIO * os.path.getsize(path))
    seen: set[int] = set()

    def visit(found: Any, name: str, depth: int) -> None:
        nonlocal left
        if problem := stored_outside(found, name):
            raise ValueError(problem)
        address = h5py.h5o.get_info(found.id).addr
        if address in seen:
            return
        seen.add(address)
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} groups in groups")
        dict(found.attrs)
        if isinstance(found, h5py.Group):
            for inner in found:
                if problem := link_problem(found, inner):
                    raise ValueError(problem)
                visit(found[inner], inner, depth + 1)
        elif isinstance(found, h5py.Dataset) and found.shape is not None:
            chunk = int(np.prod(found.chunks or (0,), dtype=object)) * found.dtype.itemsize
            size = max(int(np.prod(found.shape, dtype=object)) * found.dtype.itemsize, chunk)
            left -= size
            if left < 0:
                raise ValueError(
                    f"{name} {found.shape} would unpack to {size:,} bytes; the file has {os.path.getsize(path):,}"
                )
            for values in _pieces(found):
                if h5py.check_ref_dtype(found.dtype) is h5py.Reference:
                    for reference in np.ravel(values):
                        if reference:
                            visit(found.file[reference], f"what {name} refers to", depth + 1)

    with h5py.File(path, "r") as file:
        visit(file, "/", 0)


def _pieces(array: Any) -> Any:
    if not array.shape:
        yield array[()]
        return
    row = max(1, int(np.prod(array.shape[1:], dtype=object)) * array.dtype.itemsize)
    step = max(1, PIECE // row)
    for start in range(0, array.shape[0], step):
        yield array[start : start + step]


def main() -> None:
    """One path as JSON per line in, one answer per line out: null, or [kind of error, message]."""
    for line in sys.stdin:
        try:
            look(json.loads(line))
            answer = None
        except Exception as error:
            answer = [type(error).__name__, " ".join(str(error).split())]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
