"""Memory that was freed: kept for the next block, and given back when asked to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes
from benchmarks.memory import _anonymous_bytes
from pisa_capc.model.inference.memory import keep_freed_memory, return_freed_memory

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
