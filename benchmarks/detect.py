"""How fast, how surely and how well Wi-Fi frames are found in streams of samples, on two cores.

    make bench-detect [ARGS="--frames 1000 --noise 60 --seconds 4"]

Speed: four antennas, with frames a tenth and half of the time, data frames of all rates each with its acknowledgement,
from samples in memory and from files (cs16, in the operating system's cache), with and without their headers, a long
one by two processes, whose start is part of the time; reading alone; and the memory that a stream takes as it goes on.
CPU: what two cores would do if both were busy all the time; not known of several processes.
Detection: frames in noise, one and four antennas, behind a single path or behind Rayleigh paths of a typical office
(50 ns); false alarms in noise, carriers and DC. Headers: addresses right by rate, and how many are read in a second.
The last line is one JSON object with all figures.

Theory. A window of L = 128 A pairs of samples 16 apart holds an L-STF with a signal-to-noise ratio γ. Its lag-16 sum is
complex normal with mean γ L and variance (1 + 2γ) L in units of the noise, its power (1 + γ) L, so the screen passes
with probability Q₁(γ √(2L/(1 + 2γ)), √t (1 + γ) √(2L/(1 + 2γ))), Marcum's function, t its threshold. Noise passes it
with probability (1 − t)^(L−1) a window, 1.25 million windows a second; then the preamble behind a channel of 16 taps
must explain more than a fifth of the energy of 320 A samples, of which it explains Beta(16 A, 304 A) of noise. The
largest of 160 starts is taken (union bound).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, ncx2
from threadpoolctl import threadpool_limits

from benchmarks.report import begin, show, show_table
from pisa_capc.core.randomness import generator
from pisa_capc.signal.detection import FoundFrame, WifiDetector, detect, with_headers
from pisa_capc.signal.detection.finding import BLOCK
from pisa_capc.signal.detection.wifi.detector import CHUNK
from pisa_capc.signal.detection.wifi.preamble import LEAST_QUALITY, SEARCH, TAPS
from pisa_capc.signal.detection.wifi.screen import BLOCK as PERIOD
from pisa_capc.signal.detection.wifi.screen import WINDOW, coherence_threshold
from pisa_capc.signal.phy.wifi import mac, transmit
from pisa_capc.signal.recordings import Recording, open_recording
from pisa_capc.signal.waveforms.wifi import PREAMBLE_SAMPLES

RATE_HZ = 20e6
CORES = 2
ANTENNAS = 4  # where speed is measured
SEED = 2026
SHORT, LONG = 4, 64  # times that traffic is in a file: 0.4 s, and 6.7 s, which is worth several processes
RATES_MBPS = (6, 9, 12, 18, 24, 36, 48, 54)
SNR_DB = (-5.0, -3.0, -1.0, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0)
SIFS_SAMPLES = 320
CFO_HZ = 233e3  # 40 ppm of 5.825 GHz
SCALE = 0.01  # of a receiver's full scale: its noise
RMS_SAMPLES = 1.0  # 50 ns
SENDER, RECEIVER = "02:00:00:00:00:01", "02:00:00:00:00:02"

Samples = NDArray[np.complex64]


def noise(rng: np.random.Generator, antennas: int, count: int) -> Samples:
    return rng.standard_normal((antennas, 2 * count), dtype=np.float32).view(np.complex64) * np.float32(
        SCALE * 0.5**0.5
    )


def data_frame(rng: np.random.Generator, rate_mbps: float, octets: int) -> NDArray[np.complex128]:
    psdu = mac.data(RECEIVER, SENDER, RECEIVER, rng.bytes(octets))
    return transmit(psdu, rate_mbps, int(rng.integers(1, 128)))


def received(
    rng: np.random.Generator, frame: NDArray[np.complex128], antennas: int, snr_db: float, cfo_hz: float, paths: bool
) -> Samples:
    """(A, T) a frame behind one path with a random phase, or behind Rayleigh paths with an exponential profile."""
    turn = np.exp(2j * np.pi * cfo_hz / RATE_HZ * np.arange(len(frame)))
    if paths:
        profile = np.exp(-np.arange(12) / RMS_SAMPLES)
        taps = rng.standard_normal((2, antennas, 12)) * np.sqrt(profile / profile.sum() / 2)
        through = np.array([np.convolve(frame, tap)[: len(frame)] for tap in taps[0] + 1j * taps[1]])
    else:
        through = frame * np.exp(2j * np.pi * rng.random((antennas, 1)))
    return (SCALE * 10 ** (snr_db / 20) * through * turn).astype(np.complex64)


def found_in(blocks: Iterator[Samples], antennas: int) -> list[FoundFrame]:
    detector = WifiDetector(antennas)
    return [one for block in blocks for one in detector.push(block)] + detector.finish()


# Speed.


def traffic(duty: float, antennas: int, count: int) -> tuple[Samples, int]:
    """(A, count) samples with frames `duty` of the time, and how many they are."""
    rng = generator(SEED, "bench-detect", "traffic")
    iq, at, frames, on_air = noise(rng, antennas, count), 0, 0, 0
    while True:
        data = data_frame(rng, float(rng.choice(RATES_MBPS)), int(rng.integers(20, 1500)))
        answer = transmit(mac.ack(SENDER), 24, 1)
        at = int((on_air + len(data) + len(answer)) / duty) - len(data) - len(answer) - SIFS_SAMPLES
        if at + len(data) + SIFS_SAMPLES + len(answer) > count:
            return iq, frames
        for frame, start in ((data, at), (answer, at + len(data) + SIFS_SAMPLES)):
            snr_db, cfo_hz = rng.uniform(10, 30), rng.uniform(-CFO_HZ, CFO_HZ)
            iq[:, start : start + len(frame)] += received(rng, frame, antennas, snr_db, cfo_hz, paths=True)
            frames, on_air = frames + 1, on_air + len(frame)


def speed(
    what: str, duty: float, seconds: float, work: Callable[[Samples], Callable[[], int]], repeated: int = 1
) -> dict[str, Any]:
    """Millions of samples a second over all antennas. `work` is given traffic, and tells how to find its frames, each
    `repeated` times."""
    iq, frames = traffic(duty, ANTENNAS, 16 * CHUNK)
    find = work(iq)
    find()
    found = rounds = 0
    wall, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        found += find()
        rounds += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rounds *= repeated
    millions = rounds * iq.size / 1e6
    return {
        "what": what,
        "on air": duty,
        "M samples/s": millions / wall,
        "CPU M samples/s": None if repeated == LONG else CORES * millions / cpu,
        "times real time": millions / wall / (ANTENNAS * RATE_HZ / 1e6),
        "frames/s": found / wall if found else None,
        "found of sent": found / (rounds * frames) if found else None,
    }


def in_memory(iq: Samples) -> Callable[[], int]:
    """The same samples come again and again, as one stream."""
    detector, blocks = WifiDetector(ANTENNAS), np.split(iq, 4, axis=1)
    return lambda: sum(len(detector.push(block)) for block in blocks)


def speeds(seconds: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:

        def recorded(iq: Samples, repeated: int = SHORT) -> Recording:
            path = Path(folder) / "traffic.cs16"
            data = (32768 * iq.T.copy().view(np.float32)).clip(-32768, 32767).astype("<i2").tobytes()
            with path.open("wb") as file:
                file.writelines(data for _ in range(repeated))
            return open_recording(path, sample_rate_hz=RATE_HZ, antennas=ANTENNAS)

        def read(iq: Samples) -> Callable[[], int]:
            recording = recorded(iq)

            def through() -> int:
                for _ in recording.blocks(BLOCK):
                    pass
                return 0

            return through

        def from_file(decode: bool, repeated: int = SHORT) -> Callable[[Samples], Callable[[], int]]:
            def found(iq: Samples) -> Callable[[], int]:
                recording = recorded(iq, repeated)
                return lambda: len(detect(recording, decode=decode, workers=CORES).frames)

            return found

        return [
            speed("found in memory", 0.1, seconds, in_memory),
            speed("found in memory", 0.5, seconds, in_memory),
            speed("read from a file", 0.1, seconds, read, SHORT),
            speed("found in a file", 0.1, seconds, from_file(decode=False), SHORT),
            speed("found in a file", 0.5, seconds, from_file(decode=False), SHORT),
            speed("found and decoded in a file", 0.1, seconds, from_file(decode=True), SHORT),
            speed("found in a long file", 0.1, seconds, from_file(decode=False, repeated=LONG), LONG),
            speed("found and decoded in a long file", 0.1, seconds, from_file(decode=True, repeated=LONG), LONG),
        ]


def memory(seconds: float) -> dict[str, Any]:
    """Resident memory while a stream goes on, after a tenth of it and at its end."""
    iq, _ = traffic(0.1, ANTENNAS, 4 * CHUNK)
    detector, started, pushed, early = WifiDetector(ANTENNAS), time.perf_counter(), 0, 0.0
    while time.perf_counter() - started < seconds:
        detector.push(iq)
        pushed += 1
        if not early and time.perf_counter() - started > seconds / 10:
            early = _resident_mib()
    return {"samples": pushed * iq.size, "rss_mib_start": early, "rss_mib_end": _resident_mib()}


def _resident_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


# Detection.


def theory_detected(snr_db: float, antennas: int) -> float:
    """Q₁ of the module's text."""
    snr, pairs = 10 ** (snr_db / 10), WINDOW * PERIOD * antennas
    unit = 2 * pairs / (1 + 2 * snr)
    return float(ncx2.sf(coherence_threshold() * (1 + snr) ** 2 * unit, 2, snr**2 * unit))


