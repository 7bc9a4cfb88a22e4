"""What outlives the service: names that people gave, alarms, and which of them were seen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pisa_capc.errors import ConfigError, DataError
from pisa_capc.listen import Alarm
from pisa_capc.listen.events import ALARMS
from pisa_capc.store.files import read_json, reading, write_text_atomic
from pisa_capc.store.seal import sealed, unsealed

FILE, SCHEMA = "page.json", 1
MOST_NAMES, LONGEST_NAME = 1000, 64
NAMED = ("device", "address")


@dataclass
class Keepsakes:
    """names: what is called how, by its kind, one of `NAMED`. seen: numbers of alarms that somebody has looked at."""

    names: dict[str, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in NAMED})
    seen: set[int] = field(default_factory=set)

    def name(self, kind: str, key: str, name: str) -> None:
        """Call a device or an address something; nothing: as before."""
        name = " ".join(name.split())
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise ConfigError(f"A name has at most {LONGEST_NAME} characters, all of which can be seen.")
        own = self.names[kind]
        if not name:
            own.pop(key, None)
        elif key not in own and sum(map(len, self.names.values())) >= MOST_NAMES:
            raise ConfigError(f"There are {MOST_NAMES:,} names already; take some away first.")
        else:
            own[key] = name

    def to_json(self, alarms: Iterable[Alarm]) -> dict[str, Any]:
        kept = [alarm.to_json() for alarm in alarms]
        seen = sorted(self.seen & {alarm["number"] for alarm in kept})
        return {"schema": SCHEMA, "names": self.names, "alarms": kept, "seen": seen}


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
            raise DataError(f"{path}: schema {found['schema']!r}; expected {SCHEMA}. Move it away to begin anew.")
        keepsakes = Keepsakes(seen={int(number) for number in found["seen"]})
        for kind in NAMED:
            for key, name in found["names"][kind].items():
                keepsakes.name(kind, str(key), str(name))
        return keepsakes, [_alarm(one) for one in found["alarms"]]


def _alarm(found: dict[str, Any]) -> Alarm:
    texts = {name: str(found[name]) for name in ("at", "kind", "text")}
    maybe = {name: found[name] and str(found[name]) for name in ("address", "device", "snippet")}
    if texts["kind"] not in ALARMS:
        raise ValueError(f"an alarm of the kind {texts['kind']!r}")
    frames = tuple(int(number) for number in found["frames"])
    return Alarm(number=int(found["number"]), time_s=float(found["time_s"]), frames=frames, **texts, **maybe)
