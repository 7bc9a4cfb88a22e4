"""Memory of work on a CPU that goes through many large blocks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
_ALWAYS = 2**31 - 1


def keep_freed_memory(stores: int = 0) -> None:
    """Let glibc keep large blocks for the next step instead of returning them to the system.

    Activations are tens of megabytes. By default each is mapped anew and its pages are zeroed at every use, which
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
