"""Recordings to read: noise, and files of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.recordings.base import About, Annotation

STEPS = {"cs8": (np.int8, 128.0), "cs16": (np.dtype("<i2"), 32768.0), "cs16_be": (np.dtype(">i2"), 32768.0)}


def noise(antennas: int = 2, samples: int = 5000, scale: float = 0.05, seed: int = 1) -> NDArray[np.complex64]:
    x = np.random.default_rng(seed).normal(scale=scale, size=(antennas, samples, 2))
    return x.astype(np.float32).view(np.complex64)[..., 0]


def encoded(x: NDArray[np.complex64], format: str) -> bytes:
    """Interleaved channels, as a receiver would write them."""
    parts = np.ascontiguousarray(x.T).view(np.float32)
    if format in ("cu8", "cu16"):
        most = 2.0 ** int(format[2:]) - 1
        return bytes(np.clip(np.round((parts + 1) * most / 2), 0, most).astype(f"<u{int(format[2:]) // 8}").tobytes())
    if format.startswith("cf"):
        return bytes(parts.astype(f"{'>' if format.endswith('be') else '<'}f{int(format[2:4]) // 8}").tobytes())
    dtype, steps = STEPS[format]
    return bytes(np.clip(np.round(parts * steps), -steps, steps - 1).astype(dtype).tobytes())


def write_sigmf(
    stem: Path,
    x: NDArray[np.complex64],
    datatype: str = "ci16_le",
    annotations: list[dict[str, Any]] | None = None,
    captures: list[dict[str, Any]] | None = None,
    **info: Any,
) -> Path:
    """A SigMF recording beside `stem`; info: further global fields, core: where no namespace is given."""
    format = {"ci16_le": "cs16", "ci16_be": "cs16_be", "ci8": "cs8", "cf32_le": "cf32"}.get(datatype, datatype)
    data = encoded(x, format) if datatype[0] == "c" else bytes(64)
    stem.with_name(stem.name + ".sigmf-data").write_bytes(data)
    fields = {"datatype": datatype, "version": "1.2.0", "sample_rate": 20e6, "num_channels": len(x), **info}
    metadata = {
        "global": {k if ":" in k else f"core:{k}": v for k, v in fields.items()},
        "captures": captures or [{"core:sample_start": 0, "core:frequency": 5.825e9}],
        "annotations": annotations or [],
    }
    meta = stem.with_name(stem.name + ".sigmf-meta")
    meta.write_text(json.dumps(metadata))
    return meta


def collection(folder: Path, names: list[str], **more: Any) -> Path:
    """A collection of these recordings of the folder."""
    streams = [
        {"name": name, "hash": hashlib.sha512((folder / f"{name}.sigmf-meta").read_bytes()).hexdigest()}
        for name in names
    ]
    path = folder / "array.sigmf-collection"
    path.write_text(json.dumps({"collection": {"core:version": "1.2.0", "core:streams": streams, **more}}))
    return path


class InMemory:
    """A recording that is an array."""

    def __init__(
        self, x: NDArray[np.complex64], rate_hz: float = 20e6, annotations: tuple[Annotation, ...] = ()
    ) -> None:
        self.x, self.annotations = x, annotations
        self.about = About("memory", rate_hz, None, *x.shape)

    def read(self, first: int, count: int) -> NDArray[np.complex64]:
        return self.x[:, first : first + count]

    def blocks(self, size: int):  # type: ignore[no-untyped-def]
        for first in range(0, self.x.shape[1], size):
            yield self.read(first, size)
