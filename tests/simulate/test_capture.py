"""A rendered capture: what is fixed stays fixed, what varies varies, and pieces do not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pisa_capc.simulate import capture as module
from pisa_capc.simulate.capture import Capture, device_profile, draw_rays, prepare, render
from pisa_capc.simulate.hardware import Spread
from pisa_capc.simulate.scene import Scene, load_scene
from pisa_capc.store.native import CaptureSpec
from pisa_capc.waveforms import WAVEFORMS
from pisa_capc.waveforms.wifi import preamble


def rendered(capture: Capture) -> np.ndarray:
    return np.concatenate(list(render(capture)))


def clean(scene: Scene) -> Scene:
    """The scene without noise, jitter and hardware flaws."""
    none = Spread(0.0, 0.0, 0.0, 0.0)
    hardware = replace(scene.hardware, **dict.fromkeys(vars(scene.hardware), none))
    hardware = replace(
        hardware,
        dc_offset_db=Spread(-200.0, 0, -200, -200),
        pa_backoff_db=Spread(60.0, 0, 60, 60),
        pa_smoothness=Spread(3.0, 0, 3, 3),
    )
    frequency = replace(
        scene.frequency, environment_ppm=none, capture_ppm=none, drift_ppm_per_s=none, jitter_hz=none,
        residual_jitter_hz=none,
    )  # fmt: skip
    captures = {k: replace(c, snr_db=Spread(200.0, 0, 200, 200)) for k, c in scene.captures.items()}
    return replace(
        scene,
        hardware=hardware,
        frequency=frequency,
        captures=captures,
        receiver=replace(scene.receiver, timing_jitter_samples=0.0, equalise_antennas=False),
    )


# Of the simulator's first revision, to which records refer: three samples of frame 3, antenna 1, and its CFO in Hz.
FIRST_REVISION = {
    ("wifi", 320): ([-0.1357 - 0.1608j, -0.6592 + 0.9676j, 0.2514 - 1.6675j], -28806.387),
    ("wifi", 3920): ([-0.0318 - 0.2897j, 1.2606 - 0.9280j, 0.4633 - 1.0380j], -28806.387),
    ("lora", 320): ([-0.9782 - 0.7254j, 0.4295 + 1.1060j, 0.8338 - 0.7821j], -554.789),
    ("lora", 8192): ([-0.8156 - 0.7613j, -0.8630 - 0.6516j, -0.8720 - 0.7484j], -554.789),
}


@pytest.mark.parametrize(("name", "samples"), FIRST_REVISION)
def test_the_samples_of_the_first_revision_stay(name: str, samples: int) -> None:
    known, cfo_hz = FIRST_REVISION[name, samples]
    capture = prepare(load_scene(name, samples=samples), 2026, CaptureSpec("E2", "D03", "M", 8))
    np.testing.assert_allclose(rendered(capture)[3, 1, [0, samples // 2, -1]], known, atol=2e-4)
    assert capture.cfo_hz[3, 1] == pytest.approx(cfo_hz, abs=1e-3)


def test_a_device_is_the_same_in_every_environment_and_capture() -> None:
    scene = load_scene("wifi")
    specs = [CaptureSpec(e, "D03", c, 8) for e in scene.environments for c in scene.captures]
    assert len({prepare(scene, 2026, spec).profile for spec in specs}) == 1
    assert device_profile(scene, 2026, "D03") != device_profile(scene, 2026, "D04")
    assert device_profile(scene, 2026, "D03") != device_profile(scene, 2027, "D03")


def test_nominal_cfo_beside_the_iq_belongs_to_the_device() -> None:
    scene = load_scene("wifi")
    for device in ("D01", "D07"):
        nominal = device_profile(scene, 2026, device).cfo_ppm
        for environment in scene.environments:
            cfo_hz = prepare(scene, 2026, CaptureSpec(environment, device, "L1", 16)).cfo_hz
            assert cfo_hz.shape == (16, 4)
            assert cfo_hz.mean() / 5825 == pytest.approx(nominal, abs=1.4)  # 1 ppm of place, 0.3 of capture, jitter


@pytest.mark.parametrize("kind", ["wifi", "lora"])
def test_with_one_direct_ray_and_clean_hardware_the_base_waveform_arrives(kind: str) -> None:
    scene = clean(load_scene(kind))
    capture = prepare(scene, 1, CaptureSpec("E1", "D01", "L1", 8))
    half_width = scene.waveform.channel_half_width_samples
    taps = np.zeros((8, 1, 4, 2 * half_width + 1), dtype=np.complex64)
    taps[..., half_width] = 1
    y = rendered(replace(capture, taps=taps, phase_rad=np.zeros(8)))
    base = WAVEFORMS[kind].preamble()[:320]
    np.testing.assert_allclose(y, np.broadcast_to(base, y.shape), atol=2e-3)


def test_a_timing_error_turns_the_subcarriers_by_their_frequency_times_the_delay() -> None:
    scene = clean(load_scene("wifi"))
    capture = prepare(scene, 1, CaptureSpec("E1", "D01", "L1", 8))
    half_width = scene.waveform.channel_half_width_samples
    taps = np.zeros((8, 1, 4, 2 * half_width + 1), dtype=np.complex64)
    taps[..., half_width] = 1
    delay_samples = np.linspace(-0.5, 0.5, 8)
    y = rendered(replace(capture, taps=taps, phase_rad=np.zeros(8), delay_samples=delay_samples))[:, 0]
    used = np.r_[-26:0, 1:27]
    window = slice(224, 288)  # whole symbols of the L-LTF on either side
    spectrum = np.fft.fft(y[:, window])[:, used] / np.fft.fft(preamble()[window])[used]
    np.testing.assert_allclose(np.angle(spectrum), -2 * np.pi * np.outer(delay_samples, used) / 64, atol=0.02)


def test_frames_longer_than_the_preamble_carry_a_random_payload_behind_the_same_preamble() -> None:
    scene = clean(load_scene("wifi", samples=1200))
    capture = prepare(scene, 1, CaptureSpec("E1", "D01", "L1", 8))
    half_width = scene.waveform.channel_half_width_samples
    taps = np.zeros((8, 1, 4, 2 * half_width + 1), dtype=np.complex64)
    taps[..., half_width] = 1
    y = rendered(replace(capture, taps=taps, phase_rad=np.zeros(8)))[:, 0]
    np.testing.assert_allclose(y[:, :320] / y[:, 192:193] * y[0, 192], np.broadcast_to(y[0, :320], (8, 320)), atol=2e-3)
    # Behind preamble, L-SIG and the SERVICE field the payloads are independent.
    correlation = np.abs(np.vdot(y[0, 480:], y[1, 480:])) / np.linalg.norm(y[0, 480:]) / np.linalg.norm(y[1, 480:])
    assert correlation < 0.2


def test_a_mobile_channel_fades_and_a_static_one_stays() -> None:
    scene = clean(load_scene("wifi"))
    still = replace(scene, captures={k: replace(c, moving_fraction=0.0) for k, c in scene.captures.items()})
    change = {}
    for name in ("L3", "M"):
        taps = prepare(still, 1, CaptureSpec("E1", "D01", name, 64)).taps
        change[name] = np.sum(np.abs(taps[-1] - taps[0]) ** 2) / np.sum(np.abs(taps[0]) ** 2)
    assert change["L3"] < 1e-9
    assert change["M"] > 0.1


def test_line_of_sight_captures_alone_have_a_direct_ray() -> None:
    scene = load_scene("wifi")
    for name, setting in scene.captures.items():
        rays = draw_rays(scene, 2026, CaptureSpec("E2", "D02", name, 8))
        assert np.sum(rays.amplitude**2) == pytest.approx(1)
        direct = rays.amplitude[0] ** 2 > 0.4
        assert direct == setting.line_of_sight


def test_devices_at_one_place_share_directions_but_not_phases() -> None:
    scene = load_scene("wifi")
    first, second = (draw_rays(scene, 2026, CaptureSpec("E1", device, "L1", 8)) for device in ("D01", "D02"))
    assert first.arrival_rad[0] == second.arrival_rad[0]
    assert not np.allclose(first.phase_rad[1:], second.phase_rad[1:])


def test_snr_of_a_capture_is_that_of_its_frames() -> None:
    scene = load_scene("wifi")
    scene = replace(clean(scene), captures=scene.captures)
    capture = prepare(scene, 3, CaptureSpec("E1", "D01", "L1", 200))
    half_width = scene.waveform.channel_half_width_samples
    taps = np.zeros((200, 1, 4, 2 * half_width + 1), dtype=np.complex64)
    taps[..., half_width] = 1
    y = rendered(replace(capture, taps=taps, phase_rad=np.zeros(200)))
    signal = np.sqrt(1 / (1 + 10 ** (-capture.snr_db / 10))) * preamble()
    noise = np.mean(np.abs(y - signal) ** 2)
    assert 10 * np.log10(1 / noise - 1) == pytest.approx(capture.snr_db, abs=0.3)


@pytest.mark.parametrize(("kind", "samples"), [("wifi", 320), ("wifi", 800), ("lora", 1024)])
def test_samples_do_not_depend_on_the_size_of_the_pieces(
    kind: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = load_scene(kind, samples=samples)
    capture = prepare(scene, 2026, CaptureSpec("E2", "D03", "M", 24))
    whole = rendered(capture)
    monkeypatch.setattr(module, "CHUNK_SAMPLES", 5 * 4 * samples)
    np.testing.assert_allclose(rendered(capture), whole, atol=1e-5)


@pytest.mark.parametrize(("kind", "samples"), [("wifi", 320), ("lora", 320), ("lora", 8192)])
def test_stored_frames_have_unit_mean_power(kind: str, samples: int) -> None:
    scene = load_scene(kind, samples=samples)
    y = rendered(prepare(scene, 2026, CaptureSpec("E3", "D03", "M", 8)))
    assert y.dtype == np.complex64
    assert y.shape == (8, 4, samples)
    np.testing.assert_allclose(np.mean(np.abs(y) ** 2, axis=(1, 2)), 1, rtol=1e-5)
