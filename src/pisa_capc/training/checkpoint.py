"""The checkpoint that a killed training goes on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pisa_capc.config import parse_json
from pisa_capc.errors import ModelError
from pisa_capc.inference.model import CHECKPOINT
from pisa_capc.inference.tensors import read_tensors, save_tensors


def has_checkpoint(folder: Path) -> bool:
    """Whether an unfinished training can go on here."""
    return (folder / CHECKPOINT).is_file()


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
    """Keep the state after an epoch, in one file that is replaced whole."""
    save_tensors(folder / CHECKPOINT, tensors, {"progress": json.dumps(progress)})


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
