"""The frames of one capture: device hardware → array channel → receiver.

What is drawn belongs to a device, a place, a device in a place, or one capture, and its generator is named after
that; nothing depends on other captures or on the order of the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.randomness import generator
from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.signal.simulation import channel
from pisa_capc.signal.simulation.hardware import DeviceProfile, draw_profile, phase_noise_rad
from pisa_capc.signal.simulation.numerics import complex_normal, phasor
from pisa_capc.signal.simulation.receiver import add_noise, level, nominal_cfo_hz, residual_cfo_hz, rotation
from pisa_capc.signal.simulation.scene import Scene
from pisa_capc.signal.simulation.sender import SimulatedSender

CHUNK_SAMPLES = 2**18  # complex samples worked on at once, two megabytes
STATIC_RAD = 0.005  # channels that turn less than this within a frame are held still over it
BLOCK_RAD = 0.04  # otherwise taps are interpolated linearly over blocks that turn this much: error θ²/8, −74 dB


@dataclass(frozen=True)
class Capture:
    """All that is fixed before the first sample of a capture is computed.

    taps: (F, E, A, L) impulse responses at E instants of each frame: its middle, or the edges of E − 1 blocks.
    cfo_hz, residual_hz: (F, A). phase_rad, delay_samples: (F,) of each frame.
    """

    scene: Scene
    seed: int
    spec: CaptureSpec
    profile: DeviceProfile
    taps: NDArray[np.complex64]
    snr_db: float
    cfo_hz: NDArray[np.float64]
    residual_hz: NDArray[np.float64]
    phase_rad: NDArray[np.float64]
    delay_samples: NDArray[np.float64]

    def stream(self, purpose: str) -> np.random.Generator:
        return capture_stream(self.scene, self.seed, self.spec, purpose)


def capture_stream(scene: Scene, seed: int, spec: CaptureSpec, purpose: str) -> np.random.Generator:
    """The generator of one capture for one purpose; each is read in frame order, whatever the size of the pieces."""
    return generator(seed, scene.waveform.kind, "capture", spec.name, purpose)


def place_stream(scene: Scene, seed: int, spec: CaptureSpec, *purpose: str) -> np.random.Generator:
    """The generator of a place, whichever device is there, for one purpose."""
    return generator(seed, scene.waveform.kind, "place", spec.environment, spec.capture, *purpose)


def device_profile(scene: Scene, seed: int, device: str) -> DeviceProfile:
    """The hardware of a device: the same wherever it transmits."""
    rng = generator(seed, scene.waveform.kind, "device", device)
    return draw_profile(scene.hardware, scene.receiver.geometry.antennas, rng)


def draw_rays(scene: Scene, seed: int, spec: CaptureSpec) -> channel.Rays:
    """Propagation of one capture: reflectors belong to the place, their fine structure to the place or the device.

    With rays of the device the channel is of one device in one capture: it can name the device to a model that has seen
    that capture, and in no other. With rays of the place all devices meet the same paths, in phases of their own; where
    the phases are the place's too, a channel tells nothing at all about who sends.
    """
    environment, setting = scene.environments[spec.environment], scene.captures[spec.capture]
    place_rng = place_stream(scene, seed, spec)
    clusters = channel.draw_clusters(
        place_rng, environment.clusters, environment.axis_deg, environment.axis_spread_deg, environment.cluster_std_db
    )
    shared = scene.propagation.rays == "place"
    rng = place_stream(scene, seed, spec, "rays") if shared else capture_stream(scene, seed, spec, "rays")
    rays = channel.scattered_rays(
        rng,
        clusters,
        environment.rays_per_cluster,
        environment.delay_spread_s.draw(rng),
        environment.angle_spread_deg,
    )
    rays = channel.moving_scatterers(
        rng,
        rays,
        setting.moving_fraction,
        setting.scatterer_speed_m_s,
        wavelength_m(scene),
        setting.scatterer_spectrum,
    )
    if shared and scene.propagation.phases == "device":
        own = capture_stream(scene, seed, spec, "ray-phases")
        rays = replace(rays, phase_rad=own.uniform(-np.pi, np.pi, rays.phase_rad.size))
    if setting.line_of_sight:
        k_factor_db = environment.k_factor_db.draw(rng)
        rays = channel.with_line_of_sight(rays, k_factor_db, clusters.los_azimuth_rad, rng.uniform(-np.pi, np.pi))
    return rays


def recording_snr_db(scene: Scene, seed: int, spec: CaptureSpec) -> float:
    """SNR of one capture, against a mean received power of one."""
    rng = noise_stream(scene, seed, spec, "snr") or capture_stream(scene, seed, spec, "snr")
    drawn = scene.captures[spec.capture].snr_db.draw(rng)
    return drawn + scene.environments[spec.environment].snr_offset_db


def noise_stream(scene: Scene, seed: int, spec: CaptureSpec, purpose: str) -> np.random.Generator | None:
    """The generator of what noise a place has for every device in it; None where each device has its own."""
    return place_stream(scene, seed, spec, "noise", purpose) if scene.propagation.noise == "place" else None


def wavelength_m(scene: Scene) -> float:
    return channel.SPEED_OF_LIGHT_M_S / scene.waveform.carrier_hz


def temperature_stream(scene: Scene, seed: int, spec: CaptureSpec) -> np.random.Generator:
    """The generator of a device's temperature in an environment."""
    return generator(seed, scene.waveform.kind, "temperature", spec.environment, spec.device)


