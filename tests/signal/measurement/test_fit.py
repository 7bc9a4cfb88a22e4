"""Frames for which the model does not hold are suspected, and one in a hundred of the others at most."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import legendre

from pisa_capc.signal.measurement.fit import GoodnessOfFit, walk
from pisa_capc.signal.simulation.hardware import phase_noise_rad
from pisa_capc.signal.waveforms import WAVEFORMS
from tests.signal.measurement.frames import Complex, received, sent_with, white

FLAWED = {"image": 0.03 - 0.02j, "leakage": 0.02 + 0.01j, "compression": -0.05 + 0.03j}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(8)


def heard(rng: np.random.Generator, frames: int, snr_db: float, linewidth_hz: float = 0.0) -> Complex:
    """From a transmitter whose phase walks."""
    normal = white(rng, frames, 320).astype(np.complex64)
    turned = np.exp(1j * phase_noise_rad(normal, 0.0, linewidth_hz, 20e6))
    y = np.concatenate([received(sent_with("wifi", FLAWED)[:320] * one, 1, rng) for one in turned])
    return y + 10 ** (-snr_db / 20) * white(rng, *y.shape)


def suspected(iq: Complex, waveform: str = "wifi") -> float:
    return float(np.mean(GoodnessOfFit(WAVEFORMS[waveform], iq.shape[-1]).chance(iq) < 0.01))


@pytest.mark.parametrize(("snr_db", "linewidth_hz"), [(5, 0), (20, 50), (30, 100)])
def test_of_clean_frames_one_in_a_hundred_is_suspected(
    snr_db: float, linewidth_hz: float, rng: np.random.Generator
) -> None:
    """An ordinary oscillator is clean, too."""
    assert suspected(heard(rng, 600, snr_db, linewidth_hz)) < 0.02


def test_of_lora_too(rng: np.random.Generator) -> None:
    sent = sent_with("lora", {"image": 0.03 - 0.02j, "leakage": 0.02 + 0.01j})
    assert suspected(received(sent, 600, rng, 20, echo=0.1), "lora") < 0.02


def test_in_long_frames_a_channel_may_move(rng: np.random.Generator) -> None:
    """On each antenna by itself, by nine degrees in eight chirps; a tone is found all the same."""
    sent = np.tile(sent_with("lora", {"image": 0.03 - 0.02j, "leakage": 0.02 + 0.01j})[:1024], 8)
    first, last = white(rng, 100, 4, 1), white(rng, 100, 4, 1)
    turn = np.linspace(0, 0.15, len(sent))
    y = (first * np.cos(turn) + last * np.sin(turn)) * sent + 0.1 * white(rng, 100, 4, len(sent))
    assert suspected(y, "lora") < 0.04
    tone = 0.2 * np.exp(2j * np.pi * 0.21 * np.arange(len(sent)))
    assert suspected(y[:20] + tone, "lora") > 0.9


def test_a_phase_that_walks_far_is_found(rng: np.random.Generator) -> None:
    assert suspected(heard(rng, 100, 20, linewidth_hz=5000)) > 0.9


def test_a_narrow_signal_is_found_wherever_it_lies(rng: np.random.Generator) -> None:
    iq = heard(rng, 100, 25)
    tone = np.exp(2j * np.pi * rng.uniform(-0.4, 0.4, (100, 1, 1)) * np.arange(320))
    gain = np.exp(2j * np.pi * rng.random((100, 4, 1)))
    assert suspected(iq + 0.1 * gain * tone) > 0.9


def test_a_flaw_that_the_model_does_not_have_is_found(rng: np.random.Generator) -> None:
    sent = sent_with("wifi", FLAWED)
    leaning = sent + 0.05 * np.pad(sent, (1, 0))[:-1].conj()
    assert suspected(received(leaning, 100, rng, 25)) > 0.9


def test_missing_antennas_and_frames(rng: np.random.Generator) -> None:
    iq = heard(rng, 12, 20)
    fit = GoodnessOfFit(WAVEFORMS["wifi"], 320)
    alone = fit.chance(iq[:, :3])
    iq[:, 3] = np.nan
    np.testing.assert_allclose(fit.chance(iq), alone, rtol=1e-3)
    iq[4] = 0
    assert np.isnan(fit.chance(iq)).tolist() == [row == 4 for row in range(12)]
    assert len(fit.chance(iq[:0])) == 0


def test_short_frames_are_judged_without_the_phase(rng: np.random.Generator) -> None:
    fit = GoodnessOfFit(WAVEFORMS["wifi"], 256)
    assert not any(name.startswith("phase") for name in fit.estimator.flaws)
    assert np.mean(fit.chance(heard(rng, 300, 20)) < 0.01) < 0.03


def test_the_coefficients_of_a_walk_are_as_large_as_computed(rng: np.random.Generator) -> None:
    walks = np.cumsum(rng.normal(size=(4000, 200)), axis=1)
    found = legendre.legfit(np.linspace(-1, 1, 200), walks.T, 3)[2:]
    np.testing.assert_allclose(found @ found.T / 4000, walk(200, [2, 3]), atol=0.06 * walk(200, [2])[0, 0])
