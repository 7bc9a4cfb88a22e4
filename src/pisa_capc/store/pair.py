"""Fitted state on disk: a folder with NAME.safetensors for the arrays and NAME.json for everything else.

The description is written last and holds the digest of the arrays, so a folder whose writer was killed, or in which one
of the two files was exchanged or damaged, is recognised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pisa_capc import revisions
from pisa_capc.errors import ModelError
from pisa_capc.store.files import atomic, cannot_be_read, write_text_atomic


def write_pair(
    folder: Path, name: str, schema: int, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]
) -> None:
    """Write arrays and what is to be known about them; each file is the old one or the whole new one."""
    content = save({key: np.ascontiguousarray(values) for key, values in arrays.items()})
    with atomic(folder / f"{name}.safetensors") as temporary:
        temporary.write_bytes(content)
    marks = {"schema": schema, "version": revisions.PACKAGE, "sha256": hashlib.sha256(content).hexdigest()}
    write_text_atomic(folder / f"{name}.json", json.dumps({**marks, **about}, indent=1))


def read_pair(folder: Path, name: str, schema: int, made_by: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description that `write_pair` wrote; `made_by` names the command that makes them anew."""
    description, tensors = folder / f"{name}.json", folder / f"{name}.safetensors"
    if not description.is_file() or not tensors.is_file():
        raise ModelError(f"{folder}: holds no {name}.json and {name}.safetensors. Make them with {made_by}.")
    try:
        about = json.loads(description.read_text(encoding="utf-8"))
        if about["schema"] != schema:
            raise ModelError(
                f"{description}: written with schema {about['schema']}; this version reads {schema}. "
                f"Make it anew with {made_by}."
            )
        expected = about["sha256"]
    except OSError as error:
        raise cannot_be_read(description, error, ModelError) from error
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ModelError(f"{description}: damaged ({type(error).__name__}: {error}). Use {made_by} again.") from error
    try:
        content = tensors.read_bytes()
        if hashlib.sha256(content).hexdigest() != expected:
            raise ModelError(f"{tensors}: damaged, or not of this {description.name}. Use {made_by} again.")
        return load(content), about
    except OSError as error:
        raise cannot_be_read(tensors, error, ModelError) from error
    except (SafetensorError, ValueError) as error:
        raise ModelError(f"{tensors}: damaged ({error}). Use {made_by} again.") from error


def check_shapes(folder: Path, found: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays that are not exactly those of the description."""
    shapes = {key: values.shape for key, values in found.items()}
    if shapes != dict(expected):
        odd = sorted(set(shapes.items()) ^ set(expected.items()))[0][0]
        raise ModelError(
            f"{folder}: the arrays do not fit their description: {odd} is {shapes.get(odd, 'absent')}, "
            f"expected {expected.get(odd, 'none')}."
        )
