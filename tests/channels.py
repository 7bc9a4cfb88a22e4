"""Small channel state: radios with filters of their own in places with channels of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.frames import Frames
from pisa_capc.data.store.dataset import SUBCARRIERS, Subcarriers

NUMBERS = np.arange(-14, 15)
SPACING_HZ = 625e3
RIPPLE = 0.01
Complex = NDArray[np.complexfloating[Any, Any]]


def white(rng: np.random.Generator, *shape: int) -> Complex:
    return np.asarray(rng.normal(size=(*shape, 2)) @ [1, 1j]) / np.sqrt(2)


def place(rng: np.random.Generator, antennas: int) -> Complex:
    """(A, K) a strong path and two weaker ones within 60 ns."""
    delays, gains = rng.uniform(0, 60e-9, size=3), np.array([1, 0.3, 0.2]) * white(rng, antennas, 3)
    gains[:, 0] = np.exp(2j * np.pi * rng.random(antennas))
    return np.asarray(gains @ np.exp(-2j * np.pi * delays[:, None] * NUMBERS * SPACING_HZ))


def filters(rng: np.random.Generator, devices: int) -> Complex:
    """(devices, K) what hardware does to a band: ripples of a percent."""
    ripples = white(rng, devices, 8) @ np.exp(2j * np.pi * np.outer(np.arange(4, 12), NUMBERS) / 29)
    return np.asarray(np.exp(RIPPLE * ripples))


def heard(channel: Complex, rng: np.random.Generator, frames: int, snr_db: float) -> Complex:
    """(frames, A, K) with a gain, a phase and a slope of their own on each packet and antenna."""
    antennas = len(channel)
    gain = rng.uniform(0.5, 2, size=(frames, antennas, 1)) * np.exp(2j * np.pi * rng.random((frames, antennas, 1)))
    slope = np.exp(1j * rng.uniform(-0.3, 0.3, size=(frames, antennas, 1)) * NUMBERS)
    noise = 10 ** (-snr_db / 20) * white(rng, frames, *channel.shape)
    return np.asarray((channel + noise) * gain * slope)


def channel_frames(devices: int = 3, places: int = 3, frames: int = 20, antennas: int = 2, seed: int = 0) -> Frames:
    """As a card reports them; one subcarrier at each edge never holds anything."""
    rng = np.random.default_rng(seed)
    own = filters(rng, devices)
    csi = np.concatenate([heard(place(rng, antennas) * one, rng, frames, 35) for _ in range(places) for one in own])
    csi[..., [0, -1]] *= 1e-5
    made = Frames.from_arrays(
        csi,
        device=np.tile(np.repeat([f"D{d + 1}" for d in range(devices)], frames), places),
        environment=np.repeat([f"E{e + 1}" for e in range(places)], devices * frames),
    )
    numbers = tuple(NUMBERS.tolist())
    given = Subcarriers(numbers, (numbers[0], numbers[-1]), SPACING_HZ)
    return replace(made, domain=SUBCARRIERS, subcarriers=given)
