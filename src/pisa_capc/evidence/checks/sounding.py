"""The channel of each frame and nothing else: what the room alone gives away.

Where the frames begin with a preamble that is known, the channel of each antenna is that of least squares,

    y_a[n] = e^{j2πfn} Σ_l h_a[l] x[n − l] + w_a[n],    c_a = Qᴴ (e^{−j2πf̂n} y_a)

with Q (T, r) an orthonormal basis of x behind all channels of the taps −4 … 12 (as in `limit`), and f̂ common to the
antennas. c_a is the estimate in coordinates in which the noise is white; what Q does not explain is noise.

Where no preamble is known, the array is used alone: within a sub-band the sent signal is common to the antennas, so the
strongest direction of their covariance, Σ_f Y_a Y_b*, is the ratio of their channels. That takes two antennas.

Channel state is a channel already.

The phase of a frame is always unknown: a channel is a direction, and only |⟨h, h'⟩|² of two has a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.store.dataset import TIME
from pisa_capc.evidence.limit import UnknownChannel
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform

BEFORE, AFTER = 4, 12  # taps: tails of a fractional delay, and echoes of 0.6 µs at 20 MS/s
LAG = 16  # samples, the period of Wi-Fi's short training field: offsets up to ±fs/32
LEAST_SAMPLES = 2 * (BEFORE + AFTER + LAG)  # of a preamble that tells offset and channel from noise
EXPLAINED = 0.5  # of the energy: with less, at 0 dB, it is not seen that frames begin with the preamble
BANDS = 8

Iq = NDArray[np.complex64]
Real = NDArray[np.float64]


@dataclass(frozen=True)
class Sounding:
    """The channels of N frames.

    channel: (N, G, D) directions of unit length, each with a phase of its own. offset_hz: (N,) frequency offset left in
    the frames. snr_db: (N, A), of the preamble against all that it does not explain.
    """

    channel: NDArray[np.complex64]
    offset_hz: Real | None = None
    snr_db: Real | None = None


class Sounder(Protocol):
    @property
    def about(self) -> str: ...

    def sound(self, iq: Iq) -> Sounding: ...


class PreambleSounder:
    """Least squares with the preamble of a waveform, which is as sampled as the frames."""

    def __init__(self, waveform: Waveform, samples: int) -> None:
        self.samples = min(samples, len(waveform.preamble()))
        head = waveform.head(self.samples + BEFORE)
        if head is None:  # the taps before the first arrival hear what comes next: it has to be known
            head, self.samples = waveform.preamble()[: self.samples], self.samples - BEFORE
        self.basis = UnknownChannel.of_taps(head[None], self.samples, BEFORE, AFTER).basis[0].astype(np.complex64)
        self.periodic = min(waveform.periodic or self.samples, self.samples)
        self.reference = head[: self.periodic].astype(np.complex64)
        self.sample_rate_hz = waveform.sample_rate_hz
        self.about = f"preamble of {waveform.title}, {self.basis.shape[1]} coordinates per antenna"

    def sound(self, iq: Iq) -> Sounding:
        step = self.radians_per_sample(iq)
        turn = np.exp(-1j * step[:, None, None] * np.arange(self.samples)).astype(np.complex64)
        still = iq[..., : self.samples] * turn
        channel = still @ self.basis.conj()  # (N, A, r)
        explained = energy(channel)
        rank, samples = self.basis.shape[1], self.samples
        noise = np.maximum(energy(still) - explained, 1e-9 * explained + 1e-30) / (samples - rank)
        signal = np.maximum(explained - rank * noise, 1e-3 * rank * noise) / samples
        return Sounding(
            directions(channel.reshape(len(iq), 1, -1)),
            step * self.sample_rate_hz / (2 * np.pi),
            10 * np.log10(signal / noise),
        )

    def explained(self, iq: Iq) -> Real:
        """(N,) part of the energy, while the preamble lasts, that it explains."""
        snr = 10 ** (self.sound(iq).snr_db / 10)  # type: ignore[operator]
        return np.asarray(np.mean(snr / (1 + snr), axis=1))

    def radians_per_sample(self, iq: Iq) -> Real:
        """(N,) ∠Σ d*[n] d[n+16] / 16, d = y·x*, over the antennas and the part that tells it behind any channel."""
        tone = iq[..., : self.periodic] * self.reference.conj()
        return np.asarray(np.angle((tone[..., :-LAG].conj() * tone[..., LAG:]).sum((-1, -2))) / LAG, dtype=np.float64)


class ArraySounder:
    """Ratios between antennas in sub-bands of the part of the spectrum that frames use."""

    def __init__(self, samples: int, used: NDArray[np.bool_]) -> None:
        self.samples = samples
        self.bands = [band for band in np.array_split(np.flatnonzero(used), BANDS) if len(band)]
        self.about = f"ratios between antennas in {len(self.bands)} sub-bands; no preamble is known"

    @classmethod
    def of_frames(cls, iq: Iq) -> ArraySounder:
        power = energy(np.fft.fftshift(np.fft.fft(iq, axis=-1), axes=-1), (0, 1))
        return cls(iq.shape[-1], power > 0.01 * power.max())

    def sound(self, iq: Iq) -> Sounding:
        spectrum = np.fft.fftshift(np.fft.fft(iq[..., : self.samples], axis=-1), axes=-1)
        found = []
        for band in self.bands:
            own = spectrum[..., band]
            _, vectors = np.linalg.eigh(own @ own.conj().swapaxes(-1, -2))
            found.append(vectors[..., -1])
        return Sounding(np.stack(found, axis=1).astype(np.complex64))


class StateSounder:
    """Frames of subcarriers as they are."""

    about = "what the receiver reported of them"

    def sound(self, iq: Iq) -> Sounding:
        return Sounding(directions(iq.reshape(len(iq), 1, iq.shape[1] * iq.shape[2])))


def choose_sounder(iq: Iq, sample_rate_hz: float, domain: str = TIME) -> Sounder | None:
    """By the preamble where frames begin with a known one, else by the array; None: one antenna, or no frame."""
    if domain != TIME:
        return StateSounder()
    _, antennas, samples = iq.shape
    for waveform in WAVEFORMS.parts().values():
        known = min(samples, len(waveform.preamble()))
        if waveform.sample_rate_hz == sample_rate_hz and known >= LEAST_SAMPLES and len(iq):
            sounder = PreambleSounder(waveform, samples)
            if np.median(sounder.explained(iq)) > EXPLAINED:
                return sounder
    return ArraySounder.of_frames(iq) if antennas > 1 and len(iq) else None


def directions(x: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """The same at unit length along the last axis."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-20), dtype=np.complex64)


def energy(x: NDArray[np.complex64], axis: int | tuple[int, ...] = -1) -> Real:
    return np.asarray((x.real**2 + x.imag**2).sum(axis, dtype=np.float64))
