"""What a place does to channel state is taken off or expected; what the hardware does stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.model.gaussian import fit_backend
from pisa_capc.signal.measurement.channel_state import channel_state, level, place_prior
from tests.channels import NUMBERS, SPACING_HZ, filters, heard, place

PRIOR = place_prior(NUMBERS, SPACING_HZ, antennas=2)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(8)


def test_gain_phase_and_slope_of_each_antenna_leave_no_trace(rng: np.random.Generator) -> None:
    channel = place(rng, 3)[None]
    turned = (
        channel * 3.7 * np.exp(1j * (np.array([0.4, -2, 3])[:, None] + np.array([0.2, -0.1, 0.25])[:, None] * NUMBERS))
    )
    np.testing.assert_allclose(level(turned, NUMBERS), level(channel, NUMBERS), atol=1e-9)


def test_the_noise_level_is_that_of_the_noise(rng: np.random.Generator) -> None:
    """Relative to the mean power over subcarriers and antennas, whatever the channel; the place is not in it."""
    for antennas in (1, 3):
        channel = place(rng, antennas)
        csi = heard(channel, rng, 400, snr_db=30)
        found = channel_state(csi, NUMBERS).noise_level(np.zeros(400, dtype=np.int64))
        power = np.mean(np.sum(np.abs(channel) ** 2, axis=0))
        assert 0.8 < found / (1e-3 / power) < 1.4


def test_error_bars_are_the_scatter(rng: np.random.Generator) -> None:
    """Of one antenna. Several are weighed anew in each frame, and what that scatters is in S."""
    csi = heard(place(rng, 1), rng, 500, snr_db=30)
    state = channel_state(csi, NUMBERS)
    values, variance = state.features(state.noise_level(np.zeros(500, dtype=np.int64)))
    assert 0.7 < np.median(values.var(axis=0) / variance.mean(axis=0)) < 1.3


def test_devices_are_told_apart_in_places_never_seen(rng: np.random.Generator) -> None:
    """From one place, where nothing but the prior says what is the device and what the place."""
    own = filters(rng, 4)
    csi, device, where = [], [], []
    for number in range(6):
        for who in range(4):
            csi.append(heard(place(rng, 2) * own[who], rng, 30, snr_db=35))
            device += [who] * 30
            where += [number] * 30
    state = channel_state(np.concatenate(csi), NUMBERS)
    devices, places = np.array(device), np.array(where)
    values, variance = state.features(state.noise_level(4 * places + devices))
    names = ["a", "b", "c", "d"]

    def right(prior: NDArray[Any] | None) -> float:
        here = places == 0
        backend = fit_backend(
            values[here], variance[here], devices[here], places[here], names, place_prior=prior, white=0.001
        )
        found = backend.log_likelihood(backend.evidence(values[~here], variance[~here])).argmax(axis=1)
        return float(np.mean(found == devices[~here]))

    assert right(PRIOR) > 0.95
    assert right(None) < right(PRIOR) - 0.1


def test_one_subcarrier_at_zero_leaves_the_others_where_they_are(rng: np.random.Generator) -> None:
    csi = heard(place(rng, 4), rng, 20, snr_db=40)
    whole = channel_state(csi, NUMBERS)
    csi[:, 0, 12] = 0
    faded = channel_state(csi, NUMBERS)
    others = np.arange(len(NUMBERS)) != 12
    assert np.abs(faded.value - whole.value)[:, others].max() < 0.3


def test_a_silent_antenna_counts_for_nothing(rng: np.random.Generator) -> None:
    csi = heard(place(rng, 3), rng, 10, snr_db=30)
    csi[:, 1] = 0
    broken = csi.copy()
    broken[:, 1, 3] = np.nan
    two = channel_state(csi[:, [0, 2]], NUMBERS)
    for state in (channel_state(csi, NUMBERS), channel_state(broken, NUMBERS)):
        np.testing.assert_allclose(state.value, two.value, atol=1e-9)
        np.testing.assert_allclose(state.power, two.power)


def test_bad_channel_state_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(DataError, match=r"shape \(2, 29\): expected \(frames, antennas, 29 subcarriers\)"):
        channel_state(np.ones((2, 29)), NUMBERS)
    with pytest.raises(DataError, match="4 subcarriers: expected 8"):
        channel_state(np.ones((2, 1, 4)), np.arange(4))
    silent = heard(place(rng, 2), rng, 3, snr_db=30)
    silent[1] = 0
    with pytest.raises(DataError, match="frame 1: no antenna holds anything"):
        channel_state(silent, NUMBERS)
    state = channel_state(heard(place(rng, 2), rng, 3, snr_db=30), NUMBERS)
    with pytest.raises(DataError, match="three frames or more"):
        state.noise_level(np.arange(3))