def prepare(scene: Scene, seed: int, spec: CaptureSpec, cfo_hz: NDArray[np.float64] | None = None) -> Capture:
    """Draw everything about a capture but its samples; `cfo_hz` (F, A) takes the place of the synthesised CFO."""
    waveform = scene.waveform
    profile = device_profile(scene, seed, spec.device)
    stream = partial(capture_stream, scene, seed, spec)
    frame_time_s = waveform.frame_interval_s * np.arange(spec.frames, dtype=np.float64)
    if cfo_hz is None:
        in_place = temperature_stream(scene, seed, spec)
        streams = in_place, stream("cfo"), noise_stream(scene, seed, spec, "cfo")
        cfo_hz = nominal_cfo_hz(profile, scene.frequency, waveform.carrier_hz, frame_time_s, *streams)
    return Capture(
        scene=scene,
        seed=seed,
        spec=spec,
        profile=profile,
        taps=impulse_responses(scene, seed, spec, frame_time_s),
        snr_db=recording_snr_db(scene, seed, spec),
        cfo_hz=cfo_hz,
        residual_hz=residual_cfo_hz(
            cfo_hz, scene.frequency, stream("residual"), noise_stream(scene, seed, spec, "residual")
        ),
        phase_rad=stream("phase").uniform(-np.pi, np.pi, spec.frames),
        delay_samples=scene.receiver.timing_jitter_samples * stream("timing").standard_normal(spec.frames),
    )


def impulse_responses(
    scene: Scene, seed: int, spec: CaptureSpec, frame_time_s: NDArray[np.float64]
) -> NDArray[np.complex64]:
    """(F, E, A, L) taps of every frame, at as many instants as its fastest ray needs."""
    waveform, setting = scene.waveform, scene.captures[spec.capture]
    rays = draw_rays(scene, seed, spec)
    position_m, velocity_m_s = channel.random_walk_m(
        capture_stream(scene, seed, spec, "walk"),
        spec.frames,
        waveform.frame_interval_s,
        setting.speed_m_s,
        setting.turning_rad_per_sqrt_s,
    )
    instant_s = frame_instants_s(scene, rays, setting.speed_m_s, waveform.samples)
    position_m = position_m[:, None] + velocity_m_s[:, None] * instant_s[:, None]
    return responses_at(scene, rays, ray_basis(scene, rays), position_m, frame_time_s[:, None] + instant_s)


