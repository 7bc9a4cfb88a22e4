"""Recordings to read: noise, and files of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.recordings.base import About, Annotation

STEPS = {"cs8": (np.int8, 128.0), "cs16": (np.dtype("<i2"), 32768.0), "cs16_be": (np.dtype(">i2"), 32768.0)}


def noise(antennas: int = 2, samples: int = 5000, scale: float = 0.05, seed: int = 1) -> NDArray[np.complex64]:
    x = np.random.default_rng(seed).normal(scale=scale, size=(antennas, samples, 2))
    return x.astype(np.float32).view(np.complex64)[..., 0]


def encoded(x: NDArray[np.complex64], format: str) -> bytes:
    """Interleaved channels, as a receiver would write them."""
    parts = np.ascontiguousarray(x.T).view(np.float32)
    if format == "cu8":
        return bytes(np.clip(np.round(parts * 127.5 + 127.5), 0, 255).astype(np.uint8).tobytes())
    if format.startswith("cf32"):
        return bytes(parts.astype(">f4" if format.endswith("be") else "<f4").tobytes())
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
