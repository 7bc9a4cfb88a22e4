"""What outlives the service: names that people gave, alarms with who acknowledged them, and models with devices that
were enrolled on the page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.store.files import read_json, reading, write_text_atomic
from pisa_capc.data.store.seal import sealed, unsealed
from pisa_capc.live.listen import Alarm
from pisa_capc.live.listen.events import ACKNOWLEDGED
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


FILE, SCHEMA = "page.json", 1
MOST_NAMES, LONGEST_NAME = 1000, 64
NAMED = ("device", "address")


@dataclass
class Keepsakes:
    """names: what is called how, by its kind, one of `NAMED`."""

    names: dict[str, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in NAMED})

    def name(self, kind: str, key: str, name: str) -> None:
        """Call a device or an address something; nothing: as before."""
        name = " ".join(name.split())
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise ConfigError(f"A name has at most {LONGEST_NAME} printable characters.")
        own = self.names[kind]
        if not name:
            own.pop(key, None)
        elif key not in own and sum(map(len, self.names.values())) >= MOST_NAMES:
            raise ConfigError(f"There are {MOST_NAMES:,} names already; take some away first.")
        else:
            own[key] = name

    def to_json(self, alarms: Iterable[Alarm]) -> dict[str, Any]:
        return {"schema": SCHEMA, "names": self.names, "alarms": [alarm.to_json() for alarm in alarms]}


def save(folder: Path, content: dict[str, Any]) -> None:
    write_text_atomic(folder / FILE, json.dumps(sealed(content), ensure_ascii=False))


def load(folder: Path) -> tuple[Keepsakes, list[Alarm]]:
    """What `save` wrote; nothing where there is no file."""
    path = folder / FILE
    if not path.is_file():
        return Keepsakes(), []
    with reading(path, "what `pisa serve --state` wrote"):
        found = unsealed(read_json(path), path)
        if found["schema"] != SCHEMA:
            raise DataError(f"{path}: schema {found['schema']!r}; expected {SCHEMA}. Move it away to start again.")
        keepsakes = Keepsakes()
        for kind in NAMED:
            for key, name in found["names"][kind].items():
                keepsakes.name(kind, str(key), str(name))
        alarms, seen = [Alarm.from_json(one) for one in found["alarms"]], set(found.get("seen", ()))  # of version 0.1
        return keepsakes, [replace(one, state=ACKNOWLEDGED) if one.number in seen else one for one in alarms]
