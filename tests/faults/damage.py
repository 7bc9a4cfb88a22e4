"""Damaged copies of a file: what disks, cables and people do to it, drawn the same way for the same seed."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pisa_capc.data.store.seal import KEY, sealed

Rng = np.random.Generator
DEEP = 5000  # brackets in one another


def damaged(content: bytes, kind: str, rng: Rng) -> tuple[str, bytes]:
    """What was done, and the content after it. kind: of the file, for nonsense that is well-formed in it."""
    ways: list[tuple[str, Callable[[bytearray, Rng], bytearray]]] = [
        ("flip", _flip),
        ("flip", _flip),
        ("cut", _cut),
        ("zero", _zero),
        ("huge", _huge),
        ("move", _move),
    ]
    choice = int(rng.integers(len(ways) + 2))
    if choice >= len(ways):
        return "nonsense", NONSENSE[kind](content, rng)
    name, change = ways[choice]
    return name, bytes(change(bytearray(content), rng))


def _place(content: bytearray, rng: Rng) -> int:
    """Half of the damage goes to the beginning, where headers are."""
    most = len(content) if rng.random() < 0.5 else max(1, min(len(content), 4096, len(content) // 4))
    return int(rng.integers(most))


def _flip(content: bytearray, rng: Rng) -> bytearray:
    for _ in range(int(rng.integers(1, 7))):
        content[_place(content, rng)] ^= 1 << int(rng.integers(8))
    return content


def _cut(content: bytearray, rng: Rng) -> bytearray:
    return content[: int(rng.integers(len(content)))]


def _zero(content: bytearray, rng: Rng) -> bytearray:
    start, size = _place(content, rng), int(rng.choice([4, 12, 64, 512]))
    content[start : start + size] = bytes(len(content[start : start + size]))
    return content


def _huge(content: bytearray, rng: Rng) -> bytearray:
    """A whole number of the file becomes one that no size, count or offset can be."""
    start = _place(content, rng) // 4 * 4
    word = struct.pack("<Q", int(rng.choice([2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1])))[
        : int(rng.choice([4, 8]))
    ]
    content[start : start + len(word)] = word
    return content


def _move(content: bytearray, rng: Rng) -> bytearray:
    """A block lies where another should."""
    size = int(rng.choice([8, 64, 512]))
    start, end = _place(content, rng), _place(content, rng)
    content[start : start + size] = content[end : end + size]
    return content


def _odd(rng: Rng) -> Any:
    """A value that is well-formed and nobody means."""
    deep: Any = 0
    for _ in range(int(rng.choice([70, 120]))):
        deep = [deep]
    odd: list[Any] = [
        None,
        -1,
        0,
        2**62,
        10**400,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x" * 10_000,
        "\x1b[2J",
        "../../x",
        "\ud800",
    ]
    odd += [True, [], {}, [[]], {"": {}}, [0] * 1000, deep]
    return odd[int(rng.integers(len(odd)))]


def _replaced(value: Any, rng: Rng) -> Any:
    """The value with something in it replaced, removed or added."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return _odd(rng)
    if isinstance(value, dict):
        key = list(value)[int(rng.integers(len(value)))]
        action = rng.random()
        if action < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if action < 0.15:
            return {**value, "nobody knows this": _odd(rng)}
        return {**value, key: _replaced(value[key], rng)}
    i = int(rng.integers(len(value)))
    return [*value[:i], _replaced(value[i], rng), *value[i + 1 :]]


def _json(content: bytes, rng: Rng) -> bytes:
    """JSON that is no description; half of those that have a seal get a good one again."""
    if rng.random() < 0.15:
        return rng.choice([b"[" * DEEP, b'{"a":' * DEEP, b"1" * 10_000, b"null", b"[]", b'"x"', b"\xff\xfe{}"])
    values = _replaced(json.loads(content), rng)
    if isinstance(values, dict) and KEY in values and rng.random() < 0.5:
        values = sealed(values)
    return json.dumps(values).encode()


def _yaml(content: bytes, rng: Rng) -> bytes:
    import yaml

    if rng.random() < 0.3:
        names = "abcdefghi"
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{now}: &{now} [{', '.join([f'*{before}'] * 9)}]\n" for before, now in pairwise(names)
        )
        odd = [b"[" * DEEP, b"{a: " * DEEP, b"- " * DEEP, bomb.encode(), b"a: &a [*a]", b"!!python/object:os.system {}"]
        extra = [b"\nseed: " + b"9" * 5000 + b"\n", b"\n? [a]\n: b\n", b"\n<<: [1]\n"]
        return (
            odd[int(rng.integers(len(odd)))] if rng.random() < 0.7 else content + extra[int(rng.integers(len(extra)))]
        )
    return yaml.safe_dump(_replaced(yaml.safe_load(content), rng), allow_unicode=True).encode()


def _lines(content: bytes, rng: Rng) -> bytes:
    lines = content.splitlines()
    i = int(rng.integers(len(lines)))
    lines[i] = json.dumps(_replaced(json.loads(lines[i]), rng)).encode() if rng.random() < 0.8 else b"[" * DEEP
    return b"\n".join(lines) + b"\n"


def _hdf5(content: bytes, rng: Rng) -> bytes:
    """An array of the file is another: huge, empty, a link, of texts, in a deep tree."""
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as opened:
        names: list[str] = []
        opened.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        name = names[int(rng.integers(len(names)))]
        shape = opened[name].shape
        way = int(rng.integers(7))
        del opened[name]
        if way == 0:
            opened.create_dataset(name, (2**40, *shape[1:]), "f4", chunks=(1, *shape[1:]))
        elif way == 1:
            opened.create_dataset(name, (0, *shape[1:]), "f4")
        elif way == 2:
            opened[name] = h5py.ExternalLink("other.h5", "/iq")
        elif way == 3:
            opened[name] = h5py.SoftLink(f"/{name}")
        elif way == 4:
            opened[name] = ["text"] * 3
        elif way == 5:
            opened.create_group("/".join([name] * 300))
        else:
            opened.create_dataset(name, shape, "f8", fillvalue=np.nan)
    return file.getvalue()


