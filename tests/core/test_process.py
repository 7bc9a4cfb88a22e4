"""Switches of the whole process: freed memory is kept, and given back when asked to; threads take quick turns."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pisa_capc
from pisa_capc.core.process import TURN_S, quick_turns

PROGRAM = """
import ctypes
from benchmarks.memory import _anonymous_bytes
from pisa_capc.core.process import keep_freed_memory, return_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
keep_freed_memory()
size, before = 2**24, _anonymous_bytes()
blocks = [libc.malloc(size) for _ in range(8)]
for block in blocks:
    ctypes.memset(block, 1, size)
for block in blocks[:-1]:  # one in use above the others, as there always is
    libc.free(block)
kept = _anonymous_bytes() - before
return_freed_memory()
print(kept // size, (_anonymous_bytes() - before) // size)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_freed_blocks_are_kept_until_they_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    kept, left = (int(blocks) for blocks in done.stdout.split())
    assert kept >= 7
    assert left <= 2


def test_a_listener_has_quick_turns_only_while_it_listens() -> None:
    before, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    with quick_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN_S)
        assert gc.get_freeze_count() > frozen
    assert (sys.getswitchinterval(), gc.get_freeze_count()) == (before, 0)


SWITCHES = re.compile(r"mallopt|malloc_trim|gc\.(freeze|disable)|setswitchinterval|object\.__setattr__")


def test_switches_of_the_process_are_set_in_one_place_and_nothing_frozen_is_changed() -> None:
    root = Path(pisa_capc.__file__).parent
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if SWITCHES.search(path.read_text())}
    assert found == {"core/process.py"}
