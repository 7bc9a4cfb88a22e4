"""Pulses of on-off keying are measured without knowing what they say."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.measurement.keyed import KeyedEstimator
from tests.signal.measurement.keyed_frames import LONG_S, PULSE_S, RATE_HZ, SHORT_S, messages

TRUTH = {"offset": 12e3, "chirp": 150.0, "bend": 0.0, "pulse": PULSE_S, "short": SHORT_S, "long": LONG_S}


@pytest.mark.parametrize("snr_db", [12.0, 20.0, 35.0])
def test_what_was_sent_is_measured_within_its_bars(snr_db: float) -> None:
    found = KeyedEstimator(RATE_HZ).measure(messages(30, 1, snr_db=snr_db))
    assert (found.pulses > 30).all()
    bars = np.sqrt(np.einsum("nii->ni", found.covariance))
    for k, (name, true) in enumerate(TRUTH.items()):
        off = found.value[:, k] - true
        if name == "pulse":  # whose edges are found to a sample or so, in every pulse alike
            assert abs(off.mean()) < 1.5 / RATE_HZ
            continue
        assert abs((off / bars[:, k]).mean()) < 1, name
        assert (off / bars[:, k]).std() < 1.6, name


def test_a_level_changes_no_length() -> None:
    quiet, loud = (KeyedEstimator(RATE_HZ).measure(messages(20, 2, snr_db=snr)).value[:, 3].mean() for snr in (15, 40))
    assert abs(quiet - loud) < 2 / RATE_HZ


def test_the_antenna_that_hears_most_is_measured_and_one_that_is_missing_is_not() -> None:
    x = messages(3, 3)
    both = np.concatenate([0.1 * messages(3, 4, offset_hz=-9e3), x], axis=1)
    estimator = KeyedEstimator(RATE_HZ, without=["bend"])
    assert estimator.names == ("offset", "chirp", "pulse", "short", "long")
    np.testing.assert_allclose(estimator.measure(both).value[:, 0], 12e3, atol=50)
    there = np.tile([True, False], (3, 1))
    np.testing.assert_allclose(estimator.measure(both, there).value[:, 0], -9e3, atol=50)


def test_noise_silence_and_a_steady_carrier_are_not_measured() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1, 1, 30_000, 2)) @ [1, 1j]
    tone = np.exp(0.1j * np.arange(30_000))[None, None] + 0.01 * noise
    for x in (noise, tone, 0 * noise, noise * np.nan):
        found = KeyedEstimator(RATE_HZ).measure(x)
        assert found.pulses[0] == 0
        assert np.isnan(found.value).all()


def test_an_unknown_quantity_is_refused() -> None:
    with pytest.raises(ConfigError, match="quantity"):
        KeyedEstimator(RATE_HZ, without=["colour"])
