"""How much memory a block of code takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Peak:
    """Largest memory of its own a block of code held above where it started; mapped files do not count."""

    bytes = 0


@contextmanager
def peak_memory(interval_s: float) -> Iterator[Peak]:
    peak, done, start = Peak(), threading.Event(), _anonymous_bytes()

    def watch() -> None:
        while not done.wait(interval_s):
            peak.bytes = max(peak.bytes, _anonymous_bytes() - start)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def _anonymous_bytes() -> int:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(found[0].split()[1]) * 1024 if found else 0