def theory_false_per_minute(antennas: int) -> float:
    """Union bound of the module's text."""
    passed = 60 * RATE_HZ / PERIOD * (1 - coherence_threshold()) ** (WINDOW * PERIOD * antennas - 1)
    explained = beta.sf(LEAST_QUALITY, TAPS * antennas, (PREAMBLE_SAMPLES - TAPS) * antennas)
    return float(passed * min(2 * SEARCH * explained, 1))


def bound_hz(snr_db: float, samples: int = PREAMBLE_SAMPLES) -> float:
    """Cramér–Rao bound of the frequency of known samples with an unknown phase: √(6/(γ N (N² − 1))) f_s/2π."""
    return float(RATE_HZ / (2 * np.pi) * np.sqrt(6 / (10 ** (snr_db / 10) * samples * (samples**2 - 1))))


def detection(antennas: int, snr_db: float, paths: bool, frames: int) -> dict[str, Any]:
    """Short frames at known places; found: within 40 samples of one, more than that is false."""
    rng = generator(SEED, "bench-detect", f"{antennas} {snr_db} {paths}")
    frame, spacing = transmit(mac.ack(SENDER), 6, 93), 2000
    iq = noise(rng, antennas, spacing * frames)
    where = spacing * np.arange(frames) + rng.integers(200, spacing - len(frame) - 200, frames)
    cfo_hz = rng.uniform(-CFO_HZ, CFO_HZ, frames)
    for start, offset in zip(where, cfo_hz, strict=True):
        iq[:, start : start + len(frame)] += received(rng, frame, antennas, snr_db, offset, paths)
    found = found_in(iter([iq]), antennas)
    which = np.array([np.abs(where - one.at).argmin() for one in found], dtype=int)
    late = np.array([one.at for one in found], dtype=int) - where[which]
    hit = np.abs(late) <= 40
    off_hz = np.array([one.cfo_hz for one in found]).reshape(-1, antennas)[hit] - cfo_hz[which[hit], None]
    some = hit.sum() >= 10
    return {
        "antennas": antennas,
        "channel": "Rayleigh, 50 ns" if paths else "one path",
        "SNR dB": snr_db,
        "found": len(set(which[hit])) / frames,
        "theory": None if paths else theory_detected(snr_db, antennas),
        "false": int((~hit).sum()),
        "start ±1": float((np.abs(late[hit]) <= 1).mean()) if some else None,
        "CFO error Hz": float(np.sqrt((off_hz**2).mean())) if some else None,
        "median |error|": float(np.median(np.abs(off_hz))) if some else None,
        "bound Hz": bound_hz(snr_db),
    }


