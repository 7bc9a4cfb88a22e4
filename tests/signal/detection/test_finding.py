"""From a recording to frames: where they are, when, at what rate it was recorded, whom they name."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import resample_poly

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.signal.detection import Found, detect, finding
from pisa_capc.signal.detection.base import NO_IQ, FoundFrame
from pisa_capc.signal.detection.finding import blocks_of
from pisa_capc.signal.detection.wifi.detector import CHUNK
from pisa_capc.signal.phy import Header
from pisa_capc.signal.phy.lora import lorawan
from pisa_capc.signal.phy.lora import transmit as transmit_lora
from pisa_capc.signal.phy.wifi import mac, transmit
from pisa_capc.signal.recordings import open_recording
from tests.signal.detection.air import Air
from tests.signal.detection.senders import AP, CFO_HZ, PHONE, STARTS, Marks, conversation, marked
from tests.signal.recordings.tools import InMemory, encoded


def test_frames_are_found_with_time_offset_and_claimed_address() -> None:
    frames = detect(InMemory(conversation())).frames
    assert [frame.start for frame in frames] == pytest.approx(STARTS, abs=1)
    assert [frame.time_s for frame in frames] == [frame.start / 20e6 for frame in frames]
    assert [np.mean(frame.cfo_hz) for frame in frames] == pytest.approx(CFO_HZ, abs=800)
    assert [frame.header.transmitter for frame in frames] == [AP, PHONE, None, AP]
    assert [frame.header.receiver for frame in frames] == [PHONE, AP, PHONE, PHONE]
    assert [frame.header.rate_mbps for frame in frames] == [6, 24, 6, 12]
    assert all(frame.header.fcs is True for frame in frames)


@pytest.mark.parametrize(("p", "q"), [(5, 4), (2, 1), (192, 125)])
def test_a_recording_at_another_rate_gives_the_same_frames_at_its_own_sample_numbers(p: int, q: int) -> None:
    faster = resample_poly(conversation().astype(np.complex128), p, q, axis=1).astype(np.complex64)
    found = detect(InMemory(faster, 20e6 * p / q))
    assert [frame.start for frame in found.frames] == pytest.approx([start * p / q for start in STARTS], abs=p / q + 1)
    assert [frame.at for frame in found.frames] == pytest.approx(STARTS, abs=1)
    assert [frame.time_s for frame in found.frames] == pytest.approx([start / 20e6 for start in STARTS], abs=1e-7)
    assert [frame.header.transmitter for frame in found.frames] == [AP, PHONE, None, AP]


def test_a_rate_that_does_not_fit_is_refused_before_anything_is_searched() -> None:
    with pytest.raises(DataError, match="20,001,000 samples a second are no p/q of 20,000,000"):
        detect(InMemory(conversation(), 20.001e6))


def test_half_a_frame_at_the_end_is_found_and_one_without_its_preamble_is_not() -> None:
    cut = conversation()[:, 1200 : 14_000 + 500]
    frames = detect(InMemory(cut)).frames
    assert [frame.start for frame in frames] == pytest.approx([s - 1200 for s in STARTS[1:]], abs=1)
    last = frames[-1]
    assert last.samples is not None
    assert last.at + last.samples > cut.shape[1]
    assert last.header.fcs is None


def test_nothing_but_the_header_is_kept_of_what_a_frame_says() -> None:
    text = repr(detect(InMemory(conversation())).frames)
    assert "hello" not in text
    assert b"hello".hex() not in text


def test_without_decoding_nobody_is_named() -> None:
    frames = detect(InMemory(conversation()), decode=False).frames
    assert len(frames) == len(STARTS)
    assert all(frame.header == Header() for frame in frames)


def test_names_are_put_in_the_place_of_addresses() -> None:
    frames = detect(InMemory(conversation()), rename=lambda address: f"<{address[-1]}>").frames
    assert [(frame.header.transmitter, frame.header.receiver) for frame in frames] == [
        ("<a>", "<b>"),
        ("<b>", "<a>"),
        (None, "<b>"),
        ("<a>", "<b>"),
    ]


def test_noise_and_silence_hold_no_frame() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 300_000, 2)).astype(np.float32).view(np.complex64)[..., 0]
    assert detect(InMemory(0.01 * noise)).frames == ()
    with pytest.warns(UserWarning, match="all samples are zero"):
        assert detect(InMemory(np.zeros((2, 1000), np.complex64))).frames == ()


def test_one_antenna_that_is_dead_or_not_a_number_is_said_and_the_others_are_enough() -> None:
    dead = conversation(3)
    dead[1] = 0
    with pytest.warns(UserWarning, match="antenna 1 is dead"):
        found = detect(InMemory(dead))
    assert [frame.header.transmitter for frame in found.frames] == [AP, PHONE, None, AP]
    broken = conversation(3)
    broken[1] = np.nan
    with pytest.warns(UserWarning, match="dead"), pytest.warns(UserWarning, match="20,000 samples are NaN"):
        found = detect(InMemory(broken))
    assert len(found.frames) == len(STARTS)


def test_json_is_as_documented_and_has_no_nan() -> None:
    frame = FoundFrame(
        5, NO_IQ, np.array([1.0, math.nan]), np.array([math.inf, 3.0]), 0.5, header=Header(transmitter=AP)
    )
    value = json.loads(json.dumps(frame.to_json(), allow_nan=False))
    assert list(value) == [
        *("recording", "start", "time_s", "cfo_hz", "snr_db", "quality"),
        *("rate_mbps", "length", "kind", "transmitter", "receiver", "fcs"),
    ]
    assert (value["cfo_hz"], value["snr_db"], value["fcs"]) == ([1.0, None], [None, 3.0], None)


def test_any_detector_can_look() -> None:
    recording = InMemory(marked((7, 2500)))
    found = detect(recording, detector=Marks(), decode=False)
    assert [(frame.start, frame.samples, frame.cfo_hz.tolist()) for frame in found.frames] == [
        (7, 40, [7.0, 7.0]),
        (2500, 40, [2500.0, 2500.0]),
    ]


def test_the_bar_is_moved_as_often_as_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisa_capc.signal.detection.finding.BLOCK", 700)
    for rate_hz in (20e6, 25e6):
        recording = InMemory(marked((7,)), rate_hz)
        moved: list[int] = []
        detect(recording, detector=Marks(), decode=False, after_block=lambda moved=moved: moved.append(1))
        assert len(moved) == blocks_of(recording, "wifi")


def test_waveforms_that_cannot_be_found_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown waveform 'wify'. Did you mean 'wifi'"):
        detect(InMemory(marked(())), "wify")


def test_frames_are_in_the_order_of_time() -> None:
    class Backwards(Marks):
        def push(self, block):  # type: ignore[no-untyped-def]
            return [replace(d) for d in reversed(super().push(block))]

    found = detect(InMemory(marked((7, 90, 2500))), detector=Backwards(), decode=False)
    assert [frame.start for frame in found.frames] == [7, 90, 2500]


def test_lora_frames_are_found_at_half_their_usual_rate_too() -> None:
    data = lorawan.data_frame(0x26011BDA, 3, b"hi")
    sent = transmit_lora(data, 7, 1, sync_word=0x34)
    rng = np.random.default_rng(1)
    x = 0.05 * (rng.normal(size=(2, 90_000, 2)) @ [1, 1j])
    x[:, 20_000 : 20_000 + len(sent)] += sent * np.exp(2j * np.pi * 3e3 / 1e6 * np.arange(len(sent)))
    for samples, rate_hz in ((x, 1e6), (resample_poly(x, 1, 2, axis=1), 0.5e6)):
        (frame,) = detect(InMemory(samples.astype(np.complex64), rate_hz), "lora").frames
        assert frame.time_s == pytest.approx(20e-3, abs=3e-6)
        assert frame.cfo_hz == pytest.approx([3e3, 3e3], abs=30)
        assert frame.header.transmitter == "26011bda"


def where_parts_meet() -> NDArray[np.complex64]:
    """Frames begin and lie where parts meet, the last one is cut; one antenna is too loud at first."""
    air = Air(2, 3 * CHUNK)
    for start in (CHUNK - 3000, 2 * CHUNK - 4000, 2 * CHUNK - 5, 2 * CHUNK + 9000, 3 * CHUNK - 1000):
        air.add(transmit(mac.data(PHONE, AP, AP, bytes(80)), 6, 0x5D), start, 25.0, 21_000.0)
    iq = air.iq
    iq[1, : CHUNK + 500] *= 5
    return iq


def said_of(found: Found) -> list[Any]:
    """All that is known of each frame."""
    return [(frame.at, frame.samples, frame.end, frame.turn_hz, frame.to_json()) for frame in found.frames]


@pytest.mark.parametrize("form", ["cs16", "cf32", "at another rate"])
def test_parts_that_are_searched_apart_give_the_same_frames(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iq = where_parts_meet()
    rate_hz, suffix = 20e6, form
    if form == "at another rate":
        iq, rate_hz, suffix = resample_poly(iq, 5, 4, axis=1).astype(np.complex64), 25e6, "cf32"
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(encoded(iq, suffix))
    recording = open_recording(path, sample_rate_hz=rate_hz, antennas=len(iq))
    with warnings.catch_warnings(record=True) as said:
        whole = detect(recording)
        monkeypatch.setattr(finding, "PART", CHUNK)
        monkeypatch.setattr(finding, "LEAST_PARTS", 1)
        # The last part first, as a quicker process may have it.
        monkeypatch.setattr(finding, "run_jobs", lambda search, jobs, workers: [search(*job) for job in reversed(jobs)])
        blocks: list[None] = []
        parts = detect(recording, workers=2, after_block=lambda: blocks.append(None))
    assert len(whole.frames) == 5
    assert said_of(parts) == said_of(whole)
    assert [str(one.message) for one in said[: len(said) // 2]] == [str(one.message) for one in said[len(said) // 2 :]]
    assert (len(said) > 0) == (form == "cs16")
    assert len(blocks) == 3


@pytest.mark.slow
def test_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.cf32").write_bytes(encoded(where_parts_meet(), "cf32"))
    recording = open_recording(tmp_path / "a.cf32", sample_rate_hz=20e6, antennas=2)
    monkeypatch.setattr(finding, "PART", CHUNK)
    monkeypatch.setattr(finding, "LEAST_PARTS", 1)
    assert said_of(detect(recording, workers=2)) == said_of(detect(recording))
