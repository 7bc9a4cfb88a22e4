"""A rendered capture: what is fixed stays fixed, what varies varies, and pieces do not matter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.signal.simulation import capture as module
from pisa_capc.signal.simulation.capture import Capture, device_profile, draw_rays, prepare, render, wavelength_m
from pisa_capc.signal.simulation.channel import Rays
from pisa_capc.signal.simulation.hardware import Spread
from pisa_capc.signal.simulation.scene import Propagation, Scene, load_scene
from pisa_capc.signal.waveforms import WAVEFORMS
from pisa_capc.signal.waveforms.wifi import preamble


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
    ("wifi-own-place", 320): ([-0.1357 - 0.1608j, -0.6592 + 0.9676j, 0.2514 - 1.6675j], -28806.387),
    ("wifi-own-place", 3920): ([-0.0318 - 0.2897j, 1.2606 - 0.9280j, 0.4633 - 1.0380j], -28806.387),
    ("lora-own-place", 320): ([-0.9782 - 0.7254j, 0.4295 + 1.1060j, 0.8338 - 0.7821j], -554.789),
    ("lora-own-place", 8192): ([-0.8156 - 0.7613j, -0.8630 - 0.6516j, -0.8720 - 0.7484j], -554.789),
}


@pytest.mark.parametrize(("name", "samples"), FIRST_REVISION)
def test_the_samples_of_the_first_revision_stay(name: str, samples: int) -> None:
    known, cfo_hz = FIRST_REVISION[name, samples]
    capture = prepare(load_scene(name, samples=samples), 2026, CaptureSpec("E2", "D03", "M", 8))
    np.testing.assert_allclose(rendered(capture)[3, 1, [0, samples // 2, -1]], known, atol=2e-4)
    assert capture.cfo_hz[3, 1] == pytest.approx(cfo_hz, abs=1e-3)


def placed(scene: Scene, rays: str = "place", phases: str = "device") -> Scene:
    return replace(scene, propagation=Propagation(rays, phases))


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


def two_devices(scene: Scene, capture: str = "L1") -> tuple[Rays, Rays]:
    first, second = (draw_rays(scene, 2026, CaptureSpec("E1", device, capture, 8)) for device in ("D01", "D02"))
    return first, second


def test_devices_with_rays_of_their_own_share_the_direct_path_alone() -> None:
    first, second = two_devices(load_scene("wifi-own-place"))
    assert first.arrival_rad[0] == second.arrival_rad[0]
    for name in ("delay_s", "arrival_rad", "phase_rad"):
        assert not np.array_equal(getattr(first, name)[1:], getattr(second, name)[1:])


@pytest.mark.parametrize("kind", ["wifi", "lora"])
@pytest.mark.parametrize("capture", ["L1", "M"])
def test_devices_put_down_at_one_place_share_all_but_the_phases(kind: str, capture: str) -> None:
    first, second = two_devices(load_scene(kind), capture)
    for name in ("amplitude", "delay_s", "arrival_rad", "departure_rad", "doppler_hz"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert not np.isin(first.phase_rad, second.phase_rad)[int(capture == "L1") :].any()
    elsewhere = draw_rays(load_scene(kind), 2026, CaptureSpec("E1", "D01", "L2", 8))
    assert not np.isin(elsewhere.arrival_rad, first.arrival_rad).any()


def test_with_phases_of_the_place_the_channel_is_the_same_for_all() -> None:
    scene = placed(load_scene("wifi"), phases="place")
    first, second = two_devices(scene)
    np.testing.assert_array_equal(first.phase_rad, second.phase_rad)
    taps = [prepare(scene, 2026, CaptureSpec("E1", device, "L1", 8)).taps for device in ("D01", "D02")]
    np.testing.assert_array_equal(*taps)
    walked = [prepare(scene, 2026, CaptureSpec("E1", device, "M", 8)).taps for device in ("D01", "D02")]
    assert not np.allclose(*walked)  # on another way


@pytest.mark.parametrize("moving", [0.1, 1.0])
@pytest.mark.parametrize(("rays", "phases"), [("device", "device"), ("place", "device"), ("place", "place")])
def test_every_row_of_whose_the_channel_is_can_be_asked_for(
    rays: str, phases: str, moving: float, tmp_path: Path
) -> None:
    own = tmp_path / "row.yaml"
    captures = ", ".join(f"{name}: {{moving_fraction: {moving}}}" for name in ("L1", "L2", "L3", "M"))
    own.write_text(f"propagation: {{rays: {rays}, phases: {phases}}}\ncaptures: {{{captures}}}\n")
    scene = load_scene("wifi-own-place", own)
    first, second = two_devices(scene)
    assert np.array_equal(first.delay_s, second.delay_s) == (rays == "place")
    assert np.array_equal(first.phase_rad, second.phase_rad) == (phases == "place")
    assert np.mean(first.doppler_hz[1:] != 0) == pytest.approx(moving, abs=0.15)
    assert first.doppler_hz[0] == 0  # the direct ray


def test_scattered_fields_fade_from_frame_to_frame_as_the_scene_says() -> None:
    """Over all places and devices: the correlation of the bell spectrum, about exp(−2π f_d Δt/3)."""
    scene = load_scene("wifi")
    frames, lags = 64, np.arange(0, 33, 4)
    correlation = np.zeros(len(lags), dtype=complex)
    for seed in range(6):
        for environment in scene.environments:
            for device in ("D01", "D02", "D03", "D04"):
                taps = prepare(scene, seed, CaptureSpec(environment, device, "L3", frames)).taps[:, 0]
                for i, lag in enumerate(lags):
                    correlation[i] += np.vdot(taps[: frames - lag], taps[lag:]) / (frames - lag)
    doppler_hz = 0.333 / wavelength_m(scene)
    assert doppler_hz == pytest.approx(6.47, abs=0.01)
    expected = np.exp(-2 * np.pi * doppler_hz * lags * scene.waveform.frame_interval_s / 3)
    np.testing.assert_allclose((correlation / correlation[0]).real, expected, atol=0.12)


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


def jitter_hz(capture: Capture) -> float:
    """How far the recorded CFO scatters around its drift, over frames and antennas."""
    return float(np.std(np.diff(capture.cfo_hz, axis=0))) / np.sqrt(2)


def test_noise_of_the_place_is_the_same_for_all_devices_in_it_and_other_elsewhere() -> None:
    scene = load_scene("wifi")
    shared = replace(scene, propagation=replace(scene.propagation, noise="place"))
    specs = [CaptureSpec("E2", f"D{d:02d}", "L1", 256) for d in range(1, 5)]
    for chosen, spread in ((scene, 0.1), (shared, 0.0)):
        captures = [prepare(chosen, 2026, spec) for spec in specs]
        assert (np.std([c.snr_db for c in captures]) > 0.3) == (spread > 0)
        size = [jitter_hz(c) for c in captures]
        assert (np.std(size) / np.mean(size) > 0.1) == (spread > 0)  # 256 × 4 draws tell a size to about 3 %
        left = [float(np.std(c.residual_hz.mean(axis=1) - 0.01 * c.cfo_hz.mean(axis=1))) for c in captures]
        assert (np.std(left) / np.mean(left) > 0.1) == (spread > 0)
    there, elsewhere = (prepare(shared, 2026, replace(specs[0], capture=name)) for name in ("L1", "L2"))
    assert there.snr_db - elsewhere.snr_db != pytest.approx(3, abs=1e-6)  # drawn for each, and not the means alone
    assert jitter_hz(there) != pytest.approx(jitter_hz(elsewhere), rel=0.01)


def test_noise_of_the_device_leaves_every_draw_as_it_was() -> None:
    """Scenes that do not name the setting give the samples, and the description, of earlier versions."""
    scene = load_scene("wifi")
    assert "noise" not in scene.to_json()["propagation"]
    named = replace(scene, propagation=replace(scene.propagation, noise="device"))
    assert named.to_json() == scene.to_json()
    shared = replace(scene, propagation=replace(scene.propagation, noise="place"))
    assert shared.to_json()["propagation"]["noise"] == "place"
    spec = CaptureSpec("E2", "D03", "L1", 8)
    own, other = prepare(scene, 2026, spec), prepare(shared, 2026, spec)
    np.testing.assert_array_equal(own.taps, other.taps)  # noise alone differs
    assert own.snr_db != other.snr_db
