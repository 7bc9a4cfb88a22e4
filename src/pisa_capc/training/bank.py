"""The training frames of a stack: on the device while they fit, streamed from where they are when they do not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pisa_capc.descriptors import cfo_descriptors
from pisa_capc.errors import DataError
from pisa_capc.frames import Frames, UnlabelledFrames, normalise_power

AHEAD = 3  # batches read ahead while streaming
SHARE = 0.6  # of the free memory that the frames may take


def model_input(frames: UnlabelledFrames) -> NDArray[np.float32]:
    """What a model sees: I/Q at unit mean power as reals, (N, A, T, 2)."""
    return unit_power(frames, frames.iq)


def unit_power(frames: UnlabelledFrames, iq: NDArray[np.complex64]) -> NDArray[np.float32]:
    """As `model_input`, of I/Q that was read already."""
    if not np.isfinite(iq.view(np.float32)).all():
        raise bad_frame(frames, np.isfinite(iq).all(axis=(1, 2)), "holds NaN or infinite samples")
    try:
        iq = np.ascontiguousarray(normalise_power(iq))
    except DataError as error:
        raise bad_frame(frames, iq.any(axis=(1, 2)), f"is zero in its first {frames.samples} samples") from error
    return iq.view(np.float32).reshape(*iq.shape, 2)


def bad_frame(frames: UnlabelledFrames, good: ArrayLike, what: str) -> DataError:
    i = int(np.argmin(good))  # the first that is not
    return DataError(f"frame {frames.frame[i]} of {frames.capture_key[i]} {what}. Remove it.")


def free_bytes(device: torch.device) -> int:
    """Memory that is free on the device, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        # Available, not free: what the page cache holds is given up when it is needed.
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def union(parts: Sequence[Frames]) -> Frames:
    """All frames of the parts, each once, in dataset order; the parts must select from one dataset."""
    first = parts[0]
    if any(part.source is not first.source for part in parts):
        raise DataError("the runs of a stack must come from one dataset; fit other datasets in a call of their own.")
    columns = ("rows", "environment", "capture", "frame", "device")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    _, once = np.unique(joined["rows"], return_index=True)
    chosen: dict[str, Any] = {name: values[once] for name, values in joined.items()}
    return replace(first, **chosen)


class Bank:
    """Frames, descriptors and labels by position.

    resident: whether the I/Q is on the device; None decides by the free memory.
    """

    def __init__(self, frames: Frames, device: torch.device, resident: bool | None = None) -> None:
        self.frames = frames
        self.device = device
        size = len(frames) * frames.antennas * frames.samples * 8
        self.resident = size < SHARE * free_bytes(device) if resident is None else resident
        self.iq = torch.from_numpy(self._read_all()).to(device) if self.resident else None
        descriptor = cfo_descriptors(frames)
        self.descriptor = None if descriptor is None else torch.from_numpy(descriptor).to(device)
        self.label = torch.from_numpy(frames.device).to(device)
        self.environment = torch.from_numpy(frames.environment).to(device)

    def _read_all(self) -> NDArray[np.float32]:
        # Piece by piece into the result: reading, normalising and splitting all at once would need three copies.
        out = np.empty((len(self.frames), self.frames.antennas, self.frames.samples, 2), dtype=np.float32)
        start = 0
        for part in self.frames.batches(8192):
            out[start : start + len(part)] = model_input(part)
            start += len(part)
        return out

    def position(self, part: Frames) -> NDArray[np.int64]:
        """Where the frames of `part` are in this bank."""
        return np.searchsorted(self.frames.rows, part.rows)

    def gather(self, rows: Tensor) -> Tensor:
        """I/Q of resident frames: rows (…) on the device → (…, A, T, 2)."""
        assert self.iq is not None
        return self.iq[rows]

    def stream(self, plan: NDArray[np.int64]) -> Iterator[Tensor]:
        """I/Q of each row array of `plan` (steps, …) in turn, read ahead by a thread of its own."""

        def read(rows: NDArray[np.int64]) -> Tensor:
            iq = torch.from_numpy(model_input(self.frames.select(rows.ravel())))
            iq = iq.unflatten(0, rows.shape)
            return iq.pin_memory() if self.device.type == "cuda" else iq

        with ThreadPoolExecutor(1) as reader:
            waiting = [reader.submit(read, rows) for rows in plan[:AHEAD]]
            for step in range(len(plan)):
                if step + AHEAD < len(plan):
                    waiting.append(reader.submit(read, plan[step + AHEAD]))
                yield waiting.pop(0).result().to(self.device, non_blocking=True)
