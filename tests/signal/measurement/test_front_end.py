"""What is taken off channel state, and that it is taken off once and alike."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.frames import Frames
from pisa_capc.data.store.dataset import FRONTS, Subcarriers
from pisa_capc.signal.measurement.front_end import each_antenna, front_end_for, through
from tests.channels import NUMBERS, channel_frames


@pytest.fixture(scope="module")
def frames() -> Frames:
    return channel_frames(frames=5)


def imported_with(frames: Frames, front: str) -> Frames:
    """The frames as an import stores them that has taken something off."""
    return through(frames, front_end_for(frames.subcarriers, front))


def test_each_antenna_loses_gain_phase_and_slope_and_nothing_else(frames: Frames) -> None:
    csi = frames.iq[..., 1:-1]
    k = NUMBERS[1:-1]
    turn = np.exp(1j * (np.array([0.4, -2])[:, None] + np.array([0.2, -0.1])[:, None] * k))
    found = each_antenna(csi * np.array([[3], [0.2]]) * turn, k)
    np.testing.assert_allclose(found, each_antenna(csi, k), atol=1e-5)
    np.testing.assert_allclose(np.mean(np.abs(found) ** 2, axis=-1), 1, rtol=1e-5)
    shape = np.abs(csi) / np.abs(csi).mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(np.abs(found) / np.abs(found).mean(axis=-1, keepdims=True), shape, rtol=1e-4)


def test_silent_antennas_stay_silent_and_nan_is_not_hidden(frames: Frames) -> None:
    csi = frames.iq[:3].copy()
    csi[0, 1] = 0
    csi[1, 0, 4] = np.nan
    found = each_antenna(csi, NUMBERS)
    assert not found[0, 1].any()
    assert np.isnan(found[1, 0]).any()
    assert np.isfinite(found[2]).all()
    assert np.isfinite(found[1, 1]).all()


def test_empty_subcarriers_are_left_out_and_the_numbers_kept(frames: Frames) -> None:
    assert frames.subcarriers is not None
    behind = through(frames, front_end_for(frames.subcarriers))
    assert behind.samples == behind.iq.shape[-1] == len(NUMBERS) - 2
    assert behind.subcarriers == Subcarriers(frames.subcarriers.used, (), frames.subcarriers.spacing_hz, "antenna")
    assert through(behind, behind.subcarriers) is behind
    cut = behind.segment(8)
    np.testing.assert_array_equal(cut.iq, behind.iq[..., :8])


def test_the_common_front_end_leaves_what_each_antenna_needs(frames: Frames) -> None:
    """So an import that took off one phase and slope serves the front end per antenna as well."""
    common = imported_with(frames, "common")
    assert common.subcarriers is not None
    again = through(common, front_end_for(common.subcarriers, "antenna")).iq
    np.testing.assert_allclose(again, through(frames, front_end_for(frames.subcarriers, "antenna")).iq, atol=1e-5)
    assert front_end_for(common.subcarriers) == common.subcarriers  # as it was imported, unless something is named


def test_what_is_gone_cannot_be_asked_for(frames: Frames) -> None:
    common, each = (imported_with(frames, front) for front in ("common", "antenna"))
    for given, asked in ((common, "none"), (each, "none"), (each, "common")):
        with pytest.raises(ConfigError, match=r"these frames have lost .* already. Import them again"):
            front_end_for(given.subcarriers, asked)
    with pytest.raises(ConfigError, match="expected auto, none, common, antenna"):
        front_end_for(frames.subcarriers, "both")
    assert front_end_for(None) is None
    for front in FRONTS:
        with pytest.raises(ConfigError, match=r"says which subcarriers it holds. Import it again"):
            front_end_for(None, front)
