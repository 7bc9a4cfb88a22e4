"""Squitters are found in streams, whatever blocks they come in, and a spoofed address stands out on the whole road."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.signal.detection import detect
from pisa_capc.signal.detection.adsb import AdsbDetector
from pisa_capc.signal.phy.adsb import squitter, transmit
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.simulation.recording import record
from pisa_capc.signal.waveforms.adsb import SAMPLES
from tests.signal.phy.noise import at_receiver
from tests.signal.recordings.tools import InMemory

STARTS = (5, 700, 66_000, 131_060, 150_000)


def stream(snr_db: float = 20.0) -> tuple[NDArray[np.complex64], list[str]]:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(2, 160_000, 2)) @ [1, 1j] / np.sqrt(2)).astype(np.complex64)
    addresses = [rng.bytes(3).hex() for _ in STARTS]
    for start, address in zip(STARTS, addresses, strict=True):
        frame = transmit(squitter(address, rng.bytes(7)))
        x[:, start : start + SAMPLES] = at_receiver(frame, rng, snr_db, rng.uniform(-0.1, 0.1), rng.uniform(-0.4, 0.4))
    return x, addresses


@pytest.mark.parametrize("block", [997, 65_536, 160_000])
def test_squitters_are_found_in_any_blocks(block: int) -> None:
    x, addresses = stream()
    detector = AdsbDetector()
    found = [f for at in range(0, x.shape[1], block) for f in detector.push(x[:, at : at + block])]
    found += detector.finish()
    assert [frame.at for frame in found] == list(STARTS)
    assert [frame.claimed for frame in found] == addresses
    assert all(frame.header.fcs for frame in found)
    np.testing.assert_allclose([frame.snr_db for frame in found], 20, atol=2)


def test_a_frame_that_the_end_cuts_is_left_out() -> None:
    x, addresses = stream()
    detector = AdsbDetector()
    found = detector.push(x[:, : 150_000 + SAMPLES - 1]) + detector.finish()
    assert [frame.claimed for frame in found] == addresses[:-1]


def test_noise_silence_and_a_carrier_hold_no_squitters() -> None:
    rng = np.random.default_rng(1)
    noise = (rng.normal(size=(1, 300_000, 2)) @ [1, 1j]).astype(np.complex64)
    tone = np.exp(0.3j * np.arange(300_000))[None].astype(np.complex64)
    for x in (noise, 0 * noise, noise + 30 * tone, np.full_like(noise, np.nan)):
        detector = AdsbDetector()
        assert detector.push(x) + detector.finish() == []


@pytest.mark.parametrize("rate_hz", [2e6, 2.4e6, 6e6, 20e6])
def test_recordings_of_other_rates_are_resampled(rate_hz: float) -> None:
    from scipy.signal import resample

    x, addresses = stream(30.0)
    y = np.asarray(resample(x, round(x.shape[1] * rate_hz / 2.5e6), axis=1), dtype=np.complex64)
    found = detect(InMemory(y, rate_hz), "adsb").frames
    assert [frame.claimed for frame in found if frame.header.fcs] == addresses


def test_too_low_a_rate_is_refused() -> None:
    x, _ = stream()
    with pytest.raises(DataError, match=r"1.8 MS/s do not hold the 1.675 MHz of the signal"):
        detect(InMemory(x, 1.8e6), "adsb")


def test_a_simulated_recording_holds_what_its_annotations_say(tmp_path: Path) -> None:
    made = record("adsb", tmp_path, 0.1, workers=1, show_progress=False)
    opened = open_recording(made.recording)
    found = {frame.start: frame for frame in detect(opened, "adsb").frames}
    truth = list(opened.annotations)
    assert len(truth) == made.frames > 20
    heard = [next((found[n.start + d] for d in (0, -1, 1) if n.start + d in found), None) for n in truth]
    right = [frame is not None and frame.header.fcs for frame in heard]
    assert np.mean(right) > 0.95
