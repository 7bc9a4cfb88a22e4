"""What the antennas of one place receive continuously: noise, an interferer, and every frame that is sent.

Levels are counted from the noise, which has unit power on each antenna, and are stored as 16-bit integers. Samples are
made in segments of a fixed size, each with a generator of its own, and a frame is always computed as a whole: what is
written does not depend on who computes which part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.randomness import generator
from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.signal.simulation.capture import (
    arrive,
    capture_stream,
    device_profile,
    draw_rays,
    frame_instants_s,
    ray_basis,
    recording_snr_db,
    responses_at,
    temperature_stream,
)
from pisa_capc.signal.simulation.channel import Rays, random_walk_m
from pisa_capc.signal.simulation.hardware import DeviceProfile
from pisa_capc.signal.simulation.networks import NETWORKS
from pisa_capc.signal.simulation.numerics import complex_normal
from pisa_capc.signal.simulation.receiver import oscillator_cfo_hz, rotation
from pisa_capc.signal.simulation.scene import Scene
from pisa_capc.signal.simulation.sender import TIMING_HALF_WIDTH, send_once
from pisa_capc.signal.simulation.traffic import Transmission

SEGMENT_SAMPLES = 2**16  # per antenna; part of what determines the samples
FULL_SCALE = 32768
HEADROOM_DB = 20.0  # full scale over the mean power of the strongest: peaks of OFDM (10 dB) in a fortunate channel
PULSE_S, PERIOD_S = 1e-3, 10e-3
INTERFERERS = ("carrier", "dc", "pulsed")


@dataclass(frozen=True)
class Interferer:
    """A tone on all antennas: kind, frequency from the carrier, power over the noise."""

    kind: str
    frequency_hz: float
    level_db: float


@dataclass(frozen=True, eq=False)
class Link:
    """A device in the place: what stays the same in all frames it sends.

    basis: of the rays, see `capture.ray_basis`. position_m, velocity_m_s: (F, 2) its walk, one step per frame interval.
    """

    spec: CaptureSpec
    profile: DeviceProfile
    rays: Rays
    basis: NDArray[np.complex64]
    position_m: NDArray[np.float64]
    velocity_m_s: NDArray[np.float64]
    snr_db: float


@dataclass(frozen=True)
class Arrival:
    """A frame at the antennas: (A, n) samples from `first` on, and its power over the noise in dB on each antenna."""

    first: int
    samples: NDArray[np.complex64]
    snr_db: NDArray[np.float64]

    @property
    def stop(self) -> int:
        return self.first + self.samples.shape[1]


@dataclass(frozen=True)
class Reception:
    """A place while it is recorded; `take` names traffic and noise. strongest_db: power over noise that must fit.

    The recording begins when the capture of the dataset has ended: channels and oscillators go on from there.
    """

    scene: Scene
    seed: int
    environment: str
    capture: str
    take: int
    length: int
    strongest_db: float
    interferer: Interferer | None = None

    def stream(self, *purpose: str | int) -> np.random.Generator:
        kind = self.scene.waveform.kind
        return generator(self.seed, kind, "recording", self.environment, self.capture, self.take, *purpose)

    @property
    def noise_rms(self) -> float:
        """Of the noise on an antenna, in steps of the stored integers."""
        return float(FULL_SCALE * 10 ** (-(HEADROOM_DB + self.strongest_db) / 20))

    def time_s(self, sample: int) -> float:
        """Time of a sample, counted from the beginning of the dataset's capture."""
        waveform = self.scene.waveform
        return self.scene.captures[self.capture].frames * waveform.frame_interval_s + sample / waveform.sample_rate_hz

    @cached_property
    def _links(self) -> dict[str, Link]:
        return {}

    def link(self, device: str) -> Link:
        """A device of this place, drawn when it is first asked for."""
        if device not in self._links:
            self._links[device] = self._draw_link(device)
        return self._links[device]

    def _draw_link(self, device: str) -> Link:
        scene, setting = self.scene, self.scene.captures[self.capture]
        spec = CaptureSpec(self.environment, device, self.capture, setting.frames)
        rays = draw_rays(scene, self.seed, spec)
        interval_s = scene.waveform.frame_interval_s
        steps = 1 + int(self.length / scene.waveform.sample_rate_hz / interval_s)
        position_m, velocity_m_s = random_walk_m(
            self.stream("walk", device), steps, interval_s, setting.speed_m_s, setting.turning_rad_per_sqrt_s
        )
        return Link(
            spec=spec,
            profile=device_profile(scene, self.seed, device),
            rays=rays,
            basis=ray_basis(scene, rays),
            position_m=position_m,
            velocity_m_s=velocity_m_s,
            snr_db=recording_snr_db(scene, self.seed, spec),
        )

    def cfo_hz(self, sent: Transmission) -> NDArray[np.float64]:
        """(A,) the true offset of each antenna while a frame is sent."""
        link, scene = self.link(sent.message.device), self.scene
        return oscillator_cfo_hz(
            link.profile,
            scene.frequency,
            scene.waveform.carrier_hz,
            np.array([self.time_s(sent.start)]),
            temperature_stream(scene, self.seed, link.spec),
            capture_stream(scene, self.seed, link.spec, "cfo"),
        )[0]

    def reach(self, sent: Transmission) -> tuple[int, int]:
        """First sample that a frame touches, and the one after its last: filters begin before it and end after it."""
        before = TIMING_HALF_WIDTH + self.scene.waveform.channel_half_width_samples
        taps = self.link(sent.message.device).basis.shape[-1]
        return sent.start - before, sent.stop - before + 2 * TIMING_HALF_WIDTH + taps - 1

    def arrival(self, sent: Transmission) -> Arrival:
        """A frame through its sender's hardware, the channel of the place and the offset of the oscillators."""
        scene, waveform, message = self.scene, self.scene.waveform, sent.message
        link, rng = self.link(message.device), self.stream("frame", sent.number)
        base = NETWORKS[waveform.kind].waveform(message)
        x = send_once(base, link.profile, sent.delay_samples, waveform.occupied, link.basis.shape[-1])
        first, stop = self.reach(sent)
        time_s = self.time_s(first) + frame_instants_s(
            scene, link.rays, scene.captures[self.capture].speed_m_s, stop - first
        )
        taps = responses_at(scene, link.rays, link.basis, self._position_m(link, time_s), time_s)
        phase = rng.uniform(-np.pi, np.pi, 1)
        y = arrive(x, link.profile, taps[None], self.cfo_hz(sent)[None], phase, waveform.sample_rate_hz, rng)[0]
        y *= np.float32(self.noise_rms * 10 ** (link.snr_db / 20))
        whole = y[:, sent.start - first : sent.stop - first]
        power = np.mean(whole.real**2 + whole.imag**2, axis=1, dtype=np.float64)
        return Arrival(first, y, 10 * np.log10(power / self.noise_rms**2))

    def _position_m(self, link: Link, time_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """(…, 2) where the device is at times (…)."""
        interval_s = self.scene.waveform.frame_interval_s
        since = np.maximum(time_s - self.time_s(0), 0.0)
        step = np.minimum((since / interval_s).astype(int), len(link.position_m) - 1)
        return link.position_m[step] + link.velocity_m_s[step] * (since - step * interval_s)[..., None]

    def segment(self, index: int, arrivals: Sequence[Arrival]) -> tuple[NDArray[np.int16], int]:
        """(n, A, 2) stored samples of a segment, and how many of its numbers were beyond full scale."""
        first = index * SEGMENT_SAMPLES
        samples = min(SEGMENT_SAMPLES, self.length - first)
        antennas = self.scene.receiver.geometry.antennas
        y = complex_normal(self.stream("noise", index), (samples, antennas), self.noise_rms)
        if self.interferer is not None:
            y += self._interference(self.interferer, first, samples)
        for arrival in arrivals:
            begin, stop = max(arrival.first, first), min(arrival.stop, first + samples)
            if begin < stop:
                y[begin - first : stop - first] += arrival.samples[:, begin - arrival.first : stop - arrival.first].T
        return quantised(y)

    def _interference(self, interferer: Interferer, first: int, samples: int) -> NDArray[np.complex64]:
        """(n, A) the tone, in phase with itself over the whole recording and in phases of its own on the antennas."""
        rate_hz, antennas = self.scene.waveform.sample_rate_hz, self.scene.receiver.geometry.antennas
        phase = self.stream("interferer-phases").uniform(-np.pi, np.pi, antennas)
        phase += 2 * np.pi * np.remainder(interferer.frequency_hz * (first / rate_hz), 1.0)
        tone = rotation(np.full(antennas, interferer.frequency_hz), phase, samples, rate_hz).T
        tone *= np.float32(self.noise_rms * 10 ** (interferer.level_db / 20))
        if interferer.kind == "pulsed":
            period, pulse = round(PERIOD_S * rate_hz), round(PULSE_S * rate_hz)
            tone *= ((first + np.arange(samples)) % period < pulse)[:, None]
        return tone


def quantised(y: NDArray[np.complex64]) -> tuple[NDArray[np.int16], int]:
    """(…, 2) real and imaginary parts rounded to 16 bits, and how many of them were cut to fit."""
    parts = y.view(np.float32).reshape(*y.shape, 2)
    np.rint(parts, out=parts)
    clipped = 0
    if max(parts.max(), -parts.min()) > FULL_SCALE - 1:
        clipped = int(np.count_nonzero((parts > FULL_SCALE - 1) | (parts < -FULL_SCALE)))
        np.clip(parts, -FULL_SCALE, FULL_SCALE - 1, out=parts)
    return parts.astype("<i2"), clipped
