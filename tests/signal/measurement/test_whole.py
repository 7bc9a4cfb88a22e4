"""What is behind a preamble tells the same flaws more exactly, and says how exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.store.seal import sealed
from pisa_capc.signal.detection import detect
from pisa_capc.signal.detection.dataset import read_frames, whole_frames
from pisa_capc.signal.measurement import FLAWS, FlawEstimator
from pisa_capc.signal.measurement.cards import Card
from pisa_capc.signal.measurement.senders import Measured, measure
from pisa_capc.signal.measurement.whole import Behind, Whole, behind, with_data
from pisa_capc.signal.phy import lora, wifi
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.waveforms import WAVEFORMS
from tests.reference.measurement import flaws_of_data
from tests.signal.detection.senders import AP, PHONE, conversation
from tests.signal.measurement.frames import Complex, white
from tests.signal.recordings.tools import encoded

FLAWED = {"image": 0.03 - 0.02j, "leakage": 0.02 + 0.01j}
KNOWN = {name: FlawEstimator(WAVEFORMS[name]).flaws for name in ("wifi", "lora")}


def sent_by(kind: str, random: np.random.Generator) -> Complex:
    if kind == "wifi":
        return wifi.transmit(random.bytes(120), 6, int(random.integers(1, 128)))
    return lora.transmit(random.bytes(8), 7, 1, sync_word=0x34)


def heard(known: Complex, random: np.random.Generator, snr_db: float, moving: float = 0.5) -> Complex:
    """(2, T) behind three taps that turn by so many radians while the frame lasts, with its flaws."""
    x = known + sum(value * FLAWS[name].of(known) for name, value in FLAWED.items())
    taps, turn = white(random, 2, 2, 3) * 0.3 ** np.arange(3), moving * np.linspace(0, 1, len(x))
    y = np.zeros((2, len(x)), dtype=complex)
    for delay in range(3):
        walk = taps[0, :, delay, None] * np.cos(turn) + taps[1, :, delay, None] * np.sin(turn)
        y += walk * np.pad(x, (delay, 0))[: len(x)]
    return y / np.sqrt(np.mean(np.abs(y) ** 2)) + 10 ** (-snr_db / 20) * white(random, *y.shape)


def told(kind: str, frame: Whole) -> Behind:
    found = behind(WAVEFORMS[kind], frame, KNOWN[kind])
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["wifi", "lora"])
def test_without_noise_it_is_the_truth_though_the_channel_moves(kind: str) -> None:
    random = np.random.default_rng(1)
    known = sent_by(kind, random)
    found = told(kind, Whole(0, heard(known, random, np.inf), known))
    assert found.flaws == tuple(FLAWED)
    assert np.abs(found.value - list(FLAWED.values())).max() < 1e-3


@pytest.mark.parametrize(("kind", "snr_db"), [("wifi", 3), ("wifi", 20), ("lora", 5)])
def test_intervals_hold_the_truth_as_often_as_they_say(kind: str, snr_db: float) -> None:
    random = np.random.default_rng(2)
    inside = []
    for _ in range(60 if kind == "wifi" else 25):
        known = sent_by(kind, random)
        found = told(kind, Whole(0, heard(known, random, snr_db), known))
        off, bars = found.value - list(FLAWED.values()), np.sqrt(found.covariance.diagonal().real / 2)
        inside += [np.abs(off.real) < 1.96 * bars, np.abs(off.imag) < 1.96 * bars]
    assert 0.9 < np.mean(inside) < 0.985
    assert found.snr_db == pytest.approx(snr_db, abs=2.5)


def test_it_agrees_with_blocks_one_by_one() -> None:
    random = np.random.default_rng(3)
    known = sent_by("wifi", random)
    y = heard(known, random, 15)
    found = told("wifi", Whole(0, y, known))
    size = WAVEFORMS["wifi"].block
    value, covariance = flaws_of_data(y, known, WAVEFORMS["wifi"], found.flaws, size, (found.samples) // size)
    np.testing.assert_allclose(found.value, value, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-12)


def test_more_samples_narrow_the_bars() -> None:
    random = np.random.default_rng(4)
    known = sent_by("wifi", random)
    y = heard(known, random, 10)
    short, long = told("wifi", Whole(0, y[:, :964], known[:964])), told("wifi", Whole(0, y, known))
    ratio = np.sqrt(short.covariance[0, 0].real / long.covariance[0, 0].real)
    assert ratio == pytest.approx(np.sqrt(long.samples / short.samples), rel=0.25)


def test_antennas_that_are_missing_drop_out() -> None:
    random = np.random.default_rng(5)
    known = sent_by("wifi", random)
    y = heard(known, random, 15)
    alone = told("wifi", Whole(0, y, known))
    for bad in (0, np.nan):
        more = np.concatenate([y, np.full_like(y[:1], bad)])
        np.testing.assert_allclose(told("wifi", Whole(0, more, known)).value, alone.value)


def test_nothing_is_told_by_what_is_too_short_or_too_faint_or_not_there() -> None:
    random = np.random.default_rng(6)
    known = sent_by("wifi", random)
    y = heard(known, random, 15)
    assert behind(WAVEFORMS["wifi"], Whole(0, y[:, :450], known), KNOWN["wifi"]) is None
    assert behind(WAVEFORMS["wifi"], Whole(0, 0 * y, known), KNOWN["wifi"]) is None
    assert behind(WAVEFORMS["wifi"], Whole(0, np.nan * y, known), KNOWN["wifi"]) is None
    assert behind(WAVEFORMS["wifi"], Whole(0, white(random, *y.shape), known), KNOWN["wifi"]) is None
    assert behind(WAVEFORMS["wifi"], Whole(0, y, known), ["compression", "offset"]) is None


def test_other_flaws_stay_those_of_the_preamble() -> None:
    random = np.random.default_rng(7)
    known = sent_by("wifi", random)
    y = heard(known, random, 15)
    preamble = FlawEstimator(WAVEFORMS["wifi"]).measure(np.stack([y, y])[:, :, :320])
    found = told("wifi", Whole(1, y, known))
    both = with_data(preamble, {1: found})
    np.testing.assert_array_equal(both.value[0], preamble.value[0])
    np.testing.assert_array_equal(both.value[1, :2], found.value)
    np.testing.assert_array_equal(both.value[1, 2:], preamble.value[1, 2:])
    np.testing.assert_array_equal(both.covariance[1][:2, :2], found.covariance)
    np.testing.assert_array_equal(both.covariance[1][:2, 2:], 0)
    assert np.linalg.eigvalsh(both.covariance[1]).min() > 0


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measured, Measured]:
    """A recording of four frames measured whole, and on preambles."""
    path = tmp_path_factory.mktemp("air") / "noon.cs16"
    path.write_bytes(encoded(conversation(), "cs16"))
    found = detect(open_recording(path, sample_rate_hz=20e6, antennas=2, carrier_hz=5.2e9))
    frames, each = read_frames([found])
    wrong = replace(found, frames=(replace(found.frames[0], header=replace(found.frames[0].header, fcs=False)),))
    assert not list(whole_frames([wrong]))
    names = [one.header.transmitter or "(none)" for one in each]
    return measure(frames, "wifi", names, whole_frames([found])), measure(frames, "wifi", names)


def test_frames_of_a_recording_are_measured_whole(talk: tuple[Measured, Measured]) -> None:
    whole, preambles = talk
    assert whole.whole.all()
    assert not preambles.whole.any()
    assert np.all(whole.samples > preambles.samples)
    cards = {card.name: card for card in whole.cards}
    assert set(cards) == {AP, PHONE, "(none)"}
    assert all(card.whole for card in cards.values())
    assert [row["samples"] for row in whole.rows()] == whole.samples.tolist()
    narrow, wide = (own.measurement.covariance[0, 0, 0].real for own in talk)
    assert narrow < wide


def test_cards_of_whole_frames_and_of_preambles_are_not_compared(talk: tuple[Measured, Measured]) -> None:
    whole, preamble = (own.of(AP).cards[0] for own in talk)
    assert whole.compared(whole).same
    with pytest.raises(ConfigError, match=r"whole frames.*preambles.*--preamble"):
        preamble.compared(whole)


def test_a_card_of_before_is_one_of_preambles(talk: tuple[Measured, Measured], tmp_path: Path) -> None:
    card = talk[1].of(AP).cards[0]
    value = {name: own for name, own in card.to_json().items() if name not in ("samples", "whole")}
    path = tmp_path / "card.json"
    path.write_text(json.dumps(sealed(value)))
    assert not Card.load(path).whole
    assert Card.load(path).compared(card).same
