"""A band is divided into channels, the same in a stream and where it is read again."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.recordings.channels import ChannelSplitter, ChannelStream, FilterBank
from tests.signal.recordings.tools import InMemory

RATE_HZ, SAMPLES = 2.4e6, 100_000


def tone(offset_hz: float) -> np.ndarray:
    return np.exp(2j * np.pi * offset_hz / RATE_HZ * np.arange(SAMPLES))[None].astype(np.complex64)


def split(bank: FilterBank, x: np.ndarray, size: int) -> np.ndarray:
    splitter = ChannelSplitter(bank, len(x))
    parts = [splitter.push(x[:, first : first + size]) for first in range(0, x.shape[1], size)]
    return np.concatenate([*parts, splitter.finish()], axis=2)


def test_a_channel_is_the_signal_around_its_centre_at_a_lower_rate() -> None:
    bank = FilterBank(RATE_HZ, 100e3, (-310e3, 433e3))
    y = split(bank, tone(463e3), 7001)
    assert bank.channel_rate_hz == RATE_HZ / 12 == 200e3
    assert y.shape == (2, 1, -(-SAMPLES // 12))
    here = np.exp(2j * np.pi * (463e3 - bank.rounded_hz[1]) / 200e3 * np.arange(y.shape[2]))
    np.testing.assert_allclose(y[1, 0, 20:-20], here[20:-20], atol=2e-3)  # the ripple of −65 dB, twice
    assert np.abs(y[0, 0, 20:-20]).max() < 1e-3
    assert np.abs(bank.rounded_hz - bank.centres_hz).max() <= 200e3 / 256


def test_what_is_next_to_a_channel_does_not_fold_into_it() -> None:
    bank = FilterBank(RATE_HZ, 100e3, (0.0,))
    levels = [np.abs(split(bank, tone(f), SAMPLES)[0, 0, 50:-50]).max() for f in (74e3, 101e3, 130e3, 199e3, 1.1e6)]
    assert levels[0] == pytest.approx(1, abs=2e-3)
    assert max(levels[1:]) < 1.5e-3


def test_the_whole_band_is_divided_and_every_tone_is_in_a_channel() -> None:
    bank = FilterBank.of_band(RATE_HZ, 200e3)
    assert len(bank.centres_hz) == 12
    for f in (-1.19e6, -333e3, 77e3, 910e3):
        own = int(np.argmin(np.abs(np.array(bank.centres_hz) - f)))
        assert np.abs(split(bank, tone(f), SAMPLES)[own, 0, 50:-50]).min() > 0.99


@pytest.mark.parametrize("width_hz", [25e3, 590e3])
def test_blocks_and_places_change_nothing(width_hz: float) -> None:
    x = np.random.default_rng(0).normal(size=(2, SAMPLES, 2)).astype(np.float32).view(np.complex64)[..., 0]
    bank = FilterBank.of_band(RATE_HZ, width_hz)
    whole = split(bank, x, SAMPLES)
    np.testing.assert_array_equal(split(bank, x, 997), whole)
    stream = ChannelStream(InMemory(x, RATE_HZ), bank)
    assert stream.about.length == whole.shape[2]
    for first, count in ((0, 100), (95, 98), (whole.shape[2] - 10, 100)):
        np.testing.assert_array_equal(stream.channel(2).read(first, count), whole[2, :, first : first + count])


def test_channels_that_cannot_be_are_refused() -> None:
    for wrong, said in (
        (lambda: FilterBank(RATE_HZ, 700e3, (0.0,)), "Wider signals need no channels"),
        (lambda: FilterBank.of_band(RATE_HZ, 1e3), "expected 1 to 128"),
        (lambda: FilterBank.of_band(RATE_HZ, 0.0), "channels of 0 Hz"),
        (lambda: FilterBank(RATE_HZ, 100e3, (433e6,)), "the band ends"),
        (lambda: FilterBank(RATE_HZ, 100e3, (float("nan"),)), "the band ends"),
    ):
        with pytest.raises(ConfigError, match=said):
            wrong()
