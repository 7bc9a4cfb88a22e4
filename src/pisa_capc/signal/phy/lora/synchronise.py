"""Where a frame begins, and how far its carrier is off: from upchirps, whose symbol grid is known up to the CFO.

Upchirps alone cannot tell a late start from a high carrier; downchirps move the other way (Bernier et al.,
"Low complexity LoRa frame synchronization for ultra-low power software-defined radios", IEEE Transactions on
Communications, 2020, doi:10.1109/TCOMM.2020.2974464).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from pisa_capc.signal.phy.lora.despread import correlate, despread, normalised_power, peak_offset
from pisa_capc.signal.phy.lora.modulation import DOWNCHIRPS, SYNC_SYMBOLS, Modulation

LOOK_AHEAD = 10  # symbols after the one that was found in which downchirps may begin
MISTAKEN_DOWNCHIRPS = 1e-3  # how often noise may pass for them
REFINEMENTS = 2
FINE_STEPS = 512  # of the periodogram over the preamble's symbols
FAINTEST, STRONGEST = 1e-6, 1e6  # what an SNR is cut to


@dataclass(frozen=True)
class Preamble:
    """What the upchirps of a preamble tell.

    start: first sample and its fraction. cfo_hz: (A,). noise: (A,) variance of a correlation. signal: (A,) power of the
    chirp. quality: how much of the energy in the chirp's band it is.
    """

    start: float
    cfo_hz: NDArray[np.float64]
    signal: NDArray[np.float64]
    noise: NDArray[np.float64]
    quality: float

    @property
    def common_cfo_hz(self) -> float:
        """Of all antennas, each by the SNR it has."""
        weights = self.signal * _inverse(self.noise)
        return float(np.average(self.cfo_hz, weights=weights if weights.any() else None))

    @property
    def stands_out(self) -> float:
        """Power of the chirp over that of the noise in its bin, the mean of all antennas."""
        return float((self.signal * _inverse(self.noise)).mean())

    def snr_db(self, modulation: Modulation) -> NDArray[np.float64]:
        """(A,) within the band: a chirp of N chips is gathered in one of N bins."""
        ratio = self.signal / np.maximum(self.noise, np.finfo(float).tiny) / modulation.chips
        return 10 * np.log10(np.clip(ratio, FAINTEST, STRONGEST))


def symbol_step(modulation: Modulation, cfo_hz: float, carrier_hz: float | None) -> float:
    """Samples from one symbol to the next: one oscillator makes carrier and chips, so chips are as much too fast."""
    return modulation.symbol_samples * (1 - (cfo_hz / carrier_hz if carrier_hz else 0.0))


def synchronise(
    samples: NDArray[np.complexfloating],
    at: int,
    chips: float,
    modulation: Modulation,
    upchirps: int,
    carrier_hz: float | None,
) -> Preamble | None:
    """The preamble whose upchirps have their peak in bin `chips` of the window that begins at sample `at`.

    samples: (A, T), from before the preamble to the downchirps' end. None where no downchirps follow within the next
    symbols. The carrier may be off by a quarter of the bandwidth.
    """
    found = _find_downchirps(samples, at - chips * modulation.oversampling, modulation)
    if found is None:
        return None
    down, cfo_hz = found
    down += _whole_symbols(samples, down, cfo_hz, modulation, upchirps, carrier_hz) * modulation.symbol_samples
    for _ in range(REFINEMENTS):
        down, cfo_hz = _refine(samples, down, cfo_hz, modulation, upchirps, carrier_hz)
    if not _are_downchirps(samples, down, cfo_hz, modulation):
        return None
    start = down - (upchirps + SYNC_SYMBOLS) * symbol_step(modulation, cfo_hz, carrier_hz)
    return measure(samples, start, cfo_hz, modulation, upchirps, carrier_hz)


def _find_downchirps(
    samples: NDArray[np.complexfloating], aligned: float, modulation: Modulation
) -> tuple[float, float] | None:
    """Where downchirps may begin and their CFO in Hz: the best two equal symbols in a row on the grid of `aligned`.

    The grid has the upchirps in bin zero: a CFO of f bins puts it f chips off, so the downchirps are in bin −2f.
    """
    starts = aligned + np.arange(LOOK_AHEAD + 1) * modulation.symbol_samples
    power = normalised_power(despread(samples, starts, modulation, down=True))
    pairs = power[:-1] + power[1:]
    symbol, half_bin = map(int, np.unravel_index(np.argmax(pairs), pairs.shape))
    if symbol == LOOK_AHEAD - 1:  # it may be half of a pair whose better half is still to come
        return None
    signed = (half_bin + modulation.chips) % (2 * modulation.chips) - modulation.chips
    bins = -signed / 4
    return float(starts[symbol] + bins * modulation.oversampling), bins * modulation.bin_hz


def _grid(down: float, symbols: NDArray[np.int64], step: float) -> NDArray[np.floating]:
    """(n,) where symbols begin, counted from the first downchirp."""
    return down + symbols * step


def _whole_symbols(
    samples: NDArray[np.complexfloating],
    down: float,
    cfo_hz: float,
    modulation: Modulation,
    upchirps: int,
    carrier_hz: float | None,
) -> int:
    """−1, 0 or 1 symbols by which the downchirps begin later than thought: where all upchirps and both fit best."""
    step = symbol_step(modulation, cfo_hz, carrier_hz)
    starts = _grid(down, np.arange(-upchirps - SYNC_SYMBOLS - 1, 3), step)
    near = np.arange(-2, 3)
    up = normalised_power(despread(samples, starts, modulation, cfo_hz))[:, near]
    fall = normalised_power(despread(samples, starts, modulation, cfo_hz, down=True))[:, near]
    rising = [up[shift:][:upchirps].sum(axis=0).max() for shift in range(3)]
    falling = [fall[shift + upchirps + SYNC_SYMBOLS :][:2].sum(axis=0).max() for shift in range(3)]
    return int(np.argmax(np.add(rising, falling))) - 1


def _refine(
    samples: NDArray[np.complexfloating],
    down: float,
    cfo_hz: float,
    modulation: Modulation,
    upchirps: int,
    carrier_hz: float | None,
) -> tuple[float, float]:
    """Start of the downchirps and CFO, corrected: upchirps peak at τ + f, downchirps at τ − f."""
    step = symbol_step(modulation, cfo_hz, carrier_hz)
    first = -upchirps - SYNC_SYMBOLS
    rising = despread(samples, _grid(down, np.arange(first, -SYNC_SYMBOLS), step), modulation, cfo_hz)
    falling = despread(samples, _grid(down, np.arange(2), step), modulation, cfo_hz, down=True)
    up, fall = (peak_offset(normalised_power(part).sum(axis=0)) for part in (rising, falling))
    return down - (up + fall) / 2 * modulation.oversampling, cfo_hz + (up - fall) / 2 * modulation.bin_hz


def _are_downchirps(samples: NDArray[np.complexfloating], down: float, cfo_hz: float, modulation: Modulation) -> bool:
    """Whether two downchirps begin at `down`, rather than noise or a payload that is most like them.

    Under noise a bin of two symbols and A antennas is Gamma(2A) distributed; the threshold is set for all bins of all
    symbols in which they were looked for. A payload is louder in some bin of upchirps than in any of downchirps.
    """
    starts = _grid(down, np.arange(2), modulation.symbol_samples)
    falling = normalised_power(despread(samples, starts, modulation, cfo_hz, down=True)).sum(axis=0)
    rising = normalised_power(despread(samples, starts, modulation, cfo_hz)).sum(axis=0)
    tried = LOOK_AHEAD * 2 * modulation.chips
    threshold = gammainccinv(2 * len(samples), MISTAKEN_DOWNCHIRPS / tried)
    return bool(falling[0] > max(threshold, rising.max()))


def measure(
    samples: NDArray[np.complexfloating],
    start: float,
    cfo_hz: float | NDArray[np.float64],
    modulation: Modulation,
    upchirps: int,
    carrier_hz: float | None,
) -> Preamble:
    """What the upchirps tell, given start and CFO to within half a chip and half a bin.

    From symbol to symbol the phase of the peak turns by the CFO alone, wherever the windows begin. Of eight symbols'
    peaks the periodogram is within 1 % of the bound for all their samples.
    """
    step = symbol_step(modulation, float(np.mean(cfo_hz)), carrier_hz)
    correlations = despread(samples, _grid(start, np.arange(upchirps), step), modulation, cfo_hz)
    peaks = correlations[..., 0].astype(np.complex128)
    loudness = (np.abs(correlations) ** 2).mean(axis=(1, 2), dtype=np.float64)
    common = float(np.angle(_inverse(loudness) @ (peaks[:, 1:] * peaks[:, :-1].conj()).sum(axis=1)))
    turns = np.array([_turn(row, common) for row in peaks])
    still = correlations * np.exp(-1j * turns[:, None, None] * np.arange(upchirps)[:, None])
    mean = still.mean(axis=1, keepdims=True)
    spread = still[..., ::2] - mean[..., ::2]
    noise = (np.abs(spread) ** 2).mean(axis=(1, 2)) * upchirps / (upchirps - 1)
    signal = np.abs(mean[:, 0, 0]) ** 2
    own = (
        np.abs(correlate(modulation.upchirp, modulation)[::2]) ** 2
    ).sum()  # of a chirp of amplitude one, in all bins
    energy = (np.abs(still[..., ::2]) ** 2).sum()
    power = np.einsum("a,aks->s", _inverse(noise), np.abs(correlations) ** 2)
    late = peak_offset(power) - common / (2 * np.pi)
    return Preamble(
        start=start - late * modulation.oversampling,
        cfo_hz=cfo_hz + turns / (2 * np.pi) * modulation.bin_hz,
        signal=np.maximum(signal - noise / upchirps, 0),
        noise=noise,
        quality=float(min(upchirps * own * signal.sum() / energy, 1)) if energy > 0 else 0.0,
    )


def _inverse(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """1/x, and 0 where x is 0: the weight of an antenna."""
    return np.divide(1, values, out=np.zeros(len(values)), where=values > 0)


def _turn(peaks: NDArray[np.complex128], around: float) -> float:
    """Radians a symbol by which (n,) peaks turn, within π of `around`: the top of their periodogram."""
    centred = peaks * np.exp(-1j * around * np.arange(len(peaks)))
    power = np.abs(np.fft.fft(centred, FINE_STEPS)) ** 2
    top = int(np.argmax(power))
    before, best, after = power[top - 1], power[top], power[(top + 1) % FINE_STEPS]
    bend = before - 2 * best + after
    step = (top + FINE_STEPS // 2) % FINE_STEPS - FINE_STEPS // 2
    vertex = (before - after) / (2 * bend) if bend < 0 else 0.0
    return float(around + 2 * np.pi * (step + vertex) / FINE_STEPS)


def header_at(start: float, step: float, upchirps: int) -> float:
    """Where the first symbol after the downchirps begins."""
    return start + (upchirps + SYNC_SYMBOLS + DOWNCHIRPS) * step
