"""Process-wide settings, which no other module changes: what the C library does with freed memory, what the garbage
collector scans, and how long a thread computes while another one waits.

Each changes how everything else in the process runs. So each is a function here, with the reason for it, and is called
where a work begins: a training, a long calibration, a listener.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

TURN_S = 2e-4  # that a thread may compute while another one waits
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_ALWAYS = 2**31 - 1


def keep_freed_memory(stores: int = 0) -> None:
    """Let glibc keep large blocks for the next step instead of returning them to the system.

    Activations are tens of megabytes. By default each is mapped again and its pages are zeroed at every use, which
    takes longer than the convolution that fills it. Other C libraries have no such call and are left alone.

    stores: of freed memory, among which threads that begin to allocate are divided; 0: one for each. Threads that
    share one wait for each other at every operation of a network. One alone takes the least memory.
    """
    if (mallopt := _mallopt()) is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, _ALWAYS)
        mallopt(_M_TOP_PAD, 2**26)  # with less, the stores of threads give back every 64 MiB that are empty
        mallopt(_M_ARENA_MAX, stores)


@cache
def _mallopt() -> Callable[[int, int], int] | None:
    found: Callable[[int, int], int] | None = getattr(ctypes.CDLL(None), "mallopt", None)
    return found


def return_freed_memory() -> None:
    """Give back to the system what `keep_freed_memory` kept and nothing uses.

    Blocks of many sizes leave gaps between them: after a while there is more of that than of what is in use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def collect_only_what_is_new() -> None:
    """Have the garbage collector skip all present objects, such as imported modules: scanning them again takes a tenth
    of a second each time, while frames wait."""
    gc.freeze()


@contextmanager
def quick_turns() -> Iterator[None]:
    """Let a thread that decides give way to one that receives after a fifth of a millisecond, not five: a message takes
    several turns to come in, and its frames wait for each of them. Nor do they wait for the garbage collector."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    collect_only_what_is_new()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
