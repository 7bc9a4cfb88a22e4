"""The fast path agrees with the sum over rays written down directly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.signal.simulation import channel
from pisa_capc.signal.simulation.capture import capture_stream, draw_rays, prepare, propagate, wavelength_m
from pisa_capc.signal.simulation.scene import load_scene
from tests.reference.propagation import multitone, received_frame


@pytest.mark.parametrize(
    ("kind", "samples", "capture", "error_db"),
    [("wifi", 320, "L1", -48), ("wifi", 320, "M", -48), ("lora", 8192, "L3", -60), ("lora", 8192, "M", -60)],
)
def test_what_arrives_is_the_sum_over_rays(kind: str, samples: int, capture: str, error_db: float) -> None:
    """A sum of tones over the occupied band, each ray delayed, turned and Doppler-shifted exactly at every sample."""
    scene = load_scene(kind, samples=samples)
    waveform, setting = scene.waveform, scene.captures[capture]
    spec = CaptureSpec("E2", "D03", capture, 3)
    rng = np.random.default_rng(0)
    frequency_hz = np.linspace(-1, 1, 53) * waveform.occupied * waveform.sample_rate_hz / 2
    coefficient = rng.choice([-1, 1], 53) / np.sqrt(53)

    taps = prepare(scene, 2026, spec).taps
    half_width, history = waveform.channel_half_width_samples, taps.shape[-1] - 1
    sample_time_s = np.arange(-history + half_width, samples + half_width) / waveform.sample_rate_hz
    sent = multitone(frequency_hz, coefficient, sample_time_s).astype(np.complex64)
    fast = propagate(np.broadcast_to(sent, (3, sent.size)), taps)

    walk = capture_stream(scene, 2026, spec, "walk")
    position, velocity = channel.random_walk_m(
        walk, 3, waveform.frame_interval_s, setting.speed_m_s, setting.turning_rad_per_sqrt_s
    )
    for frame in (0, 2):
        expected = received_frame(
            frequency_hz,
            coefficient,
            draw_rays(scene, 2026, spec),
            scene.receiver.geometry,
            wavelength_m(scene),
            position[frame],
            velocity[frame],
            frame * waveform.frame_interval_s,
            np.arange(samples) / waveform.sample_rate_hz,
        )
        error = np.sum(np.abs(fast[frame] - expected) ** 2) / np.sum(np.abs(expected) ** 2)
        assert 10 * np.log10(error) < error_db, frame


def test_within_a_full_lora_frame_a_walk_turns_the_channel_by_degrees() -> None:
    """Holding the channel still over the frame would be wrong by far more than the fast path is."""
    scene = load_scene("lora", samples=8192)
    scene = replace(scene, captures={k: replace(c, moving_fraction=0.0) for k, c in scene.captures.items()})
    taps = prepare(scene, 2026, CaptureSpec("E2", "D03", "M", 64)).taps
    change = np.sum(np.abs(taps[:, -1] - taps[:, 0]) ** 2) / np.sum(np.abs(taps[:, 0]) ** 2)
    # Isotropic departures: E|Δh|² = 2 (1 − J0(2π f_D T)), f_D T = 2.896 Hz · 8.192 ms.
    assert change == pytest.approx(2 * (2 * np.pi * 2.896 * 8.192e-3 / 2) ** 2, rel=0.3)
