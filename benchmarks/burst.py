"""How fast bursts of any signal are found by their energy, on two cores.

`make bench-burst` writes a recording of 16-bit samples of one antenna at 20 MS/s, in which bursts of 0.2 to 2 ms fill a
tenth of the time (5 to 30 dB over the noise), or none do, and searches it as `pisa detect --waveform burst` does: read
from its file, looked at for clipping, and searched. The best of the rounds counts. That each burst is found within 16
samples of its ends, and nothing else, is checked.

Then bursts of 125,000 symbols a second in channels 1 MHz apart, searched in all 20 channels of the band, and in four
that are named: each is to be found in its channel, and nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import begin, show
from pisa_capc.core.errors import DataError
from pisa_capc.signal.detection import detect
from pisa_capc.signal.recordings import open_recording

RATE_HZ, CARRIER_HZ = 20e6, 869e6
DECIMATION = 10  # of a channel 1 MHz wide
NEAR = 16  # samples
AIMED = 60e6  # samples a second
Burst = tuple[int, int, int | None]


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
        for channels in (20, 4):
            path = Path(folder) / f"channels-{channels}.cs16"
            centres = [1e6 * (k - (channels - 1) / 2) for k in range(channels)]
            sent = write(path, round(given.seconds * RATE_HZ), 0.1, centres)
            named = "" if channels == 20 else f"channels={'+'.join(f'{CARRIER_HZ + c:.0f}' for c in centres)},"
            seconds, found = best(path, min(given.rounds, 2), f"burst:{named}width=1e6")
            check(sent, found, NEAR * 10)
            row = {"duty": 0.1, "bursts": len(sent), "found": len(found), "channels": channels}
            rows.append(row | {"samples/s": given.seconds * RATE_HZ / seconds})
    show("Bursts", rows, {"seconds": given.seconds, "aimed": AIMED, "reached": slowest >= AIMED})


def write(path: Path, samples: int, share: float, centres: Sequence[float] = ()) -> list[Burst]:
    """Noise with bursts in it, second by second; first sample, length and channel of each."""
    rng, sent = np.random.default_rng(1), list[Burst]()
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
                    each = 160 if centres else 4
                    symbols = rng.choice([1, -1, 1j, -1j], length // each + 1).repeat(each)[:length]
                    channel = int(rng.integers(len(centres))) if centres else None
                    if channel is not None:
                        symbols = symbols * np.exp(2j * np.pi * centres[channel] / RATE_HZ * np.arange(length))
                    x[at : at + length] += 30 * np.sqrt(2) * 10 ** (power_db / 20) * symbols
                    sent.append((first + at, length, channel))
                at += int(length / share)
            np.clip(np.round(x.view(np.float32)), -32768, 32767).astype("<i2").tofile(file)
    return sent


def best(path: Path, rounds: int, waveform: str = "burst") -> tuple[float, list[Burst]]:
    """Seconds of the fastest round, and what was found."""
    seconds, found = float("inf"), list[Burst]()
    for _ in range(rounds):
        recording = open_recording(path, sample_rate_hz=RATE_HZ, carrier_hz=CARRIER_HZ)
        begun = time.perf_counter()
        frames = detect(recording, waveform).frames
        seconds = min(seconds, time.perf_counter() - begun)
        scale = 1 if waveform == "burst" else DECIMATION
        found = [(frame.start, scale * (frame.samples or 0), frame.channel) for frame in frames]
    return seconds, found


def check(sent: list[Burst], found: list[Burst], near: int = NEAR) -> None:
    if len(sent) != len(found):
        raise DataError(f"{len(sent)} bursts were sent, {len(found)} found.")
    for (at, length, channel), (start, samples, own) in zip(sent, found, strict=True):
        if abs(at - start) > near or abs(at + length - start - samples) > near or channel != own:
            raise DataError(
                f"a burst at {at:,} of {length:,} samples in channel {channel} was found at {start:,}, of {samples:,} "
                f"in {own}."
            )


if __name__ == "__main__":
    begin(main)
