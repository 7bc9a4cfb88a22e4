"""Threads of a CPU: how many share the work, and work that is shared piece by piece.

PyTorch has its threads share every operation, and they wait for each other after each. Where the work falls into pieces
that fit into a core's cache, a thread that takes a whole piece through all operations waits for nothing.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from typing import Any, TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


class OwnThreads(torch.nn.Module):
    """A network with its own threads: each call should hold as many frames as possible."""


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Have `count` threads share PyTorch's sums on a CPU; None leaves their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_sharing: int | None = None  # threads that share pieces, where PyTorch's operations are undivided


@contextmanager
def undivided() -> Iterator[None]:
    """Leave PyTorch's operations undivided for a while: its threads share nothing but pieces.

    A thread that has shared an operation looks out for the next one for milliseconds, on a core that others could use.
    """
    global _sharing
    before, _sharing = _sharing, sharing_threads()
    try:
        with cpu_threads(1):
            yield
    finally:
        _sharing = before


def sharing_threads() -> int:
    """How many threads share pieces."""
    return _sharing or torch.get_num_threads()


def in_threads(function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """function(item) of each item in turn, each by one of PyTorch's number of threads; no gradients.

    As many pieces as there are threads are being made while one is given, so that what is given does not pile up.
    """
    threads, rest = sharing_threads(), iter(items)
    first = list(islice(rest, 2))
    if threads == 1 or len(first) < 2:
        with torch.no_grad():
            yield from map(function, chain(first, rest))
        return
    pool = _pool(threads, os.getpid())
    waiting: deque[Future[T]] = deque()
    with cpu_threads(1):  # some of PyTorch's libraries have one number for all threads
        try:
            for item in chain(first, rest):
                waiting.append(pool.submit(_without_gradients, function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for piece in waiting:
                piece.cancel()


def all_in_threads(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """As `in_threads`, where what is made of all items is kept: threads begin their next piece without being told.

    Between short pieces that is quicker: signalling needs the interpreter lock. The calling thread is one of the
    threads. A piece that is alone is one thread's too, so that nothing depends on how many there are.
    """
    found: list[Any] = [None] * len(items)
    numbers = iter(range(len(items)))  # which all threads share

    def pieces(_: int) -> None:
        for number in numbers:
            found[number] = function(items[number])

    helpers = range(min(sharing_threads(), len(items)) - 1)
    with cpu_threads(1):  # some of PyTorch's libraries have one number for all threads
        others = [_pool(len(helpers), os.getpid()).submit(_without_gradients, pieces, i) for i in helpers]
        try:
            _without_gradients(pieces, 0)
        finally:
            wait(others)
    for other in others:
        other.result()
    return found


def block_sizes(count: int, most: int) -> list[int]:
    """`count` divided into equal blocks of at most `most`, as many for one thread as for the others of two or four.

    How many threads there are makes no difference.
    """
    blocks = -(-count // max(1, most))
    blocks = min(count, blocks + -blocks % 4) if blocks > 1 else blocks
    return [count * (i + 1) // blocks - count * i // blocks for i in range(blocks)]


def _without_gradients(function: Callable[[S], T], item: S) -> T:
    with torch.no_grad():
        return function(item)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process; within each of them PyTorch runs its operations on one thread."""
    return ThreadPoolExecutor(threads, "pieces", initializer=torch.set_num_threads, initargs=(1,))
