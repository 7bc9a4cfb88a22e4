"""Reading ahead: in order, never far in front, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.model.inference.inputs import AHEAD, read_ahead


@pytest.fixture(autouse=True)
def _no_reader_is_left() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]


def test_batches_come_in_order_from_another_thread() -> None:
    readers = set()

    def read(item: int) -> int:
        readers.add(threading.current_thread())
        return item**2

    for count in (0, 2, AHEAD, 20):
        assert list(read_ahead(read, range(count))) == [i**2 for i in range(count)]
    assert threading.current_thread() not in readers
    assert list(read_ahead(read, [7])) == [49]  # one alone needs no thread
    assert threading.current_thread() in readers


def test_it_reads_ahead_but_never_far() -> None:
    begun, asked = 0, 0
    ready = threading.Semaphore(0)

    def read(item: int) -> int:
        nonlocal begun
        begun += 1
        assert begun <= asked + AHEAD
        ready.release()
        return item

    with closing(read_ahead(read, range(30))) as batches:
        for expected in range(30):
            asked = expected + 1
            assert next(batches) == expected
            if expected == 0:  # while the first is in use the next ones are read, without being asked for
                for _ in range(1 + AHEAD):
                    assert ready.acquire(timeout=10)
    assert begun == 30


def test_an_error_comes_where_its_batch_would_have_come() -> None:
    def read(item: int) -> int:
        if item == 2:
            raise DataError("damaged")
        return item

    batches = read_ahead(read, range(30))
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(DataError, match="damaged"):
        next(batches)


@pytest.mark.parametrize("how", ["closed", "dropped", "left by an error"])
def test_no_more_is_read_than_was_begun_when_it_ends_early(how: str) -> None:
    begun = []
    hold = threading.Event()

    def read(item: int) -> int:
        begun.append(item)
        if item:
            hold.wait(10)  # the reader is busy with the second batch until then
        return item

    batches = read_ahead(read, range(30))
    assert next(batches) == 0
    later = threading.Timer(0.3, hold.set)
    later.start()
    if how == "closed":
        batches.close()
    elif how == "dropped":
        del batches
    else:
        with pytest.raises(KeyboardInterrupt), closing(batches):
            raise KeyboardInterrupt
    assert begun in ([0], [0, 1])
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]  # at once, not some time later
    later.join()
