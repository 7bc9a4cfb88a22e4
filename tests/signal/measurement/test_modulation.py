"""Modulation index, drift and pulses of a modulator are measured within their bars, whatever the channel."""

from __future__ import annotations

import numpy as np

from pisa_capc import Frames
from pisa_capc.signal.measurement.modulation import measure_modulation
from pisa_capc.signal.measurement.senders import measure
from pisa_capc.signal.waveforms import WAVEFORMS
from pisa_capc.signal.waveforms.ble import BEGINNING, KNOWN_SAMPLES, RATE_HZ, bits_of, modulate

COUNT = 24


def packets(index: float = 0.5, drift_hz_per_ms: float = 0.0, seed: int = 0) -> np.ndarray:
    """(COUNT, 1, T) beginnings behind an echo, at 25 dB."""
    rng = np.random.default_rng(seed)
    sent = modulate(bits_of(BEGINNING + b"\x55"), index)[: KNOWN_SAMPLES + 8]
    t = np.arange(len(sent)) / RATE_HZ
    sent = sent * np.exp(1j * np.pi * 1e3 * drift_hz_per_ms * t**2)
    heard = sent + 0.3j * np.concatenate([[0], sent[:-1]])
    noise = rng.normal(scale=0.04, size=(COUNT, len(heard), 2)) @ [1, 1j]
    return np.asarray(heard * np.exp(2j * np.pi * rng.random((COUNT, 1))) + noise)[:, None]


def frames(*parts: np.ndarray) -> Frames:
    device = [f"D{k}" for k, part in enumerate(parts) for _ in part]
    return Frames.from_arrays(
        np.concatenate(parts), device=device, environment=["lab"] * len(device), sample_rate_hz=RATE_HZ
    )


def test_index_and_drift_are_measured_within_their_bars() -> None:
    for index, drift in ((0.5, 0.0), (0.515, 0.0), (0.49, 40_000.0)):
        value, std = measure_modulation(WAVEFORMS["ble"], frames(packets(index, drift)))
        off = (value - [100 * (index / 0.5 - 1), drift, 0.0]) / std
        assert (np.abs(off.mean(axis=0)) < 1.2).all()  # of COUNT frames; of the first order in a part of 3 %
        assert (np.abs(off) < 5).all()


def test_senders_are_shown_with_their_modulation_and_others_have_none() -> None:
    found = measure(frames(packets(0.5, seed=1), packets(0.515, seed=2)))
    usual, high = (found.modulation_of(name)[0] for name in ("D0", "D1"))
    assert (usual.name, usual.unit) == ("modulation index", "%")
    assert usual.low < 0 < usual.high
    assert high.low > 2 > usual.high
    assert found.of("D1").modulation_of("D1")[0] == high
    assert "drift (Hz/ms)" in next(iter(found.rows()))
    wifi = WAVEFORMS["wifi"].preamble()[None, None] + 0.01 * np.random.default_rng(0).normal(size=(1, 1, 320))
    alone = Frames.from_arrays(wifi, device=["D"], environment=["lab"], sample_rate_hz=20e6)
    assert measure(alone).modulation_of("D") == []
