"""The training frames of a stack: on the device while they fit, streamed from where they are when they do not."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pisa_capc.core.errors import DataError
from pisa_capc.data.descriptors import cfo_descriptors
from pisa_capc.data.frames import Frames
from pisa_capc.model.inference.inputs import AHEAD, input_scale, model_input, read_ahead

PIECE = 2048  # frames that are looked at together
BLOCK = 512  # numbers that are multiplied together: they stay next to the core, twice as fast as by default
SHARE = 0.6  # of the free memory that the frames may take
GRAIN = 16  # frames that pieces of one size count in: Triton has quicker kernels for sizes that 16 divides


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
    if any(part.source != first.source for part in parts):
        raise DataError("the runs of a stack must come from one dataset; fit other datasets in a call of their own.")
    columns = ("rows", "environment", "capture", "frame", "device")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    _, once = np.unique(joined["rows"], return_index=True)
    chosen: dict[str, Any] = {name: values[once] for name, values in joined.items()}
    return replace(first, **chosen)


class Bank:
    """Frames, descriptors and labels by position.

    resident: whether the I/Q is on the device; None decides by the free memory. Where it is not, only its scale to unit
    power is kept: the frames have then been looked at once, and a streamed batch needs no more than a product.
    """

    def __init__(self, frames: Frames, device: torch.device, resident: bool | None = None) -> None:
        self.frames = frames
        self.device = device
        size = len(frames) * frames.antennas * frames.samples * 8
        self.resident = size < SHARE * free_bytes(device) if resident is None else resident
        self.iq = torch.from_numpy(self._read_all()).to(device) if self.resident else None
        self.scale = None if self.resident else np.concatenate([*read_ahead(input_scale, frames.batches(PIECE))])
        descriptor = cfo_descriptors(frames)
        self.descriptor = None if descriptor is None else torch.from_numpy(descriptor).to(device)
        self.label = torch.from_numpy(frames.device).to(device)
        self.environment = torch.from_numpy(frames.environment).to(device)

    def _read_all(self) -> NDArray[np.float32]:
        # Piece by piece into the result: reading, normalising and splitting all at once would need three copies.
        out = np.empty((len(self.frames), self.frames.antennas, self.frames.samples, 2), dtype=np.float32)
        start = 0
        for part in read_ahead(model_input, self.frames.batches(PIECE)):
            out[start : start + len(part)] = part
            start += len(part)
        return out

    def position(self, part: Frames) -> NDArray[np.int64]:
        """Where the frames of `part` are in this bank."""
        return np.searchsorted(self.frames.rows, part.rows)

    def gather(self, rows: Tensor) -> Tensor:
        """I/Q of resident frames: rows (…) on the device → (…, A, T, 2)."""
        assert self.iq is not None
        return self.iq[rows]

    def stream(self, plan: Sequence[NDArray[np.int64]] | NDArray[np.int64]) -> Generator[Tensor, None, None]:
        """I/Q of each row array (…) of `plan` in turn, (…, A, T, 2) on the device; read ahead where it is not resident.

        Where the frames are makes no difference to any bit. At most `AHEAD` + 2 batches are in memory: those in front,
        the one that is given and the one before it; on a GPU twice as many, those that are still being copied included.
        Close it, or exhaust it, and no thread is left.
        """
        if self.scale is None:
            for rows in plan:
                yield self.gather(torch.from_numpy(rows).to(self.device, non_blocking=True))
            return
        scale, frames, cuda = self.scale, self.frames, self.device.type == "cuda"

        def read(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            which = rows.ravel()
            iq = torch.empty(len(which), frames.antennas, frames.samples, dtype=torch.complex64, pin_memory=cuda)
            frames.source.read_iq(frames.rows[which], frames.samples, out=iq.numpy())
            factor = torch.from_numpy(scale[which, None, None, None])
            if cuda:  # the product is left to the device
                factor = factor.pin_memory()
            else:
                np.setbufsize(BLOCK)  # of this thread alone; PyTorch's threads would be in the way of the training's
                parts = torch.view_as_real(iq).numpy()
                np.multiply(parts, factor.numpy(), out=parts, dtype=np.float64, casting="same_kind")
            return torch.view_as_real(iq).unflatten(0, rows.shape), factor.unflatten(0, rows.shape)

        copied: deque[torch.cuda.Event] = deque()
        with closing(read_ahead(read, plan)) as batches:
            for iq, factor in batches:
                if cuda:
                    iq, factor = (part.to(self.device, non_blocking=True) for part in (iq, factor))
                    torch.mul(iq, factor, out=iq)  # in double precision, rounded once
                    copied.append(torch.cuda.Event())
                    copied[-1].record()
                    if len(copied) > AHEAD:  # a host that runs ahead of the device would pin ever more memory
                        copied.popleft().synchronize()
                yield iq


def even_pieces(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Rows (R, N) in as few pieces of about `most` as can be, all of one size: (pieces, R, B).

    Rows that are missing at the end are the last one again.

    >>> even_pieces(np.arange(2 * 10118).reshape(2, 10118), most=512).shape
    (20, 2, 512)
    >>> even_pieces(np.arange(70)[None], most=40)[1, 0, -28:-24]
    array([68, 69, 69, 69])
    """
    runs, count = rows.shape
    each = -(-count // -(-count // most))
    each = -(-each // GRAIN) * GRAIN
    pieces = -(-count // each)
    padded = np.pad(rows, ((0, 0), (0, pieces * each - count)), mode="edge")
    return padded.reshape(runs, pieces, each).swapaxes(0, 1).copy()
