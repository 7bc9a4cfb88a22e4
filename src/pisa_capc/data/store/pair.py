"""Fitted state on disk: a folder with NAME.safetensors for the arrays and NAME.json for everything else.

The description is written last, names the file of its arrays and holds their digest. A pair that is written over
another has its arrays in NAME.2.safetensors, the next one in the first name again: until the description is replaced,
which happens at once, the old pair is whole, and from then on the new one is. A file that was exchanged, changed or
damaged is recognised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pisa_capc.core import revisions
from pisa_capc.core.errors import ModelError
from pisa_capc.data.store.files import atomic, cannot_be_read, read_json, remove_stale, write_text_atomic
from pisa_capc.data.store.seal import sealed, unsealed

RETRIES = 10  # of a reader whose arrays are replaced while it reads


def write_pair(
    folder: Path, name: str, schema: int, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]
) -> None:
    """Write arrays and their description; if the process is killed, the old pair or the new one is there."""
    remove_stale(folder)
    content = save({key: np.asarray(values, order="C") for key, values in arrays.items()})
    new, old = f"{name}.safetensors", f"{name}.2.safetensors"
    if _in_use(folder / f"{name}.json", new):
        new, old = old, new
    with atomic(folder / new) as temporary:
        temporary.write_bytes(content)
    marks = {"schema": schema, "version": revisions.PACKAGE, "arrays": new, "sha256": _digest(content)}
    write_text_atomic(folder / f"{name}.json", json.dumps(sealed({**marks, **about}), indent=1))
    (folder / old).unlink(missing_ok=True)


def read_pair(folder: Path, name: str, schema: int, made_by: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description that `write_pair` wrote; `made_by` names the command that makes them again."""
    for _ in range(RETRIES):
        description = folder / f"{name}.json"
        if not description.is_file():
            raise ModelError(f"{folder}: holds no {name}.json and {name}.safetensors. Make them with {made_by}.")
        about = _description(description, name, schema, made_by)
        tensors = folder / about.pop("arrays")
        try:
            return _arrays(tensors, about.pop("sha256"), description, made_by), about
        except FileNotFoundError:
            continue  # somebody has just written the next pair
    raise ModelError(f"{folder}: holds no {tensors.name}. Make it with {made_by}.")


def _description(path: Path, name: str, schema: int, made_by: str) -> dict[str, Any]:
    try:
        about = unsealed(read_json(path), path)
        if about["schema"] != schema:
            raise ModelError(
                f"{path}: written with schema {about['schema']}; this version reads {schema}. "
                f"Make it again with {made_by}."
            )
        about.setdefault("arrays", f"{name}.safetensors")  # of earlier versions
        if about["arrays"] not in (f"{name}.safetensors", f"{name}.2.safetensors"):
            raise ValueError(f"its arrays are in {about['arrays']!r}")
        about["sha256"]
    except OSError as error:
        raise cannot_be_read(path, error, ModelError) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: damaged ({type(error).__name__}: {error}). Use {made_by} again.") from error
    return about


def _arrays(path: Path, sha256: str, description: Path, made_by: str) -> dict[str, np.ndarray]:
    try:
        content = path.read_bytes()
        if _digest(content) != sha256:
            raise ModelError(f"{path}: damaged, or not of this {description.name}. Use {made_by} again.")
        return load(content)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise cannot_be_read(path, error, ModelError) from error
    except (SafetensorError, ValueError) as error:
        raise ModelError(f"{path}: damaged ({error}). Use {made_by} again.") from error


def _in_use(description: Path, arrays: str) -> bool:
    """Whether a description that can be read says that its arrays are in this file."""
    try:
        return bool(read_json(description).get("arrays", arrays) == arrays)
    except (OSError, ValueError, AttributeError):
        return False


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def described(
    folder: Path, name: str, schema: int, what: str, made_by: str
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, Any]]]:
    """`read_pair` around what makes use of it: a description that cannot be `what` is refused in one sentence.

    Senseless numbers raise anything from KeyError to ZeroDivisionError, so nothing is let by.
    """
    arrays, about = read_pair(folder, name, schema, made_by)
    try:
        yield arrays, about
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{folder / name}.json: not {what} ({type(error).__name__}: {error}). Use {made_by} again."
        ) from error


def check_shapes(folder: Path, found: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays that are not exactly those of the description."""
    shapes = {key: values.shape for key, values in found.items()}
    if shapes != dict(expected):
        odd = sorted(set(shapes.items()) ^ set(expected.items()))[0][0]
        raise ModelError(
            f"{folder}: the arrays do not fit their description: {odd} is {shapes.get(odd, 'absent')}, "
            f"expected {expected.get(odd, 'none')}."
        )
