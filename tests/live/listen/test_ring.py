"""The ring: whole samples come out with their right numbers, whatever goes in."""

from __future__ import annotations

import queue
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pisa_capc.live.listen.ring import Piece, Ring

SIZE = 4  # bytes of a sample


def sample(number: int) -> bytes:
    return int(number).to_bytes(SIZE, "little")


def taken(ring: Ring, most: int = 1 << 20) -> list[int]:
    """All that waits, checked: the content of each sample is its number."""
    numbers: list[int] = []
    while (piece := ring.take(1, most, 0.0)) is not None:
        content = piece.data.view("<u4").tolist()
        assert content == list(range(piece.first, piece.first + len(content)))
        numbers += content
        ring.free(len(piece.data))
    return numbers


def test_samples_come_out_whole_however_they_are_cut() -> None:
    ring = Ring(100, SIZE)
    data = b"".join(map(sample, range(50)))
    for start in range(0, len(data), 7):
        ring.write(data[start : start + 7])
    assert taken(ring) == list(range(50))
    assert (ring.missed, ring.received) == (0, 50)


def test_what_finds_no_room_is_counted_and_numbers_stay_right() -> None:
    ring = Ring(10, SIZE)
    data = b"".join(map(sample, range(40)))
    ring.write(data[:110])  # 27 samples and a half
    assert ring.missed == 18
    assert taken(ring) == list(range(10))
    ring.write(data[110:150])
    assert taken(ring) == list(range(28, 37))
    assert ring.received == 37


def test_a_full_ring_misses_one_stretch_until_half_of_it_is_free() -> None:
    ring = Ring(10, SIZE)
    for number in range(12):
        ring.write(sample(number))
    for number in range(12, 20):
        piece = ring.take(1, 1, 0.0)
        assert piece is not None
        ring.free(len(piece.data))
        ring.write(sample(number))
    assert ring.missed == 6  # 10 to 15: after that the fifth was free
    assert taken(ring) == [8, 9, 16, 17, 18, 19]


def test_an_interruption_gives_up_the_sample_that_is_cut() -> None:
    ring = Ring(10, SIZE)
    ring.write(sample(0) + sample(1)[:3])
    ring.interrupt()
    ring.write(sample(1))
    first = ring.take(1, 10, 0.0)
    assert first is not None
    assert not first.fresh
    ring.free(len(first.data))
    second = ring.take(1, 10, 0.0)
    assert second is not None
    assert second.fresh
    assert second.first == 1
    assert ring.breaks == 1


@pytest.mark.parametrize("wait", [False, True])
def test_room_that_is_given_back_wakes_only_a_writer_that_waits_for_it(wait: bool) -> None:
    ring = Ring(8, SIZE, wait=wait)
    woken = threading.Event()
    ring._changed.notify_all = woken.set  # type: ignore[method-assign]
    ring.write(sample(0))
    woken.clear()
    piece = ring.take(1, 8, 0.0)
    assert piece is not None
    ring.free(len(piece.data))
    assert woken.is_set() == wait


def test_a_patient_writer_loses_nothing() -> None:
    ring = Ring(8, SIZE, wait=True)
    data = b"".join(map(sample, range(1000)))
    writer = threading.Thread(target=lambda: (ring.write(data), ring.end()))
    writer.start()
    numbers: list[int] = []
    while len(numbers) < 1000:
        piece = ring.take(1, 3, 1.0)
        assert piece is not None
        numbers += piece.data.view("<u4").tolist()
        ring.free(len(piece.data))
    writer.join()
    assert numbers == list(range(1000))
    assert ring.missed == 0


@pytest.mark.parametrize("interrupted", [False, True])
def test_who_waits_is_woken_when_there_is_enough_or_an_interruption(interrupted: bool) -> None:
    ring, heard = Ring(100, SIZE), queue.Queue[Piece | None]()
    reader = threading.Thread(target=lambda: heard.put(ring.take(10, 100, 60.0)))
    reader.start()
    for number in range(9):
        ring.write(sample(number))
    with pytest.raises(queue.Empty):
        heard.get(timeout=0.05)
    if interrupted:
        ring.interrupt()
    ring.write(sample(9))
    piece = heard.get(timeout=10.0)
    assert piece is not None
    assert len(piece.data) == SIZE * (9 if interrupted else 10)
    reader.join()


def test_arrivals_are_remembered_in_order() -> None:
    ring = Ring(10, SIZE)
    ring.write(sample(0))
    ring.write(sample(1))
    assert ring.arrival(0) <= ring.arrival(1) <= ring.arrival(5)


@given(st.lists(st.tuples(st.sampled_from(["write", "skip", "take", "again"]), st.integers(0, 60)), max_size=60))
def test_every_sample_is_taken_missed_or_waiting(steps: list[tuple[str, int]]) -> None:
    ring = Ring(8, SIZE)
    stream = np.arange(4000, dtype="<u4").tobytes()
    at = seen = 0
    for what, count in steps:
        if what == "write":
            ring.write(stream[at : at + count])
            at += count
        elif what == "skip":
            ring.skip(count)
            at += count
        elif what == "again":
            ring.interrupt()
            at = SIZE * ring.received
        else:
            seen += len(taken(ring, count + 1))
        assert ring.held <= 8
        assert seen + ring.missed + ring.held == ring.received
    seen += len(taken(ring))
    assert seen + ring.missed == ring.received
    assert 0 <= ring.received - at // SIZE <= 1  # a sample that is missed in part is missed


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_taken_from_an_empty_ring(count: int) -> None:
    assert Ring(4, SIZE).take(count, 4, 0.01) is None