def false_alarms(antennas: int, seconds: float) -> dict[str, Any]:
    """What is found in noise, and in a tenth as much with a carrier or DC of 20 dB."""
    rng = generator(SEED, "bench-detect", f"noise {antennas}")
    count = 4 * CHUNK
    n = np.arange(count)
    carrier = (10 * SCALE * np.exp(2j * np.pi * 1000 * 17 / count * n)).astype(np.complex64)

    def blocks(added: Samples | float, length: float) -> Iterator[Samples]:
        for _ in range(round(length * RATE_HZ / count)):
            yield noise(rng, antennas, count) + np.complex64(added)

    return {
        "antennas": antennas,
        "seconds": seconds,
        "in noise": len(found_in(blocks(0.0, seconds), antennas)),
        "theory per minute": theory_false_per_minute(antennas),
        "with a carrier": len(found_in(blocks(carrier, seconds / 10), antennas)),
        "with DC": len(found_in(blocks(10 * SCALE, seconds / 10), antennas)),
    }


# Headers.


def addresses(rate_mbps: float, antennas: int, frames: int) -> dict[str, Any]:
    """Frames of 100 octets behind Rayleigh paths: of those sent, how many were found and gave their address."""
    row: dict[str, Any] = {"Mb/s": rate_mbps, "antennas": antennas}
    for snr_db in (5.0, 10.0, 15.0, 20.0, 25.0, 30.0):
        rng = generator(SEED, "bench-detect", f"addresses {rate_mbps} {antennas} {snr_db}")
        frame = data_frame(rng, rate_mbps, 72)
        spacing = len(frame) + 1000
        iq = noise(rng, antennas, spacing * frames)
        for start in spacing * np.arange(frames) + 500:
            cfo_hz = rng.uniform(-CFO_HZ, CFO_HZ)
            iq[:, start : start + len(frame)] += received(rng, frame, antennas, snr_db, cfo_hz, paths=True)
        found = with_headers(found_in(iter([iq]), antennas))
        row[f"{snr_db:g} dB"] = sum(one.header.transmitter == SENDER for one in found) / frames
    return row


