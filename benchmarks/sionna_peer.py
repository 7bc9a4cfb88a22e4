"""Sionna's block-static TDL-D with the impairments of our simulator in plain torch; run by `benchmarks.simulate`.

A file of its own without imports from here, because it runs in an environment that has only torch and Sionna:
`python sionna_peer.py FILTER WAVEFORM.npy SAMPLES SAMPLE_RATE_HZ CARRIER_HZ DELAY_SPREAD_S BATCH SECONDS`. It says
"ready", waits for a line, works for SECONDS and prints one JSON object. FILTER is `block`, Sionna's own
ApplyTimeChannel, or `matmul`, the fastest plain way to apply Sionna's taps that we found.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time

import numpy as np
import torch
from sionna.phy.channel import ApplyTimeChannel, cir_to_time_channel, time_lag_discrete_time_channel
from sionna.phy.channel.tr38901 import TDL

ANTENNAS = 4


class Peer:
    """One channel realisation per frame, four receive antennas, the profile of an ordinary device."""

    def __init__(
        self,
        by: str,
        base: np.ndarray,
        samples: int,
        sample_rate_hz: float,
        carrier_hz: float,
        delay_spread_s: float,
    ) -> None:
        self.by = by
        self.samples, self.sample_rate_hz = samples, sample_rate_hz
        self.tdl = TDL("D", delay_spread_s, carrier_hz, min_speed=1.0, max_speed=1.0, num_rx_ant=ANTENNAS)
        # TDL-D ends 12.5 delay spreads after the first arrival.
        self.l_min, self.l_max = time_lag_discrete_time_channel(sample_rate_hz, 12.5 * delay_spread_s)
        self.block = ApplyTimeChannel(len(base), self.l_max - self.l_min + 1)
        self.base = torch.from_numpy(base.astype(np.complex64))
        self.n = torch.arange(samples, dtype=torch.float32)

    def frames(self, batch: int) -> torch.Tensor:
        """(batch, 4, T) frames: I/Q imbalance, LO leakage, amplifier, phase noise, TDL-D, CFO, noise, levels."""
        branch = 10 ** (0.3 / 20) * np.exp(1j * np.deg2rad(1.0))
        x = complex((1 + branch) / 2) * self.base + complex((1 - branch) / 2) * self.base.conj() + 0.01
        rho2 = x.abs().square() / 10**0.7
        x = x * torch.polar((1 + rho2**3) ** (-1 / 6), math.radians(10) * rho2 / (1 + rho2))
        step = math.sqrt(2 * math.pi * 50 / self.sample_rate_hz)
        white = math.radians(0.5) * torch.randn(batch, len(x))
        phase = white + torch.cumsum(step * torch.randn(batch, len(x)), 1)
        x = x * torch.polar(torch.ones_like(phase), phase)
        gains, delays = self.tdl(batch, 1, self.sample_rate_hz)
        taps = cir_to_time_channel(self.sample_rate_hz, gains, delays, self.l_min, self.l_max)
        if self.by == "block":  # one time step, which broadcasts over the frame
            y = self.block(x[:, None, None], taps)[:, 0, :, -self.samples :]
        else:  # windows of the frame times the taps, one matrix product per frame
            taps = taps.reshape(batch, ANTENNAS, -1)
            y = taps @ x.unfold(1, self.samples, 1)[:, : taps.shape[-1]].flip(1)
        frequency_hz = 100 * torch.randn(batch, ANTENNAS, 1)
        angle = 2 * math.pi * frequency_hz * self.n / self.sample_rate_hz + 2 * math.pi * torch.rand(batch, 1, 1)
        y = y * torch.polar(torch.ones_like(angle), angle)
        y = y + 0.05 * torch.randn_like(y)
        return y / y.abs().square().mean(-1, keepdim=True).sqrt()


def main() -> None:
    by, path, samples, sample_rate_hz, carrier_hz, delay_spread_s, batch, seconds = sys.argv[1:]
    torch.set_num_threads(1)
    taps = 64  # history before and behind the frame, enough for every tap
    base = np.pad(np.load(path), (taps, 0))[: int(samples) + taps]
    peer = Peer(by, base, int(samples), float(sample_rate_hz), float(carrier_hz), float(delay_spread_s))
    with torch.inference_mode():
        peer.frames(int(batch))
        print("ready", flush=True)
        sys.stdin.readline()
        frames, started, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - started < float(seconds):
            frames += len(peer.frames(int(batch)))
        elapsed = time.perf_counter() - started
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    used = time.process_time() - cpu
    print(json.dumps({"frames": frames, "seconds": elapsed, "cpu_seconds": used, "peak_mb": peak_mb}), flush=True)


if __name__ == "__main__":
    main()
