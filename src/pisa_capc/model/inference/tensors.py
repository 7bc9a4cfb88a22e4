"""Tensors in one file that is replaced whole and holds the digest of all of them, so damage is recognised.

Files without a digest are those of earlier versions: `refuse_unsealed` says what becomes of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pisa_capc.core.errors import ModelError
from pisa_capc.data.store.files import atomic, cannot_be_read
from pisa_capc.data.store.seal import refuse_unsealed

NO_METADATA: Mapping[str, str] = MappingProxyType({})


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = NO_METADATA) -> None:
    """Write tensors and their digest so that the file is either the old one or the whole new one."""
    content = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    with atomic(path) as temporary:  # as bytes: what save_file writes only its owner can read
        temporary.write_bytes(save(content, {**metadata, "sha256": digest(content, metadata)}))


def read_tensors(path: Path, advice: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata that `save_tensors` wrote; `advice` is what to do about a damaged file."""
    tensors, metadata = _read(path, advice)
    written = metadata.pop("sha256", None)
    if written is None:
        refuse_unsealed(str(path))
    elif written != digest(tensors, metadata):
        raise ModelError(f"{path}: damaged (it does not have the SHA-256 that it was written with). {advice}")
    return tensors, metadata


def seal_tensors(path: Path, advice: str) -> bool:
    """Give a file of an earlier version its digest; whether it had none. One with a digest must fit it."""
    tensors, metadata = _read(path, advice)
    if "sha256" in metadata:
        read_tensors(path, advice)
        return False
    save_tensors(path, tensors, metadata)
    return True


def _read(path: Path, advice: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        path.open("rb").close()
    except OSError as error:
        raise cannot_be_read(path, error, ModelError) from error
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path}: damaged ({error}). {advice}") from error
    return tensors, metadata


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = NO_METADATA) -> str:
    """SHA-256 of the names, types, shapes and values of tensors, and of what stands beside them."""
    found = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
