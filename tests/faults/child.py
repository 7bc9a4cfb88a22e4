"""The process in which damaged files are read; the one that started it survives what happens here.

In: a JSON line with the folder of good files, a folder of its own, the seed and the seconds of CPU a case may take;
then lines with cases, [reader, first, last]. Out: a JSON line per case before it is read and one after it.
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
import traceback
import warnings
import zlib
from functools import cache
from pathlib import Path

import numpy as np

from tests.faults.damage import damaged
from tests.faults.readers import READERS, Reader, damaged_file, mark

MEMORY = 12 << 30  # bytes of addresses; libraries take some without using them


class TooLong(BaseException):
    """Not an Exception: readers turn those into errors of their own."""


def _too_long(*_: object) -> None:
    raise TooLong


def classify(reader: Reader, folder: Path, good: str, limit_s: float) -> tuple[str, str]:
    """What a reader makes of a damaged file, and more about it where it is a fault."""
    from pisa_capc.core.errors import PisaError

    try:
        signal.setitimer(signal.ITIMER_PROF, limit_s)  # of CPU: on a busy machine time passes without work
        try:
            found = mark(reader.read(folder))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except PisaError:
        return "clean", ""
    except TooLong:
        return "hang", f"more than {limit_s:g} s of CPU"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__}: {str(error)[:200]} ({Path(place.filename).name}:{place.lineno})"
    if found == good:
        return "no effect", ""
    return ("silent", "") if reader.tells(damaged_file(reader, folder)) else ("unguarded", "")


def main() -> None:
    order = json.loads(sys.stdin.readline())
    originals, work, limit_s = Path(order["originals"]), Path(order["folder"]) / "work", order["limit_s"]
    said, sys.stdout = sys.stdout, sys.stderr  # what readers print is not an answer
    warnings.simplefilter("ignore")
    from pisa_capc.signal.formats import look

    look.LIMIT_S = limit_s  # on the clock, of a process of its own: it ends by itself what does not end
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _too_long)

    @cache
    def good(name: str) -> str:
        return mark(READERS[name].read(work))

    for line in sys.stdin:
        name, first, last = json.loads(line)
        reader = READERS[name]
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(originals / reader.folder, work)
        path = damaged_file(reader, work)
        content, expected = path.read_bytes(), good(name)
        for case in range(first, last):
            rng = np.random.default_rng([order["seed"], zlib.crc32(name.encode()), case])
            way, harmed = damaged(content, reader.kind, rng)
            path.write_bytes(harmed)
            print(json.dumps([case]), file=said, flush=True)
            print(json.dumps([case, way, *classify(reader, work, expected, limit_s)]), file=said, flush=True)
            path.write_bytes(content)


if __name__ == "__main__":
    main()
