"""The informed receiver is right where theory knows the answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import i0e
from scipy.stats import ncx2, norm
from typer.testing import CliRunner

from pisa_capc.cli import app
from pisa_capc.cli import check as _registers_the_command  # noqa: F401
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.evidence.limit import FrequencyPrior, InformedReceiver, KnownChannel, UnknownChannel, limit
from pisa_capc.signal.simulation.generate import generate
from tests.problems import write_small

SAMPLES = 48
TRIALS = 40_000


def noise(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Circular, E|z|² = 1."""
    return rng.normal(0, np.sqrt(0.5), (*shape, 2)) @ [1, 1j]


def waveforms(rng: np.random.Generator, devices: int, apart: float, samples: int = SAMPLES) -> np.ndarray:
    """One waveform of unit power with `apart` of its amplitude changed, differently for each device."""
    found = noise(rng, samples) + apart * noise(rng, devices, samples)
    return found / np.sqrt(np.mean(np.abs(found) ** 2, axis=-1, keepdims=True))


def errors(receiver: InformedReceiver, y: np.ndarray, label: np.ndarray) -> float:
    return float(np.mean(receiver.log_likelihood(y).argmax(1) != label))


def within_chance(p: float, trials: int = TRIALS) -> float:
    return float(4 * np.sqrt(p * (1 - p) / trials))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_two_known_waveforms_in_noise_are_confused_as_often_as_their_distance_says(sigma: float) -> None:
    rng = np.random.default_rng(1)
    sent = waveforms(rng, 2, 0.2)
    label = rng.integers(0, 2, TRIALS)
    y = sent[label, None] + sigma * noise(rng, TRIALS, 1, SAMPLES)
    distance2 = np.sum(np.abs(sent[0] - sent[1]) ** 2)
    expected = norm.sf(np.sqrt(distance2 / (2 * sigma**2)))
    assert 1e-3 < expected < 0.45
    found = errors(InformedReceiver(KnownChannel(sent)), y, label)
    assert found == pytest.approx(expected, abs=within_chance(expected))


@pytest.mark.parametrize("sigma", [2.0, 3.0])
def test_with_unknown_phase_and_gain_it_is_the_noncoherent_detector(sigma: float) -> None:
    """Two signals of equal energy and correlation ρ: P = Q₁(a, b) − ½ e^{−(a² + b²)/2} I₀(ab) (Proakis, 5-4)."""
    rng = np.random.default_rng(2)
    sent = waveforms(rng, 2, 1.0)
    label = rng.integers(0, 2, TRIALS)
    turned = np.exp(2j * np.pi * rng.random((TRIALS, 1, 1))) * sent[label, None]
    y = turned + sigma * noise(rng, TRIALS, 1, SAMPLES)
    rho = np.abs(np.vdot(*sent)) / SAMPLES
    ratio = SAMPLES / sigma**2
    a, b = (np.sqrt(ratio / 2 * (1 + sign * np.sqrt(1 - rho**2))) for sign in (-1, 1))
    expected = ncx2.sf(b**2, 2, a**2) - np.exp(-((a - b) ** 2) / 2) * i0e(a * b) / 2
    receiver = InformedReceiver(UnknownChannel.of_taps(sent, SAMPLES, 0, 0))
    assert 5e-3 < expected < 0.4
    assert errors(receiver, y, label) == pytest.approx(expected, abs=within_chance(expected))


def received(
    rng: np.random.Generator, sent: np.ndarray, label: np.ndarray, before: int, after: int, span: float
) -> np.ndarray:
    """Frames of two antennas behind random channels with taps at −before … after, at random frequencies."""
    samples = sent.shape[1] - before
    silent = np.concatenate([np.zeros((len(sent), after)), sent], axis=1)
    echoes = np.lib.stride_tricks.sliding_window_view(silent, samples, axis=-1)[label]
    taps = noise(rng, len(label), 2, before + after + 1)
    f = rng.uniform(-span, span, (len(label), 1, 1))
    return (taps @ echoes) * np.exp(2j * np.pi * f * np.arange(samples))


@pytest.mark.parametrize("sharing", ["frame", "antenna"])
def test_without_noise_no_channel_and_no_offset_hides_a_device(sharing: str) -> None:
    rng = np.random.default_rng(3)
    sent = waveforms(rng, 5, 0.01, 320 + 2)
    label = np.arange(50) % 5
    receiver = InformedReceiver(UnknownChannel.of_taps(sent, 320, 2, 3), span=1e-3, sharing=sharing)
    assert errors(receiver, received(rng, sent, label, 2, 3, 1e-3), label) == 0


