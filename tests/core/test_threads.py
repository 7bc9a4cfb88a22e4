"""Pieces of work come back in order, whoever makes them, and threads are as many afterwards as before."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from pisa_capc.core.threads import all_in_threads, block_sizes, cpu_threads, in_threads, undivided
from pisa_capc.decide.calibration import UCAPC
from tests.decide.calibration.examples import shifted_captures


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pieces_come_in_order(threads: int) -> None:
    def piece(number: int) -> int:
        time.sleep(0.002 * (number % 3 == 0))
        return number

    with cpu_threads(threads):
        assert list(in_threads(piece, range(10))) == list(range(10))
        assert torch.get_num_threads() == threads


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_all_pieces_at_once_are_in_order_and_made_once(threads: int) -> None:
    made: list[int] = []

    def piece(item: int) -> int:
        made.append(item)
        time.sleep(0.002 * (item % 3 == 0))
        return -item

    for count in (0, 1, 10):
        made.clear()
        with cpu_threads(threads):
            assert all_in_threads(piece, range(count)[::-1]) == [-item for item in range(count)[::-1]]
            assert torch.get_num_threads() == threads
        assert sorted(made) == list(range(count))


def test_undivided_operations_leave_pieces_to_as_many_threads() -> None:
    together = threading.Barrier(2, timeout=10)

    def piece(_: int) -> tuple[int, int]:
        together.wait()
        return threading.get_ident(), torch.get_num_threads()

    with cpu_threads(2):
        with undivided(), undivided():
            assert torch.get_num_threads() == 1
            found = all_in_threads(piece, range(2))
        assert torch.get_num_threads() == 2
    assert len({thread for thread, _ in found}) == 2
    assert [threads for _, threads in found] == [1, 1]


@pytest.mark.parametrize(("count", "most"), [(1024, 51), (256, 51), (7, 2), (3, 1), (1, 0), (40, 40), (41, 40)])
def test_blocks_are_equal_and_divide_among_threads(count: int, most: int) -> None:
    sizes = block_sizes(count, most)
    assert sum(sizes) == count
    assert max(sizes) <= max(most, 1)
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) in (1, count) or len(sizes) % 4 == 0


def test_an_error_among_all_pieces_is_raised() -> None:
    def piece(item: int) -> int:
        if item == 3:
            raise ValueError("the fourth")
        return item

    with cpu_threads(2), pytest.raises(ValueError, match="the fourth"):
        all_in_threads(piece, range(8))


def test_every_thread_has_a_piece_of_its_own_and_no_help() -> None:
    together = threading.Barrier(2, timeout=10)

    def piece(number: int) -> tuple[int, int]:
        together.wait()
        return threading.get_ident(), torch.get_num_threads()

    with cpu_threads(2):
        found = list(in_threads(piece, range(2)))
    assert len({thread for thread, _ in found}) == 2
    assert [threads for _, threads in found] == [1, 1]


@pytest.mark.parametrize("threads", [1, 2])
def test_no_gradient_is_kept(threads: int) -> None:
    weight = torch.ones(3, requires_grad=True)
    with cpu_threads(threads):
        assert not any(piece.requires_grad for piece in in_threads(lambda _: 2 * weight, range(3)))
    assert torch.is_grad_enabled()


def test_an_error_is_raised_in_its_place_and_leaves_the_threads_as_they_were() -> None:
    def piece(number: int) -> int:
        if number == 2:
            raise ValueError("the third")
        return number

    with cpu_threads(2):
        pieces = in_threads(piece, range(6))
        assert [next(pieces), next(pieces)] == [0, 1]
        with pytest.raises(ValueError, match="the third"):
            next(pieces)
        assert torch.get_num_threads() == 2


def test_pieces_do_not_pile_up() -> None:
    made: list[int] = []
    with cpu_threads(2):
        for given, _ in enumerate(in_threads(made.append, range(20))):
            time.sleep(0.001)
            assert len(made) <= given + 3


def test_a_streamed_calibration_has_the_same_bits_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    example = shifted_captures((90, 70))
    monkeypatch.setattr("pisa_capc.decide.calibration.workspace.BLOCK_ELEMENTS", {"cpu": 130})
    found = []
    for threads in (1, 2):
        with cpu_threads(threads):
            found.append(UCAPC(top=9, workspace_mib=0).calibrate(*example[:3]))
    one, two = found
    np.testing.assert_array_equal(two.probability, one.probability)
    np.testing.assert_array_equal(two.captures[0].mass_before, one.captures[0].mass_before)
