"""How well and how fast LoRa frames are found and read: `python -m benchmarks.detect_lora [--trials N] [--seconds S]`.

Frames of random CFO (±20 kHz, the sampling offset with it) begin at random fractions of a sample in white noise. By
spreading factor, antennas and SNR within the bandwidth: how many are found, how many of these begin within a sample of
the truth, the CFO's error against the bound for eight known upchirps, and whose addresses are right. Then false alarms
in noise, and the speed on one core. Prints tables and, as its last line, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.signal import oaconvolve
from threadpoolctl import threadpool_limits

from benchmarks.report import of_what
from pisa_capc.signal.detection.lora import LoraDetector
from pisa_capc.signal.phy.lora import Modulation, lorawan, transmit
from pisa_capc.signal.simulation.numerics import delay_kernel, resample

CARRIER_HZ = 868e6
RATE_HZ = 1e6
CFO_HZ = 20e3
BLOCK = 1 << 16
CASES = {7: (-14.0, -12.0, -10.0, -7.5, -5.0, 0.0, 10.0), 9: (-16.0, -12.5), 12: (-24.0, -20.0)}
ANTENNAS = (1, 4)
SPEED_SECONDS = 4.0
KERNEL = 4  # samples on either side that make what is between samples


def noise(antennas: int, samples: int, snr_db: float, rng: np.random.Generator) -> NDArray[np.complex64]:
    """White noise against which a waveform of unit power has this SNR within a bandwidth of an eighth of the rate."""
    scale = np.float32(np.sqrt(8 / 10 ** (snr_db / 10) / 2))
    return scale * rng.standard_normal((antennas, samples, 2), np.float32).view(np.complex64)[..., 0]


def frame(spreading_factor: int, address: int, rng: np.random.Generator) -> tuple[NDArray[np.complex128], float, float]:
    """A LoRaWAN uplink of thirteen octets as it arrives, where in it the frame begins, and its CFO in Hz."""
    sent = transmit(lorawan.data_frame(address, 1), spreading_factor, 1, sync_word=lorawan.SYNC_WORD)
    cfo_hz = rng.uniform(-CFO_HZ, CFO_HZ)
    drifted = resample(sent, 1 + cfo_hz / CARRIER_HZ, 1 / 8, KERNEL)
    late = rng.uniform()
    delayed = oaconvolve(drifted, delay_kernel(late, KERNEL, 2 * KERNEL + 2, 1 / 8))
    return delayed * np.exp(2j * np.pi * cfo_hz / RATE_HZ * np.arange(len(delayed))), KERNEL + late, cfo_hz


def find(samples: NDArray[np.complex64], spreading_factor: int | None) -> list:
    detector = LoraDetector(spreading_factor, sample_rate_hz=RATE_HZ, carrier_hz=CARRIER_HZ)
    blocks = (samples[:, at : at + BLOCK] for at in range(0, samples.shape[1], BLOCK))
    return [found for block in blocks for found in detector.push(block)] + detector.finish()


def cfo_bound_hz(spreading_factor: int, snr_db: float) -> float:
    """The least standard deviation from one antenna's eight known upchirps (Rife & Boorstyn, 1974)."""
    samples, per_sample = 8 * Modulation(spreading_factor).symbol_samples, 10 ** (snr_db / 10) / 8
    return float(np.sqrt(6 / (per_sample * samples**3)) / (2 * np.pi) * RATE_HZ)


