"""Models with devices that were enrolled on the page: kept beside the state, and gone on with after a restart."""

from __future__ import annotations

import json
from pathlib import Path

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.files import read_json, reading, write_text_atomic
from pisa_capc.data.store.seal import sealed, unsealed
from pisa_capc.model.inference import TrainedModel

FOLDER, CURRENT = "models", "current.json"
MOST = 100


def keep(state: Path, run: Path, model: TrainedModel) -> Path:
    """Write a model that grew from that of `run`; it is the one to begin with from now on."""
    folder = state / FOLDER
    number = 1 + max((int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()), default=0)
    if number > MOST:
        raise DataError(f"{folder}: has {MOST} models already. Begin with one of them as --run and another --state.")
    out = folder / f"{number:04d}"
    model.save(out)
    write_text_atomic(folder / CURRENT, json.dumps(sealed({"run": _weights(run), "model": out.name})))
    return out


def newest(state: Path | None, run: Path) -> Path:
    """The folder of the model to begin with: the newest that grew from that of `run`, or `run` itself."""
    if state is None or not (state / FOLDER / CURRENT).is_file():
        return run
    current = state / FOLDER / CURRENT
    with reading(current, "what `pisa serve --state` wrote"):
        found = unsealed(read_json(current), current)
        name, grown = str(found["model"]), found["run"] == _weights(run)
        if not name.isdecimal():
            raise ValueError(f"a model called {name!r}")
    return state / FOLDER / name if grown else run


def _weights(run: Path) -> str:
    """What a model's weights are known by."""
    with reading(run / "model.json", "a run that `pisa train` wrote"):
        return str(read_json(run / "model.json")["sha256"])
