"""IEEE 802.15.4 frames are found in streams, with offset, SNR and address."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.signal.detection import detect, finder_of
from pisa_capc.signal.phy.ieee802154 import data_frame, transmit
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.simulation.recording import record
from pisa_capc.signal.waveforms.ieee802154 import RATE_HZ
from tests.signal.phy.noise import at_receiver
from tests.signal.recordings.tools import InMemory

STARTS = (300, 8_000, 32_500, 40_000)


@pytest.mark.parametrize("block", [1_001, 60_000])
@pytest.mark.parametrize("snr_db", [4.0, 20.0])
def test_frames_are_found_in_any_blocks(block: int, snr_db: float) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(2, 60_000, 2)) @ [1, 1j] / np.sqrt(2)).astype(np.complex64)
    names = [f"1a62:{number:04x}" for number in range(len(STARTS))]
    cfo_hz = rng.uniform(-90e3, 90e3, len(STARTS))
    for start, name, offset_hz in zip(STARTS, names, cfo_hz, strict=True):
        frame = transmit(data_frame(name, "1a62:ffff", 1, rng.bytes(20), acknowledge=False))
        x[:, start : start + len(frame)] = at_receiver(frame, rng, snr_db, offset_hz / RATE_HZ, rng.uniform(-0.4, 0.4))
    finder = finder_of("ieee802154")
    detector = finder.detector(InMemory(x, RATE_HZ).about)
    found = [f for at in range(0, x.shape[1], block) for f in detector.push(x[:, at : at + block])]
    found = finder.with_headers(found + detector.finish())
    assert [frame.at for frame in found] == list(STARTS)
    assert [frame.claimed for frame in found] == names
    # A part of a sample between the preamble and its reference looks like noise 10 … 20 dB below it.
    heard_db = [frame.snr_db.mean() for frame in found]
    assert all(min(snr_db, 12) - 2 < own < snr_db + 1.5 for own in heard_db)
    np.testing.assert_allclose([frame.cfo_hz.mean() for frame in found], cfo_hz, atol=600)


@pytest.mark.filterwarnings("ignore:memory. all samples are zero")
def test_noise_and_a_carrier_hold_no_frames_and_a_low_rate_is_refused() -> None:
    rng = np.random.default_rng(1)
    noise = (rng.normal(size=(1, 300_000, 2)) @ [1, 1j]).astype(np.complex64)
    tone = 20 * np.exp(0.1j * np.arange(300_000)).astype(np.complex64)
    for x in (noise, noise + tone, 0 * noise):
        assert detect(InMemory(x, RATE_HZ), "ieee802154").frames == ()
    with pytest.raises(DataError, match="do not hold the 3 MHz of the signal"):
        detect(InMemory(noise, 3e6), "ieee802154")


def test_a_simulated_recording_holds_what_its_annotations_say(tmp_path: Path) -> None:
    made = record("ieee802154", tmp_path, 0.2, workers=1, duty=0.3, show_progress=False)
    opened = open_recording(made.recording)
    found = detect(opened, "ieee802154").frames
    begins = {frame.start for frame in found}
    assert made.frames > 10
    assert all(begins & {n.start - 1, n.start, n.start + 1} for n in opened.annotations)
    assert len(found) == made.frames
    assert np.mean([bool(frame.header.fcs) for frame in found]) > 0.95