def test_the_frequency_is_found_and_then_does_no_harm() -> None:
    rng = np.random.default_rng(4)
    sent = waveforms(rng, 5, 0.1, 322)
    label = np.arange(40) % 5
    still = received(rng, sent, label, 2, 3, 0.0) + 0.3 * noise(rng, 40, 2, 320)
    turn = np.exp(2j * np.pi * rng.uniform(-0.01, 0.01, (40, 1, 1)) * np.arange(320))
    channel = UnknownChannel.of_taps(sent, 320, 2, 3)
    receiver = InformedReceiver(channel, span=0.012)
    np.testing.assert_allclose(receiver.log_likelihood(still * turn), receiver.log_likelihood(still), atol=0.02)
    known = InformedReceiver(channel).log_likelihood(still)
    assert (receiver.log_likelihood(still * turn) >= known - 0.02).all()  # a maximum, over more


def test_the_fast_residual_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(5)
    sent = waveforms(rng, 2, 0.3, 66)
    y = noise(rng, 3, 64)
    channel = UnknownChannel.of_taps(sent, 64, 2, 4)
    for k in range(2):
        echoes = np.zeros((64, 7), dtype=complex)
        for column, delay in enumerate(range(-2, 5)):
            for n in range(max(0, delay), 64):
                echoes[n, column] = sent[k, n - delay]
        taps = np.linalg.lstsq(echoes, y.T, rcond=None)[0]
        np.testing.assert_allclose(channel.residual(y, k), np.sum(np.abs(y.T - echoes @ taps) ** 2, axis=0))


def test_what_is_known_of_the_frequency_decides_between_equal_waveforms() -> None:
    rng = np.random.default_rng(6)
    sent = np.repeat(waveforms(rng, 1, 0.0, 320), 2, axis=0)
    label = np.arange(60) % 2
    mean, std = np.array([-1e-3, 1e-3]), np.full(2, 2e-4)
    turn = np.exp(2j * np.pi * mean[label, None, None] * np.arange(320))
    y = sent[label, None] * turn + 0.1 * noise(rng, 60, 1, 320)
    channel = UnknownChannel.of_taps(sent, 320, 0, 0)
    assert errors(InformedReceiver(channel, 2e-3, prior=FrequencyPrior(mean, std)), y, label) == 0
    assert errors(InformedReceiver(channel, 2e-3), y, label) == 0.5  # a tie, which goes to the first


SAME = """\
devices: 4
absent: []
hardware:
  cfo_ppm: {std: 0.0}
  antenna_cfo_ppm: {std: 0.0}
  iq_gain_db: {std: 0.0}
  iq_phase_deg: {std: 0.0}
  dc_offset_db: {mean: -300.0, std: 0.0, low: -300.0}
  pa_backoff_db: {std: 0.0}
  pa_smoothness: {std: 0.0}
  pa_am_pm_deg: {std: 0.0}
"""


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limit") / "lora"
    generate("lora", folder, scale=0.001, workers=1, show_progress=False)
    return folder


def test_devices_of_the_same_hardware_are_told_apart_by_chance_alone(tmp_path: Path) -> None:
    own = tmp_path / "same.yaml"
    own.write_text(SAME)
    generate("wifi", tmp_path / "same", scale=0.001, scene=own, workers=1, show_progress=False)
    found = limit(tmp_path / "same", workers=1, show_progress=False)
    assert found.scores.accuracy == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / 384))


def test_the_devices_of_a_scene_are_told_apart_and_better_with_less_noise(lora: Path) -> None:
    found = limit(lora, workers=1, show_progress=False)
    assert found.scores.macro_f1 > 0.95
    assert set(found.scores.per_capture) == {f"E{e}/{c}" for e in (1, 2, 3) for c in ("L1", "L2", "L3", "M")}
    assert sum(own.frames for own in found.by_snr.values()) == 119 * 8
    noisy, clean = found.by_snr["18 to 21 dB"], found.by_snr["27 to 30 dB"]
    assert noisy.accuracy < clean.accuracy
    informed = limit(lora, profile_cfo=True, frames=3, workers=1, show_progress=False)
    assert informed.scores.macro_f1 >= found.scores.macro_f1 - 0.01


def test_the_command_gives_the_limit_of_one_environment(lora: Path) -> None:
    line = ["limit", str(lora), "--environment", "E1", "--frames", "2", "--workers", "1"]
    result = CliRunner().invoke(app, [*line, "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found["per_capture"]) == {"E1/L1", "E1/L2", "E1/L3", "E1/M"}
    assert (found["samples"], found["frames"], found["taps"]) == (320, 2, [-1, 2])
    assert "taps -1 to 2" in CliRunner().invoke(app, line).stdout


def test_what_nobody_can_know_is_refused_in_words(lora: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not made by `pisa simulate`"):
        limit(write_small(tmp_path / "recorded"))
    with pytest.raises(ConfigError, match="unknown environment 'E4'"):
        limit(lora, environment="E4")
    with pytest.raises(ConfigError, match="frames: expected at least 1, found 0"):
        limit(lora, frames=0)
    own = tmp_path / "one.yaml"
    own.write_text("devices: 1\nabsent: []\n")
    generate("wifi", tmp_path / "long", scale=0.001, samples=800, scene=own, workers=1, show_progress=False)
    with pytest.raises(ConfigError, match="would have to know the payload"):
        limit(tmp_path / "long", samples=800)