def headers_per_second(header_only: bool) -> dict[str, Any]:
    """Data frames of all rates and their acknowledgements, four antennas."""
    iq, _ = traffic(0.5, ANTENNAS, 16 * CHUNK)
    found = found_in(iter([iq]), ANTENNAS)
    started = time.perf_counter(), time.process_time()
    read = with_headers(found, header_only=header_only)
    wall, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    return {
        "decoded": "headers" if header_only else "whole frames",
        "frames": len(found),
        "frames/s": len(found) / wall,
        "CPU frames/s": len(found) / cpu,
        "kind known": sum(one.header.kind is not None for one in read) / len(read),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1000, help="frames of each row of the detection (1,000)")
    parser.add_argument("--noise", type=float, default=60.0, help="seconds of noise for false alarms (60)")
    parser.add_argument("--seconds", type=float, default=4.0, help="each speed is measured for (4)")
    options = parser.parse_args()
    facts: dict[str, Any] = {}

    def told(name: str, title: str, rows: list[dict[str, Any]]) -> None:
        show_table(title, rows)
        facts[name] = rows

    with threadpool_limits(1):  # the detector has threads of its own
        told("speed", "speed: four antennas", speeds(options.seconds))
        told("memory", "memory of the process", [memory(options.seconds)])
        told("headers", "headers", [headers_per_second(only) for only in (True, False)])
        told(
            "addresses",
            "addresses right",
            [addresses(rate, a, options.frames // 10) for a in (1, 4) for rate in RATES_MBPS],
        )
        told("false_alarms", "false alarms", [false_alarms(a, options.noise) for a in (1, 4)])
        rows = [detection(a, snr, p, options.frames) for p in (False, True) for a in (1, 4) for snr in SNR_DB]
    show("detection of Wi-Fi frames", rows, facts)


if __name__ == "__main__":
    begin(main)
