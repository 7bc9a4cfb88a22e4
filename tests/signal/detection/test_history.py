"""Samples are found by their place in the stream, as long as they are kept."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pisa_capc.core.errors import DataError
from pisa_capc.signal.detection.finders import History


def test_what_is_read_does_not_depend_on_how_it_came() -> None:
    stream = np.arange(40, dtype=np.complex64).reshape(2, 20)
    for size in (1, 3, 20):
        history = History()
        for at in range(0, 20, size):
            history.append(stream[:, at : at + size])
        assert history.end == 20
        assert_array_equal(history.read(5, 12), stream[:, 5:12])
        padded = history.read(-2, 22)
        assert_array_equal(padded[:, 2:-2], stream)
        assert not padded[:, :2].any()
        assert not padded[:, -2:].any()
        history.drop(9)
        assert history.begin <= 9
        assert_array_equal(history.read(9, 20), stream[:, 9:])


def test_blocks_of_other_antennas_are_refused() -> None:
    history = History()
    history.append(np.zeros((4, 10), np.complex64))
    with pytest.raises(DataError, match=r"\(2, 10\); expected \(4, n\)"):
        history.append(np.zeros((2, 10), np.complex64))
    with pytest.raises(DataError, match="antennas, samples"):
        History().append(np.zeros(10, np.complex64))
