"""Models, datasets and calibrations of earlier versions get the digests that this version writes."""

from __future__ import annotations

import json
from pathlib import Path

from pisa_capc.core.errors import DataError, SealError
from pisa_capc.data.store.files import cannot_be_read, read_json, write_text_atomic
from pisa_capc.data.store.seal import KEY, sealed, unsealed
from pisa_capc.model.inference.tensors import digest, read_tensors, seal_tensors

DESCRIPTIONS = ("model.json", "dataset.json", "calibration.json")
ADVICE = "Restore the file, or make it again."


def seal(folder: Path) -> list[str]:
    """Write a digest into each file of a folder that should have one; the names of those that had none.

    What has a digest already must fit it: a changed file is refused, not sealed.
    """
    found = [folder / name for name in DESCRIPTIONS if (folder / name).is_file()]
    if not found:
        raise DataError(f"{folder}: holds no {', '.join(DESCRIPTIONS)}. Give a model, a dataset or a calibration.")
    weights, changed = folder / "model.safetensors", []
    if weights.is_file() and seal_tensors(weights, ADVICE):
        changed.append(weights.name)
    for path in found:
        try:
            about = read_json(path)
            if not isinstance(about, dict):
                raise ValueError("not a description")
            if KEY in about:
                unsealed(about, path)
                continue
        except OSError as error:
            raise cannot_be_read(path, error, SealError) from error
        except (ValueError, TypeError) as error:
            raise SealError(f"{path}: damaged ({error}). {ADVICE}") from error
        if path.name == "model.json" and weights.is_file():
            tensors, _ = read_tensors(weights, ADVICE)
            own = digest({name: value for name, value in tensors.items() if name.startswith("model.")})
            if about.setdefault("sha256", own) != own:
                raise SealError(f"{weights}: its weights are not those that {path.name} was written with. {ADVICE}")
        write_text_atomic(path, json.dumps(sealed(about), indent=1))
        changed.append(path.name)
    return changed