def detection(spreading_factor: int, antennas: int, snr_db: float, trials: int, seed: int = 0) -> dict[str, float]:
    """Shares of frames found, begun within a sample, and read; CFO error over its bound; frames that are none."""
    rng = np.random.default_rng([seed, spreading_factor, antennas, round(snr_db * 10) % 1000])
    gap = 6 * Modulation(spreading_factor).symbol_samples
    found_all = in_time = addressed = extra = 0
    errors: list[NDArray[np.float64]] = []
    for trial in range(trials):
        sent, lead, cfo_hz = frame(spreading_factor, trial, rng)
        at = int(rng.integers(gap))
        start = at + lead
        samples = noise(antennas, sent.size + 2 * gap, snr_db, rng)
        samples[:, at : at + sent.size] += sent * np.exp(2j * np.pi * rng.uniform(size=(antennas, 1)))
        found = find(samples, spreading_factor)
        right = [d for d in found if abs(d.start - start) < gap / 12]
        extra += len(found) - len(right)
        for d in right[:1]:
            found_all += 1
            in_time += abs(d.start - start) <= 1
            addressed += d.header.transmitter == f"{trial:08x}"
            errors.append(d.cfo_hz - cfo_hz)
    spread = float(np.sqrt(np.mean(np.square(errors)))) if errors else float("nan")
    return {
        "found": found_all / trials,
        "within_one_sample": in_time / max(found_all, 1),
        "cfo_rms_hz": spread,
        "cfo_bound_hz": cfo_bound_hz(spreading_factor, snr_db),
        "addresses_right": addressed / trials,
        "false": extra,
    }


def false_alarms(spreading_factor: int | None, antennas: int, seconds: float, seed: int = 0) -> int:
    """Frames found in so many seconds of noise."""
    rng = np.random.default_rng([seed, antennas])
    detector = LoraDetector(spreading_factor, sample_rate_hz=RATE_HZ, carrier_hz=CARRIER_HZ)
    blocks = (noise(antennas, BLOCK, 0.0, rng) for _ in range(round(seconds * RATE_HZ / BLOCK)))
    return sum(len(detector.push(block)) for block in blocks) + len(detector.finish())


def speed(spreading_factor: int | None, antennas: int, seconds: float, duty: float) -> float:
    """Times real time on one core, frames on the air for `duty` of the time."""
    rng = np.random.default_rng(0)
    samples = noise(antennas, round(seconds * RATE_HZ), 10.0, rng)
    at = 0
    while duty:
        sent, *_ = frame(spreading_factor or 7, at, rng)
        if at + sent.size > samples.shape[1]:
            break
        samples[:, at : at + sent.size] += sent
        at += round(sent.size / duty)
    with threadpool_limits(1):
        find(samples[:, : 4 * BLOCK], spreading_factor)
        started = time.process_time()  # neighbours on a busy machine do not count
        find(samples, spreading_factor)
        return seconds / (time.process_time() - started)


def measure(trials: int, seconds: float) -> dict[str, dict]:
    """All figures, by what they are of."""
    found = {
        f"SF{factor} {antennas} {snr_db:g}": detection(factor, antennas, snr_db, max(trials >> max(factor - 8, 0), 10))
        for factor, ratios in CASES.items()
        for antennas in ANTENNAS
        for snr_db in ratios
    }
    alarms = {
        f"SF{factor} {antennas}": false_alarms(factor, antennas, seconds) for factor in (7, 12) for antennas in ANTENNAS
    }
    fast = {
        f"SF{factor or '7-12'} 4 {duty:g}": speed(factor, 4, SPEED_SECONDS, duty)
        for factor in (7, 12, None)
        for duty in (0.1, 0.5)
    }
    return of_what() | {
        "detection": found,
        "false_alarms": alarms,
        "seconds_of_noise": {"each": seconds},
        "times_real_time": fast,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detect_lora", description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=60, help="frames for each case; fewer of the long ones")
    parser.add_argument("--seconds", type=float, default=30.0, help="of noise")
    parser.add_argument("--out", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    record = measure(options.trials, options.seconds)
    console = Console()
    table = Table("factor, antennas, SNR dB", "found", "±1 sample", "CFO rms Hz", "bound Hz", "addresses", "false")
    for name, row in record["detection"].items():
        shares = (f"{row[key]:.3f}" for key in ("found", "within_one_sample"))
        errors = (f"{row[key]:.2f}" for key in ("cfo_rms_hz", "cfo_bound_hz"))
        table.add_row(name, *shares, *errors, f"{row['addresses_right']:.3f}", str(row["false"]))
    console.print(table)
    for name, count in record["false_alarms"].items():
        console.print(f"{name}: {count} false alarms in {options.seconds:g} s of noise")
    for name, ratio in record["times_real_time"].items():
        console.print(f"{name} duty cycle: {ratio:.1f} times real time on one core")
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
