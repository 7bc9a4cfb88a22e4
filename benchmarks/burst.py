"""How fast bursts of any signal are found by their energy, on two cores.

`make bench-burst` writes a recording of 16-bit samples of one antenna at 20 MS/s, in which bursts of 0.2 to 2 ms fill a
tenth of the time (5 to 30 dB over the noise), or none do, and searches it as `pisa detect --waveform burst` does: read
from its file, looked at for clipping, and searched. The best of the rounds counts. That each burst is found within 16
samples of its ends, and nothing else, is checked.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import begin, show
from pisa_capc.core.errors import DataError
from pisa_capc.signal.detection import detect
from pisa_capc.signal.recordings import open_recording

RATE_HZ = 20e6
NEAR = 16  # samples
AIMED = 60e6  # samples a second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for share in (0.0, 0.1):
            path = Path(folder) / f"air-{share:g}.cs16"
            sent = write(path, round(given.seconds * RATE_HZ), share)
            seconds, found = best(path, given.rounds)
            check(sent, found)
            speed = given.seconds * RATE_HZ / seconds
            rows.append({"duty": share, "bursts": len(sent), "found": len(found), "samples/s": speed})
    slowest = min(row["samples/s"] for row in rows)
    show("Bursts", rows, {"seconds": given.seconds, "aimed": AIMED, "reached": slowest >= AIMED})


def write(path: Path, samples: int, share: float) -> list[tuple[int, int]]:
    """Noise with bursts in it, second by second; first sample and length of each."""
    rng, sent = np.random.default_rng(1), list[tuple[int, int]]()
    with path.open("wb") as file:
        for first in range(0, samples, int(RATE_HZ)):
            count = min(int(RATE_HZ), samples - first)
            x = rng.normal(scale=30, size=(count, 2)).astype(np.float32).view(np.complex64)[:, 0]
            at = 50_000
            while share and at < count - 50_000:
                length = int(rng.uniform(0.2e-3, 2e-3) * RATE_HZ)
                length = min(length, count - 50_000 - at)
                if length > 2000:
                    power_db = rng.uniform(5, 30)
                    symbols = rng.choice([1, -1, 1j, -1j], length // 4 + 1).repeat(4)[:length]
                    x[at : at + length] += 30 * np.sqrt(2) * 10 ** (power_db / 20) * symbols
                    sent.append((first + at, length))
                at += int(length / share)
            np.clip(np.round(x.view(np.float32)), -32768, 32767).astype("<i2").tofile(file)
    return sent


def best(path: Path, rounds: int) -> tuple[float, list[tuple[int, int]]]:
    """Seconds of the fastest round, and what was found."""
    seconds, found = float("inf"), list[tuple[int, int]]()
    for _ in range(rounds):
        recording = open_recording(path, sample_rate_hz=RATE_HZ)
        begun = time.perf_counter()
        frames = detect(recording, "burst").frames
        seconds = min(seconds, time.perf_counter() - begun)
        found = [(frame.start, frame.samples or 0) for frame in frames]
    return seconds, found


def check(sent: list[tuple[int, int]], found: list[tuple[int, int]]) -> None:
    if len(sent) != len(found):
        raise DataError(f"{len(sent)} bursts were sent, {len(found)} found.")
    for (at, length), (start, samples) in zip(sent, found, strict=True):
        if abs(at - start) > NEAR or abs(at + length - start - samples) > NEAR:
            raise DataError(f"a burst at {at:,} of {length:,} samples was found at {start:,}, of {samples:,}.")


if __name__ == "__main__":
    begin(main)