def _zip(content: bytes, rng: Rng) -> bytes:
    """An array of the archive is another: its header lies, it unpacks to much, it is pickled or there twice."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = list(members)[int(rng.integers(len(members)))]
    way, out = int(rng.integers(6)), io.BytesIO()
    if way == 1:
        return _bomb(content, name)
    with zipfile.ZipFile(out, "w") as archive:
        for other, value in members.items():
            if other != name:
                archive.writestr(other, value)
        if way == 0:
            archive.writestr(name, members[name].replace(b"'shape': (", b"'shape': (99999999999,", 1))
        elif way == 2:
            file = io.BytesIO()
            np.save(file, np.array([{}, None], dtype=object), allow_pickle=True)
            archive.writestr(name, file.getvalue())
        elif way == 3:
            header = b"{" * DEEP
            archive.writestr(name, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        elif way == 4:
            archive.writestr(name, members[name])
            archive.writestr("../" + name, members[name])
        # else: it is missing
    return out.getvalue()


@cache  # it takes longer to make than everything else
def _bomb(content: bytes, name: str) -> bytes:
    """The archive with a member that unpacks to much."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            value = old.read(info)
            new.writestr(info.filename, value + bytes(300 << 20) if info.filename == name else value, compresslevel=1)
    return out.getvalue()


def _safetensors(content: bytes, rng: Rng) -> bytes:
    """A header that says something else about the same bytes, or about more than there are."""
    size = struct.unpack("<Q", content[:8])[0]
    if rng.random() < 0.2:
        return struct.pack("<Q", int(rng.choice([2**62, 0, size - 1, len(content)]))) + content[8:]
    header = json.dumps(_replaced(json.loads(content[8 : 8 + size]), rng)).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _mat5(content: bytes, rng: Rng) -> bytes:
    """A compressed element: one that unpacks to much, or to nonsense."""
    packed = _zeros() if rng.random() < 0.2 else zlib.compress(struct.pack("<II", 14, 2**31 - 8) + rng.bytes(200))
    return content[:128] + struct.pack("<II", 15, len(packed)) + packed


@cache
def _zeros() -> bytes:
    return zlib.compress(bytes(300 << 20), 1)


def _tags(content: bytes, rng: Rng) -> bytes:
    """The header of a message whose tags are huge, deep, or of kinds that nobody knows."""
    vector, pair, uniform = (
        b"\x08" + struct.pack(">I", 2**32 - 1),
        b"\x07",
        b"\x0a\x00" + struct.pack(">IB", 2**32 - 1, 255),
    )
    tags = [vector * 40, pair * 300, uniform, b"\x02\xff\xff", b"\x0c\x00\x00\x00\x00" * 9, b"\xee", b""]
    number = (0, 1, 3, 4096, 4097, 2**63)[int(rng.integers(6))]
    offset = (0, 1, 46, 2**31, 2**53, 2**63, 2**64 - 1)[int(rng.integers(7))]
    head = struct.pack("<HBQQ", 0x5FF0, 1, offset, number) + bytes(8) + tags[int(rng.integers(len(tags)))]
    start = int(rng.integers(6)) * (len(content) // 6)
    return content[:start] + head + content[start + len(head) :]


def _request(content: bytes, rng: Rng) -> bytes:
    """A request whose body is other JSON, or whose target or a header is odd."""
    head, _, body = content.partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    if body and rng.random() < 0.7:
        body = _json(body, rng)[:4096]
        headers = [h for h in headers if not h.lower().startswith(b"content-length")]
        return b"\r\n".join([first, *headers, b"Content-Length: %d" % len(body), b"", b""]) + body
    method, target, version = first.split(b" ")
    odd = [b"1e9", b"-1", b"9" * 400, b"%00", b"%ff%fe", b"../../etc/passwd", b"%2e%2e/", b"[]", b"nan", b"%E2%80%AE"]
    some = odd[int(rng.integers(len(odd)))]
    if rng.random() < 0.6:
        cuts = [i for i in range(len(target)) if target[i : i + 1] in b"/=?&"]
        at = cuts[int(rng.integers(len(cuts)))] + 1
        target = target[:at] + some + (target[at:] if rng.random() < 0.5 else b"")
    else:
        i = int(rng.integers(len(headers)))
        name, _, value = headers[i].partition(b": ")
        headers[i] = name + b": " + (some if rng.random() < 0.5 else value + some)
    return b"\r\n".join([method + b" " + target + b" " + version, *headers, b"", b""]) + body


def _noise(content: bytes, rng: Rng) -> bytes:
    return rng.bytes(int(rng.integers(2 * len(content))))


NONSENSE: dict[str, Callable[[bytes, Rng], bytes]] = {
    "json": _json,
    "yaml": _yaml,
    "lines": _lines,
    "hdf5": _hdf5,
    "npz": _zip,
    "safetensors": _safetensors,
    "mat5": _mat5,
    "tags": _tags,
    "request": _request,
    "bytes": _noise,
}


def crc_tells(path: Path) -> bool:
    """Whether an archive's own checksums, names and sizes contradict each other."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is not None
    except Exception:
        return True


def seal_tells(path: Path) -> bool:
    """Whether a sealed description is not what its seal says; one without a seal is of an earlier version."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return KEY in values and sealed(values)[KEY] != values[KEY]
    except Exception:
        return True
