"""Reading ahead: the next batches are read while the device works on this one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

AHEAD = 3  # batches that are ready or being read while one is in use

Item = TypeVar("Item")
Batch = TypeVar("Batch")


def read_ahead(read: Callable[[Item], Batch], items: Iterable[Item]) -> Generator[Batch, None, None]:
    """`read(item)` of each item in turn, by a thread that is at most `AHEAD` batches in front; a single one needs none.

    An error of `read` is raised where its batch would have come. The thread ends with the generator: when that is
    exhausted, closed or dropped, what has not been begun is not read any more.
    """
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from map(read, first)
        return
    reader = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
    waiting: deque[Future[Batch]] = deque()
    try:
        for item in chain(first, rest):
            waiting.append(reader.submit(read, item))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        reader.shutdown(wait=True, cancel_futures=True)
