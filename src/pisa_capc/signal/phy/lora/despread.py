"""Chirps to spectra: what is left of a symbol when its chirp is taken away."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.signal.phy.lora.modulation import Modulation


def correlate(
    windows: NDArray[np.complexfloating], modulation: Modulation, delay: ArrayLike = 0.0
) -> NDArray[np.complexfloating]:
    """(…, 2N) correlation of (…, N · os) samples with the upchirp of every symbol, in steps of half a symbol.

    A symbol's chirp is the upchirp begun s chips later, so all symbols take one cyclic correlation,
    c[s] = 1/M Σ_n x[n] u*[(n + s os) mod M], M = N os, done in frequency. The chirp has its energy within half a
    bandwidth of its centre; one bandwidth on either side is kept. |c| is the amplitude of the chirp; white noise of
    variance σ² has σ²/M in every bin. A carrier fills all bins alike: it may hide a chirp but does not look like one.

    delay: fractions of a sample by which the windows should have begun later.
    """
    from scipy import fft

    spectrum = fft.fft(windows, axis=-1)
    half = modulation.kept_bins
    gap = np.zeros((*spectrum.shape[:-1], 2 * (modulation.chips - half)), spectrum.dtype)
    spectrum = np.concatenate([spectrum[..., :half], gap, spectrum[..., -half:]], axis=-1)
    spectrum *= modulation.matched_filter
    shift = np.asarray(delay)[..., None]
    if shift.any():
        k = fft.fftfreq(2 * modulation.chips, 1 / (2 * modulation.chips))
        spectrum *= np.exp(2j * np.pi * k * shift / modulation.symbol_samples)
    return fft.fft(spectrum, axis=-1, overwrite_x=True)


def windows_at(
    samples: NDArray[np.complexfloating], first: NDArray[np.int64], modulation: Modulation, cfo_hz: ArrayLike
) -> NDArray[np.complexfloating]:
    """(A, n, M) samples of the symbols that begin at `first` (n,), their CFO (one, or one per antenna) taken out.

    Where there are no samples there are zeros.
    """
    size = modulation.symbol_samples
    taken = np.zeros((len(samples), len(first), size), np.complex64)
    for i, at in enumerate(first.tolist()):
        piece = samples[:, max(at, 0) : max(at + size, 0)]
        taken[:, i, max(-at, 0) :][:, : piece.shape[1]] = piece
    turns = np.reshape(cfo_hz, (-1, 1, 1)) / modulation.sample_rate_hz  # of the CFO in one sample
    taken *= np.exp(-2j * np.pi * (turns * np.arange(size))).astype(np.complex64)
    taken *= np.exp(-2j * np.pi * (turns * first[:, None] % 1)).astype(np.complex64)
    return taken


def despread(
    samples: NDArray[np.complexfloating],
    starts: NDArray[np.floating],
    modulation: Modulation,
    cfo_hz: ArrayLike = 0.0,
    *,
    down: bool = False,
) -> NDArray[np.complexfloating]:
    """(A, n, 2N) correlations of the symbols that begin at `starts` (n,), in samples and fractions of a sample.

    A symbol s that began τ chips before its window and is f bins too high has its peak at s + τ + f; with `down`, a
    downchirp at τ − f. Sum and difference of the two tell timing from CFO.
    """
    first = np.floor(starts).astype(np.int64)
    taken = windows_at(samples, first, modulation, cfo_hz)
    return correlate(taken.conj() if down else taken, modulation, starts - first)


def normalised_power(correlations: NDArray[np.complexfloating]) -> NDArray[np.floating]:
    """(…, 2N) of (A, …, 2N): power over its mean over all bins, added up over antennas; a dead antenna adds nothing.

    Noise alone is exponential with mean one in every bin of every antenna, however loud it is.
    """
    power = correlations.real**2 + correlations.imag**2
    mean = power.mean(axis=-1, keepdims=True)
    return np.divide(power, mean, out=np.zeros_like(power), where=(mean > 0) & np.isfinite(mean)).sum(axis=0)


def peak_offset(power: NDArray[np.floating], reach: int = 2) -> float:
    """Where (2N,) powers have their peak within `reach` half bins of zero, in bins: the vertex of a parabola."""
    near = np.arange(-reach, reach + 1)
    best = int(near[np.argmax(power[near])])
    before, top, after = power[[best - 1, best, (best + 1) % len(power)]]
    bend = before - 2 * top + after
    vertex = float((before - after) / (2 * bend)) if bend < 0 else 0.0
    return (best + vertex) / 2
