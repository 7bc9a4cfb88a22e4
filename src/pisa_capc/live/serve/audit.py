"""Who changed what: names, enrolled devices, acknowledged alarms."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pisa_capc.live.listen.output import Lines

FILE = "audit.jsonl"
REMEMBERED = 500
MOST_BYTES, KEPT = 10 << 20, 5  # of the file, and older ones
READ_BYTES = 1 << 20  # of its end, when the service begins


@dataclass(frozen=True)
class AuditEntry:
    """by: the holder of the token. address: where the request came from. asked: the request."""

    at: str
    by: str
    address: str
    action: str
    asked: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Audit:
    """The newest entries; all of them in a folder, if there is one, as lines; the oldest go."""

    def __init__(self, folder: Path | None = None, note: Callable[[str], None] = lambda text: None) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=REMEMBERED)
        self._lines: Lines | None = None
        if folder is not None:
            self._lines = Lines(folder / FILE, MOST_BYTES, KEPT, note)
            self._entries.extend(_read(folder / FILE))

    def write(self, entry: AuditEntry) -> None:
        self._entries.append(entry)
        if self._lines is not None:
            self._lines.write(entry)

    def newest(self, most: int) -> list[AuditEntry]:
        """The newest first."""
        return list(islice(reversed(self._entries), most))


def _read(path: Path) -> list[AuditEntry]:
    """The entries at the end of a file; lines that are none, as one that was cut, are passed over."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - READ_BYTES))
        lines = file.read(READ_BYTES).splitlines()
    found = []
    for line in lines:
        with suppress(ValueError, TypeError, RecursionError):
            found.append(AuditEntry(**json.loads(line)))
    return found