def frame_instants_s(scene: Scene, rays: channel.Rays, speed_m_s: float, samples: int) -> NDArray[np.float64]:
    """(E,) instants of a frame at which its channel is computed: its middle, or the edges of E − 1 blocks."""
    duration_s = samples / scene.waveform.sample_rate_hz
    fastest_hz = speed_m_s / wavelength_m(scene) + float(np.abs(rays.doppler_hz).max())
    turn_rad = 2 * np.pi * fastest_hz * duration_s
    blocks = int(np.ceil(turn_rad / BLOCK_RAD))
    instant = np.array([0.5]) if turn_rad < STATIC_RAD else np.linspace(0, 1, blocks + 1)
    return instant * duration_s


def ray_basis(scene: Scene, rays: channel.Rays) -> NDArray[np.complex64]:
    """(P, A, L) taps of each ray at each antenna of the scene's receiver."""
    waveform = scene.waveform
    return channel.tap_basis(
        rays,
        scene.receiver.geometry,
        waveform.sample_rate_hz,
        waveform.channel_half_width_samples,
        waveform.occupied,
    )


def responses_at(
    scene: Scene,
    rays: channel.Rays,
    basis: NDArray[np.complex64],
    position_m: NDArray[np.float64],
    time_s: NDArray[np.float64],
) -> NDArray[np.complex64]:
    """(…, A, L) taps of the channel with the transmitter at positions (…, 2) at times (…); basis: of the rays."""
    phasors = channel.ray_phasors(rays, position_m, time_s, wavelength_m(scene))
    rays_count, antennas, length = basis.shape
    taps = phasors.reshape(-1, rays_count) @ basis.reshape(rays_count, -1)
    return taps.reshape(*time_s.shape, antennas, length)


def render(capture: Capture) -> Iterator[NDArray[np.complex64]]:
    """The capture's frames (f, A, T) in order, a few at a time."""
    waveform, receiver = capture.scene.waveform, capture.scene.receiver
    frames, _, antennas, channel_taps = capture.taps.shape
    samples = waveform.samples
    phase_noise, noise = capture.stream("phase-noise"), capture.stream("noise")
    sender = SimulatedSender(waveform, capture.profile, channel_taps, cache(capture.stream))
    step = max(1, CHUNK_SAMPLES // (antennas * samples))
    for start in range(0, frames, step):
        chunk = slice(start, min(start + step, frames))
        x = sender.frames(capture.delay_samples[chunk])
        y = arrive(
            x,
            capture.profile,
            capture.taps[chunk],
            capture.residual_hz[chunk],
            capture.phase_rad[chunk],
            waveform.sample_rate_hz,
            phase_noise,
        )
        yield level(add_noise(noise, y, capture.snr_db), receiver.equalise_antennas)


def arrive(
    x: NDArray[np.complex64],
    profile: DeviceProfile,
    taps: NDArray[np.complex64],
    frequency_hz: NDArray[np.float64],
    phase_rad: NDArray[np.float64],
    sample_rate_hz: float,
    phase_noise: np.random.Generator,
) -> NDArray[np.complex64]:
    """(f, A, T) what frames (f, T + L − 1) are at the antennas, before noise: oscillator, channel, frequency offset.

    taps (f, E, A, L) as in `Capture`; frequency_hz (f, A) of each antenna, phase_rad (f,) common to them.
    """
    normal = complex_normal(phase_noise, x.shape)
    x *= phasor(phase_noise_rad(normal, profile.white_phase_deg, profile.linewidth_hz, sample_rate_hz))
    y = propagate(x, taps)
    y *= rotation(frequency_hz, np.broadcast_to(phase_rad[:, None], frequency_hz.shape), y.shape[-1], sample_rate_hz)
    return y


def propagate(x: NDArray[np.complex64], taps: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """(f, A, T) received from (f, T + L − 1) sent; taps (f, E, A, L) as in `Capture`."""
    history = taps.shape[-1] - 1
    samples = x.shape[-1] - history
    if taps.shape[1] == 1:
        return channel.filter_frames(x, taps[:, 0])
    y = np.empty((len(x), taps.shape[2], samples), dtype=np.complex64)
    edges = np.rint(np.linspace(0, samples, taps.shape[1])).astype(int)
    for block, (start, stop) in enumerate(pairwise(edges)):
        y[..., start:stop] = channel.filter_varying(x[:, start : stop + history], taps[:, block], taps[:, block + 1])
    return y
