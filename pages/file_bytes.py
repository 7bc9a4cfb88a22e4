"""What files look like byte by byte, as a page of the site: a tiny set, written by the package in every format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np

from pisa_capc.data.frames import Frames, load
from pisa_capc.signal.formats import ExportOptions, export_dataset

# One frame of two antennas and three samples; numbers that one can read in binary.
IQ = np.array([[[0.5 - 0.25j, 1, 1j], [-1, 0.125j, 0]]], dtype=np.complex64)
CFO_HZ = np.array([[1500.0, 1500.0]])


def page() -> str:
    with TemporaryDirectory() as name:
        return f"""# Files, byte by byte

One frame of two antennas and three samples, as every format has it: antenna 0 receives {_values(IQ[0, 0])}, antenna 1
{_values(IQ[0, 1])}, both with an offset of 1,500 Hz. These files were written when this page was made. Numbers are
little-endian; a complex64 is two float32, I then Q: `00 00 00 3f` is 0.5, `00 00 80 be` −0.25, `00 00 80 3f` 1. What
each format is for, and the options of import and export, is in [Formats](../formats.md); raw recordings are in
[Raw recordings](../recordings.md).

{chr(10).join(_sections(Path(name)))}"""


def _sections(folder: Path) -> Iterator[str]:
    frames = Frames.from_arrays(IQ, device=["D01"], environment=["E1"], capture=["L1"], cfo_hz=CFO_HZ)
    frames.save(folder / "set")
    frames = load(folder / "set")
    yield "## A dataset\n\n`dataset.json` describes the folder, and holds a digest of itself:\n\n" + _json(
        folder / "set" / "dataset.json"
    )
    yield f"`E1/D01/L1.h5` is HDF5. Its samples lie in one piece, frames × antennas × samples:\n\n{_tree(folder)}"
    yield _dump(folder / "set" / "E1" / "D01" / "L1.h5", IQ.tobytes())

    export_dataset("sigmf", frames, folder / "sigmf")
    [data], [meta] = ([*(folder / "sigmf").rglob(f"*.sigmf-{kind}")] for kind in ("data", "meta"))
    yield "## SigMF\n\nThe channels of a sample follow each other: antenna 0, antenna 1, then the next sample.\n"
    yield _dump(data, IQ[0].T.tobytes())
    yield _json(meta)

    export_dataset("npz", frames, folder / "frames.npz")
    with np.load(folder / "frames.npz") as arrays:
        held = "\n".join(f"{key:12} {array.dtype} {array.shape}" for key, array in arrays.items())
    yield f"## NPZ\n\nA ZIP archive of `.npy` files, one for each array:\n\n```\n{held}\n```\n"
    yield _dump(folder / "frames.npz", IQ.tobytes())

    export_dataset("mat", frames, folder / "mat", ExportOptions(version="5"))
    [path] = (folder / "mat").rglob("*.mat")
    yield """## MAT, version 5

After a header of 128 bytes with the date, `iq` as samples × antennas × frames in MATLAB's order, the first axis
fastest: real parts of everything at 0xc0, imaginary ones at 0xe0. Then `cfo`, and whatever else the file holds.
"""
    yield _dump(path, begin=0x80)

    export_dataset("hdf5", frames, folder / "rows", ExportOptions(antenna=0))
    [path] = (folder / "rows").rglob("*.h5")
    with h5py.File(path) as file:
        held = "\n".join(f"{key:8} {file[key].dtype} {file[key].shape}  {file[key][()].tolist()}" for key in file)
    yield f"""## HDF5 in the layout of LoRa_RFFI

One antenna: `data` has a row [I … | Q …] for each frame, `label` counts from 1.

```
{held}
```
"""

    rows = [f"| `{kind}` | {about} | `{sample.tobytes().hex(' ')}` | {rule} |" for kind, about, sample, rule in _raw()]
    yield f"""## Raw samples

A file without a header is what its ending says; `--antennas 2` makes every other sample the second antenna's.

| ending | a sample | 0.5 − 0.25j | its value |
|---|---|---|---|
{chr(10).join(rows)}
"""


def _raw() -> Iterator[tuple[str, str, np.ndarray, str]]:
    value = (0.5, -0.25)
    yield "cf32", "two float32", np.array(value, "<f4"), "as it is"
    yield "cs16", "two 16-bit integers", np.array([v * 32768 for v in value], "<i2"), "over 32,768"
    yield "cs8", "two 8-bit integers", np.array([v * 128 for v in value], "i1"), "over 128"
    yield "cu8", "two bytes", np.array([round(127.5 + v * 127.5) for v in value], "u1"), "less 127.5, over 127.5"


def _tree(folder: Path) -> str:
    with h5py.File(folder / "set" / "E1" / "D01" / "L1.h5") as file:
        rows = [f"/{key:10} {file[key].dtype} {file[key].shape}" for key in file]
        rows += [f"@{key:10} {value}" for key, value in file.attrs.items()]
    return "```\n" + "\n".join(rows) + "\n```\n"


def _json(path: Path) -> str:
    return f"```json\n{json.dumps(json.loads(path.read_text(encoding='utf-8')), indent=2)}\n```\n"


def _dump(path: Path, samples: bytes = b"", begin: int = 0) -> str:
    """The file's beginning and, where they are known, its samples: sixteen bytes to a line."""
    content = path.read_bytes()
    at = content.index(samples) if samples else begin
    parts = [(0, 32), (at, at + len(samples))] if at and samples else [(begin, min(len(content), begin + 256))]
    text = "\n…\n".join("\n".join(_lines(content, *part)) for part in parts)
    where = f"; the samples begin at {at:#x}" if at and samples else ""
    return f"```\n{text}\n```\n\n*{path.name}, {len(content):,} bytes{where}.*\n"


def _lines(content: bytes, start: int, stop: int) -> Iterator[str]:
    for i in range(start, stop, 16):
        row = content[i : min(i + 16, stop)]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        yield f"{i:08x}  {row.hex(' '):48}  {shown}"


def _values(row: np.ndarray) -> str:
    return ", ".join(f"`{complex(value):g}`" for value in row)
