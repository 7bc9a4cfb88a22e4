"""Frames without the preamble are not taken by the methods that equalise with it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames
from pisa_capc.data.geometry import square
from pisa_capc.data.protocol import split
from pisa_capc.model.methods import Method, Setup, build_method
from pisa_capc.model.methods.equaliser import Equaliser
from pisa_capc.model.methods.preamble import noise_share, preamble_share
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.simulation.generate import simulate
from pisa_capc.signal.waveforms import WAVEFORMS

SAMPLES, TAPS = 320, 8
LONG = [name for name in WAVEFORMS if len(WAVEFORMS[name].preamble()) >= SAMPLES]


def noise(*shape: int, seed: int = 0) -> NDArray[np.complex64]:
    parts = np.random.default_rng(seed).normal(size=(*shape, 2)).astype(np.float32)
    return np.asarray(parts.view(np.complex64)[..., 0])


def sent(waveform: str, snr_db: float, frames: int = 40) -> NDArray[np.complex64]:
    """Preambles behind random channels and offsets of up to 40 ppm, four antennas, in noise."""
    random = np.random.default_rng(1)
    offset = random.uniform(-0.011, 0.011, (frames, 1, 1))
    wave = WAVEFORMS[waveform].preamble()[:SAMPLES] * np.exp(2j * np.pi * offset * np.arange(SAMPLES))
    gain = noise(frames, 4, 3, seed=2) * 10.0 ** -np.arange(3)
    echoes = sum(gain[..., i, None] * np.roll(wave, i, -1) * (np.arange(SAMPLES) >= i) for i in range(3))
    strength = np.sqrt((np.abs(echoes) ** 2).mean() / 2) * 10 ** (-snr_db / 20)
    return (echoes + strength * noise(frames, 4, SAMPLES, seed=3)).astype(np.complex64)


def frames_of(iq: NDArray[np.complex64], rate_hz: float) -> Frames:
    """Half of the frames in E1, the others in E2."""
    names = np.repeat(["E1", "E2"], [len(iq) // 2, len(iq) - len(iq) // 2])
    return Frames.from_arrays(iq, device=["D1", "D2"] * (len(iq) // 2), environment=names, sample_rate_hz=rate_hz)


def method(name: str = "eada", rate_hz: float = 20e6, **settings: object) -> Method:
    return build_method(name, Setup(2, "cnn", square(), (0, 1), SAMPLES, rate_hz), settings=settings)


@pytest.mark.parametrize("waveform", LONG)
def test_the_share_of_noise_follows_its_distribution(waveform: str) -> None:
    share = preamble_share(Equaliser(waveform, SAMPLES, TAPS, 0.01, 0.01), noise(4000, 1, SAMPLES))
    assert share.mean() == pytest.approx(TAPS / SAMPLES, rel=0.08)  # a little more: the offset is fitted to it
    assert share.max() < noise_share(SAMPLES, TAPS)
    assert (share > 0.6 * noise_share(SAMPLES, TAPS)).any()  # the level is not out of all proportion


def test_the_level_is_what_the_documentation_says() -> None:
    assert noise_share(320, 8) == pytest.approx(0.10, abs=0.005)
    assert noise_share(320, 8) == pytest.approx(10**-0.95 / (1 + 10**-0.95), abs=0.005)
    assert noise_share(64, 8) > noise_share(320, 8)


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 20.0])
@pytest.mark.parametrize("waveform", LONG)
def test_the_share_of_a_preamble_tells_its_signal_to_noise_ratio(waveform: str, snr_db: float) -> None:
    iq = sent(waveform, snr_db)
    found = np.median(preamble_share(Equaliser(waveform, SAMPLES, TAPS, 0.01, 0.01), iq))
    ratio = 10 ** (snr_db / 10)
    assert found == pytest.approx(ratio / (1 + ratio), abs=0.12)
    rate_hz = WAVEFORMS[waveform].sample_rate_hz
    method(rate_hz=rate_hz).check_source(frames_of(iq, rate_hz))


def test_silent_antennas_do_not_count() -> None:
    equaliser = Equaliser("wifi", SAMPLES, TAPS, 0.01, 0.01)
    iq = sent("wifi", 20.0)
    iq[:, 2] = 0
    assert preamble_share(equaliser, iq).min() > 0.8
    assert (preamble_share(equaliser, 0 * iq) == 0).all()


@pytest.mark.parametrize("name", ["eada", "equalised", "pisa-equalised", "aligned", "pisa-aligned"])
def test_noise_is_refused_before_it_is_trained_on(name: str) -> None:
    frames = frames_of(noise(80, 4, SAMPLES), 20e6)
    frames = Frames.concatenate([frames, replace(frames, environments=("E3", "E4"))])
    run = Run(split(frames, ["E1", "E2"], "E3", 1), 1)
    with pytest.raises(
        DataError, match=r"frames of E1 .* preamble of wifi, .* at 2e\+07 samples/s: it explains 0\.0\d"
    ):
        fit([run], method=name, encoder="cnn", device="cpu", show=False)


def test_one_environment_without_the_preamble_is_enough() -> None:
    iq = sent("wifi", 20.0)
    iq[20:] = noise(20, 4, SAMPLES)
    with pytest.raises(
        DataError, match=r"frames of E2 .* Set waveform .* \(.*lora or wifi.*\), correct the sample rate"
    ):
        method().check_source(frames_of(iq, 20e6))


def test_lora_frames_at_the_sample_rate_of_wifi_are_recognised() -> None:
    iq = sent("lora", 20.0)
    with pytest.raises(DataError, match=r"preamble of wifi, .*, and that of lora 0\.9\d"):
        method().check_source(frames_of(iq, 20e6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method(waveform="lora").check_source(frames_of(iq, 20e6))


def test_a_waveform_that_was_named_is_only_doubted() -> None:
    with pytest.warns(UserWarning, match=r"preamble of lora, as the setting waveform says: it explains 0\.0\d"):
        method(waveform="lora").check_source(frames_of(noise(40, 4, SAMPLES), 20e6))


@pytest.mark.parametrize("waveform", ["wifi", "lora"])  # of the scenes that are called the same
def test_every_environment_of_the_simulated_sets_passes(waveform: str, tmp_path: Path) -> None:
    frames = simulate(waveform, tmp_path / waveform, scale=0.01, workers=1, show_progress=False).segment(SAMPLES)
    assert set(frames.environments) == {"E1", "E2", "E3"}
    method(rate_hz=frames.sample_rate_hz).check_source(frames)
    equaliser = Equaliser(waveform, SAMPLES, TAPS, 0.01, 0.01)
    assert preamble_share(equaliser, frames.iq).min() > 3 * noise_share(SAMPLES, TAPS)  # not in the median alone
