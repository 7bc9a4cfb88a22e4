"""The checkpoint that a killed training goes on from."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pisa_capc.core.config import parse_json
from pisa_capc.core.errors import ModelError
from pisa_capc.model.inference.model import CHECKPOINT
from pisa_capc.model.inference.tensors import read_tensors, save_tensors


def has_checkpoint(folder: Path) -> bool:
    """Whether an unfinished training can go on here."""
    return (folder / CHECKPOINT).is_file()


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
    """Keep the state after an epoch, in one file that is replaced whole."""
    save_tensors(folder / CHECKPOINT, tensors, {"progress": json.dumps(progress)})


class CheckpointWriter:
    """Keeps the state after each epoch in a folder, by a thread, because a GPU would wait for the disk.

    Checkpoints come one after the other, each whole: a training that is killed meanwhile goes on from the one before,
    to the same end. When the context is left, for whatever reason, the last one is written. Without a folder nothing
    is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._begun: Future[None] | None = None

    def save(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Only takes copies."""
        self.wait()
        if self.folder is not None:
            self._begun = self._thread.submit(save_checkpoint, self.folder, copies(tensors), progress)

    def wait(self) -> None:
        """Until the last one is written; raises what was in the way."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._thread.shutdown()
        try:
            self.wait()
        except Exception as failed:
            if error is None:
                raise
            error.add_note(f"The last checkpoint was not written either: {failed}")


def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU as they are now, whatever becomes of them.

    All of one type come from a device at once: each transfer would wait for it.
    """
    alike: dict[Any, list[str]] = defaultdict(list)
    for name, value in tensors.items():
        alike[value.device, value.dtype].append(name)
    found = {}
    for names in alike.values():
        flat = torch.cat([tensors[name].detach().flatten() for name in names]).cpu()
        for name, own in zip(names, flat.split([tensors[name].numel() for name in names]), strict=True):
            found[name] = own.view(tensors[name].shape)
    return found


def load_checkpoint(folder: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The last checkpoint, or None where there is none."""
    path, advice = folder / CHECKPOINT, "Remove it to train from the start."
    if not has_checkpoint(folder):
        return None
    tensors, metadata = read_tensors(path, advice)
    try:
        progress = parse_json(metadata["progress"])
    except (ValueError, KeyError) as error:
        raise ModelError(f"{path}: damaged ({error}). {advice}") from error
    return {name: value.to(device) for name, value in tensors.items()}, progress


def begun_with(folder: Path) -> list[dict[str, Any]]:
    """What determines the runs of a checkpoint, of which nothing else is read; nothing where that cannot be."""
    with suppress(OSError, ValueError, KeyError, TypeError, SafetensorError):
        with safe_open(folder / CHECKPOINT, framework="pt") as file:
            runs = parse_json(file.metadata()["progress"])["runs"]
        return [about for about in runs if isinstance(about, dict)]
    return []


def remove_checkpoint(folder: Path) -> None:
    (folder / CHECKPOINT).unlink(missing_ok=True)
