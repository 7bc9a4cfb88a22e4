"""Many windows side by side decode as one slow decoder does."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.signal.phy.wifi import viterbi
from pisa_capc.signal.waveforms.wifi import convolutional_code
from tests.reference import viterbi as slow


def _received(rng: np.random.Generator, bits: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    sent = rng.integers(0, 2, bits, dtype=np.uint8)
    sent[-6:] = 0
    return sent, (2.0 * convolutional_code(sent) - 1 + noise * rng.standard_normal(2 * bits)).astype(np.float32)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("noise", [0.5, 0.9])
def test_no_sequence_is_more_likely_than_the_one_found(ended: bool, noise: float) -> None:
    rng = np.random.default_rng(1)
    received = [_received(rng, bits, noise)[1] for bits in (7, 24, 48, 130)]
    for soft, found in zip(received, viterbi.decode(received, [ended] * 4), strict=True):
        best = slow.decode(soft.tolist(), ended)
        # Soft values are rounded to 1/32 of their mean size.
        assert slow.likelihood(found.tolist(), soft.tolist()) > slow.likelihood(best, soft.tolist()) - 0.02 * len(soft)
        if noise < 0.6:
            assert found.tolist() == best


def test_windows_of_a_long_sequence_agree_with_one_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viterbi, "WINDOW", 150)
    sent, soft = _received(np.random.default_rng(2), 500, 0.9)
    (found,) = viterbi.decode([soft], [True])
    best = slow.decode(soft.tolist(), True)
    assert best != sent.tolist()  # enough noise for errors, the same ones
    assert found.tolist() == best


def test_sequences_of_any_lengths_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(3)
    pairs = [_received(rng, bits, 0.4) for bits in (24, 2000, 768, 7, 769, 24)]
    together = viterbi.decode([soft for _, soft in pairs], [True] * len(pairs))
    for (sent, soft), found in zip(pairs, together, strict=True):
        np.testing.assert_array_equal(found, sent)
        np.testing.assert_array_equal(viterbi.decode([soft], [True])[0], sent)


@pytest.mark.parametrize("ended", [True, False])
def test_what_an_encoder_sends_is_known_without_a_search(ended: bool) -> None:
    rng = np.random.default_rng(5)
    for bits in (0, 1, 5, 6, 7, 8, 24, 134, 305, 2000):
        sent = rng.integers(0, 2, bits, dtype=np.uint8)
        sent[max(0, bits - 6) :] = 0
        soft = ((2.0 * convolutional_code(sent) - 1) * rng.uniform(0.1, 9, 2 * bits)).astype(np.float32)
        np.testing.assert_array_equal(viterbi._as_sent(soft, ended), sent)
        for place in range(0, 2 * bits, 1 + bits // 7):
            wrong = soft.copy()
            wrong[place] *= -1
            assert viterbi._as_sent(wrong, ended) is None or bits - place // 2 < 7  # too late for a second sign of it
            wrong[place] = 0  # unknown, and its other one tells the bit
            np.testing.assert_array_equal(viterbi._as_sent(wrong, ended), sent)


def test_a_sequence_that_has_to_end_in_zeros_does() -> None:
    soft = (2.0 * convolutional_code(np.ones(40, dtype=np.uint8)) - 1).astype(np.float32)
    assert viterbi._as_sent(soft, True) is None
    np.testing.assert_array_equal(viterbi._as_sent(soft, False), np.ones(40))


def test_scale_does_not_matter_and_silence_is_no_error() -> None:
    sent, soft = _received(np.random.default_rng(4), 300, 0.4)
    for scale in (1e-20, 1e20):
        np.testing.assert_array_equal(viterbi.decode([soft * np.float32(scale)], [True])[0], sent)
    assert len(viterbi.decode([np.zeros(600, np.float32)], [False])[0]) == 300


def test_nothing_gives_nothing() -> None:
    assert viterbi.decode([], []) == []
    for lengths in ([0], [0, 24, 0], [24, 0]):
        found = viterbi.decode([np.ones(2 * n, np.float32) for n in lengths], [False] * len(lengths))
        assert [len(bits) for bits in found] == lengths


@pytest.mark.parametrize("pattern", [(1, 1), (1, 1, 1, 0), (1, 1, 1, 0, 0, 1), (1, 1, 1, 0, 0, 1, 1, 0, 0, 1)])
@pytest.mark.parametrize("ended", [True, False])
def test_what_an_encoder_sends_is_read_without_a_search(
    pattern: tuple[int, ...], ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, soft = _received(np.random.default_rng(5), 900, 0.1)
    soft *= np.resize(pattern, len(soft))
    (searched,) = viterbi._search([soft], [ended])
    monkeypatch.setattr(viterbi, "_search", lambda soft, ended: [] if not soft else pytest.fail("there is no doubt"))
    (found,) = viterbi.decode([soft], [ended])
    np.testing.assert_array_equal(found, sent)
    np.testing.assert_array_equal(found[:880], searched[:880])  # the end of one that is cut is anybody's guess


def test_one_wrong_sign_is_searched_for_and_mended() -> None:
    sent, soft = _received(np.random.default_rng(6), 100, 0.1)
    for place in (0, 77, 199):
        wrong = soft.copy()
        wrong[place] *= -0.1
        assert viterbi._as_sent(wrong, ended=True) is None
        np.testing.assert_array_equal(viterbi.decode([wrong, soft], [True, True]), [sent, sent])
