"""Senders are told in the terms of data sheets, as certainly as their frames allow, and cards are compared by that."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.data.store.seal import sealed
from pisa_capc.signal.measurement import cards, senders
from pisa_capc.signal.measurement.cards import Card
from pisa_capc.signal.measurement.flaws import FLAWS, Flaw
from pisa_capc.signal.measurement.quantities import Quantity, quantities
from pisa_capc.signal.measurement.senders import Measured, measure, waveform_for
from tests.signal.measurement.frames import received, sent_with, white

FLAWED = {"image": 0.03 - 0.02j, "leakage": 0.01 + 0.01j, "compression": -0.02 + 0.03j}
OTHER = {"image": 0.02 - 0.02j, "leakage": 0.01 + 0.01j, "compression": -0.02 + 0.03j}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def heard(
    rng: np.random.Generator, flaws: dict[str, complex] | None = None, frames: int = 40, snr_db: float = 22
) -> NDArray[np.complexfloating[Any, Any]]:
    return received(sent_with("wifi", FLAWED if flaws is None else flaws), frames, rng, snr_db)


def one_sender(iq: NDArray[Any], **more: Any) -> Measured:
    return measure(UnlabelledFrames.from_arrays(iq, **more))


def told(card: Card) -> dict[tuple[str, str], Quantity]:
    return {(each.name, each.unit): each for each in card.quantities}


def test_quantities_are_those_of_data_sheets() -> None:
    """An image of .01 is 40 dB down; gain that falls by 2 % per unit of power loses 20 lg (.96/.98) from 1 to 2."""
    found = {each.name: each for each in quantities({"image": 0.01j, "leakage": -0.1, "compression": -0.02}, VARIANCE)}
    assert found["image rejection"].value == pytest.approx(40)
    assert found["image angle"].value == pytest.approx(90)
    assert found["leakage"].value == pytest.approx(-20)
    assert found["AM/AM"].value == pytest.approx(20 * np.log10((1 - 0.02 * 10**0.3) / 0.98))
    assert found["AM/PM"].value == pytest.approx(0, abs=1e-9)
    assert found["image rejection"].low == pytest.approx(-20 * np.log10(0.01 + 1.96e-3))
    assert found["image rejection"].high == pytest.approx(-20 * np.log10(0.01 - 1.96e-3))


def test_a_flaw_of_a_plugin_has_its_size_and_angle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FLAWS._parts, "memory", Flaw("amplifier memory", "identity", np.conj))
    theta = {"memory": -0.01j, "offset": 1.0}  # that of the carrier is told in Hz
    size, angle = quantities(theta, dict.fromkeys(theta, 2e-6))
    assert (size.name, size.unit, angle.name) == ("amplifier memory", "dBc", "amplifier memory angle")
    assert (size.value, angle.value) == (pytest.approx(-40), pytest.approx(-90))


VARIANCE = {"image": 2e-6, "leakage": 2e-6, "compression": 2e-6}  # a standard deviation of .001 of either part


def test_what_is_not_told_from_zero_has_no_lower_bound_and_no_angle() -> None:
    found = {each.name: each for each in quantities({"image": 0.001, "leakage": 0.001j}, VARIANCE)}
    assert str(found["image rejection"]).startswith("above 50.6")
    assert str(found["leakage"]).startswith("below -50.6")
    assert found["image angle"].number == "–"
    assert found["image angle"].to_json()["low"] is None
    nothing = {each.name: each for each in quantities({"image": 0j}, VARIANCE)}
    assert nothing["image rejection"].value == math.inf


def test_intervals_of_frames_hold_the_truth_as_often_as_they_say(rng: np.random.Generator) -> None:
    clean, noise = heard(rng, frames=1000, snr_db=np.inf), white(rng, 1000, 4, 320)
    truth, found = (list(one_sender(iq).rows()) for iq in (clean, clean + 10 ** (-22 / 20) * noise))
    for name in ("image rejection (dB)", "image angle (°)", "leakage (dBc)", "AM/AM (dB)", "AM/PM (°)", "CFO (Hz)"):
        inside = [
            row[f"{name} low"] <= true[name] <= row[f"{name} high"] for true, row in zip(truth, found, strict=True)
        ]
        assert 0.92 < np.mean(inside) < 0.975, name


def test_a_card_tells_the_truth_and_more_frames_tell_it_better(rng: np.random.Generator) -> None:
    places = np.repeat(["L1", "L2", "L3", "L4"], 10)
    [few] = one_sender(heard(rng, frames=3)).cards
    [many] = one_sender(heard(rng), capture=places).cards
    for card in (few, many):
        off = np.array([card.theta[name] - FLAWED[name] for name in ("image", "leakage")])
        assert np.all(np.abs(off) < 3 * np.sqrt([card.variance[name] for name in ("image", "leakage")]))
    assert many.places == 4
    assert max(many.variance[name] / few.variance[name] for name in many.flaws) < 0.5


def test_what_no_number_of_frames_averages_out_is_left_in_a_card(rng: np.random.Generator) -> None:
    """A thousand frames of one place tell little more of another place than a hundred do, at whatever SNR."""
    hundred, thousand, loud = (
        one_sender(heard(rng, frames=frames, snr_db=snr_db)).cards[0]
        for frames, snr_db in ((100, 22), (1000, 22), (100, 40))
    )
    assert 0.85 < thousand.variance["image"] / hundred.variance["image"] < 1
    assert 0.7 < loud.variance["image"] / hundred.variance["image"] < 1


def test_one_radio_is_taken_for_one_and_another_for_another(rng: np.random.Generator) -> None:
    first, again, other = (one_sender(heard(rng, flaws)).cards[0] for flaws in (FLAWED, FLAWED, OTHER))
    same, different = again.compared(first), other.compared(first)
    assert same.same
    assert max(same.each.values()) < 2
    assert not different.same
    assert different.p_value < 1e-3
    assert different.each["image"] > 2 * max(different.each["leakage"], different.each["compression"])


def test_one_radio_is_almost_never_called_another(rng: np.random.Generator) -> None:
    """Though each place shifts it."""
    shift = 10 ** (-cards.SHIFT_DB / 20) / np.sqrt(4 * 320)
    chances = []
    for _ in range(15):
        moved = [{name: own + shift * white(rng)[()] for name, own in FLAWED.items()} for _ in range(2)]
        first, second = (one_sender(heard(rng, flaws, frames=8)).cards[0] for flaws in moved)
        chances.append(first.compared(second).p_value)
    assert min(chances) > 0.01
    assert np.median(chances) > 0.3


def test_senders_are_measured_each_by_itself(rng: np.random.Generator) -> None:
    iq = np.concatenate([heard(rng, FLAWED, 20), heard(rng, OTHER, 20)])
    names = ["a", "b"] * 20
    order = np.argsort(names, kind="stable")
    mixed = np.empty_like(iq)
    mixed[order] = iq
    labelled = measure(Frames.from_arrays(mixed, device=names))
    claimed = measure(UnlabelledFrames.from_arrays(mixed), senders=names)
    for found in (labelled, claimed):
        assert [card.name for card in found.cards] == ["a", "b"]
        [alone] = one_sender(iq[20:]).cards
        np.testing.assert_allclose(found.cards[1].mean, alone.mean, rtol=1e-4)
        np.testing.assert_allclose(found.of("b").cards[0].mean, alone.mean, rtol=1e-4)
        assert [row["sender"] for row in found.rows()] == names
    with pytest.raises(DataError, match="unknown sender 'c'"):
        labelled.of("c")
    with pytest.raises(DataError, match="3 senders for 40 frames"):
        measure(UnlabelledFrames.from_arrays(mixed), senders=["a"] * 3)


def test_frames_that_do_not_fit_in_memory_give_the_same(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = Frames.from_arrays(heard(rng, frames=30), device=list("abcab") * 6)
    whole = measure(frames)
    monkeypatch.setattr(senders, "AT_ONCE", 8 * 4 * 320 * 5)
    pieces = measure(frames)
    np.testing.assert_allclose(pieces.measurement.value, whole.measurement.value, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(pieces.cfo_hz, whole.cfo_hz, atol=1)


def test_one_frame_is_enough_and_its_own_errors_are_those_of_the_card(rng: np.random.Generator) -> None:
    [card] = one_sender(heard(rng, frames=1), carrier_hz=0).cards
    found = told(card)
    assert (card.frames, card.places) == (1, 1)
    assert 0 < found["CFO", "Hz"].high - found["CFO", "Hz"].low < 2000
    assert 0 < found["SNR", "dB"].high - found["SNR", "dB"].low < 2
    assert ("CFO", "ppm") not in found
    assert not math.isnan(card.compared(card).p_value)


def test_the_offset_that_was_taken_off_is_added_and_one_that_was_left_in_is_not_counted_twice(
    rng: np.random.Generator,
) -> None:
    iq, turns = heard(rng), np.exp(2j * np.pi * 30e3 / 20e6 * np.arange(320))
    recorded = np.full((40, 4), 30e3)
    for samples, cfo_hz in ((iq, recorded), (iq * turns, recorded), (iq * turns, None)):
        [card] = one_sender(samples, cfo_hz=cfo_hz, carrier_hz=5e9).cards
        assert card.cfo_hz == pytest.approx(30e3, abs=100)
        assert told(card)["CFO", "ppm"].value == pytest.approx(6, abs=0.02)


def test_lora_has_no_compression_and_the_offset_that_was_recorded(rng: np.random.Generator, tmp_path: Path) -> None:
    """320 samples of a chirp turn an offset into a delay."""
    iq = received(sent_with("lora", {"image": 0.03}), 20, rng, 20, echo=0.1)
    known, unknown = (one_sender(iq, cfo_hz=cfo, sample_rate_hz=1e6).cards[0] for cfo in (np.full((20, 4), 2e3), None))
    assert known.flaws == ("image", "leakage")
    assert known.cfo_hz == 2e3
    assert math.isnan(unknown.cfo_hz)
    assert told(unknown)["CFO", "Hz"].number == "–"
    unknown.save(tmp_path / "card.json")
    assert math.isnan(Card.load(tmp_path / "card.json").cfo_hz)


def test_frames_that_something_else_is_in_are_suspected(rng: np.random.Generator) -> None:
    sent = sent_with("wifi", FLAWED)
    leaning = sent + 0.05 * np.pad(sent, (1, 0))[:-1].conj()
    assert one_sender(received(leaning, 40, rng, 25)).cards[0].suspected > 0.5
    assert one_sender(heard(rng, frames=400)).cards[0].suspected < 0.04


def test_antennas_that_are_silent_or_broken_count_for_nothing(rng: np.random.Generator) -> None:
    iq = heard(rng, frames=6).astype(np.complex64)
    three = one_sender(iq[:, :3])
    iq[:, 3] = 0
    found = one_sender(iq)
    np.testing.assert_allclose(found.cards[0].mean, three.cards[0].mean, rtol=1e-3)
    np.testing.assert_allclose(found.snr_db, three.snr_db, atol=1e-3)


def test_what_cannot_be_measured_is_refused(rng: np.random.Generator) -> None:
    frames = UnlabelledFrames.from_arrays(heard(rng, frames=4))
    with pytest.raises(DataError, match=r"hold channel state.*pisa train"):
        measure(replace(frames, domain="subcarriers"))
    with pytest.raises(DataError, match=r"100 samples of Wi-Fi.*expected"):
        measure(frames.segment(100))
    with pytest.raises(DataError, match=r"LoRa has 1e.06 samples/s, these frames 2e.07"):
        measure(frames, "lora")
    with pytest.raises(ConfigError, match="unknown waveform 'zigbee'"):
        measure(frames, "zigbee")
    with pytest.raises(DataError, match=r"frames of 5e.06 samples/s: expected those of a known waveform"):
        waveform_for(replace(frames, sample_rate_hz=5e6), None)
    frames.source.iq[:] = np.nan  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="none of 4 frames could be measured"):
        measure(frames)


def test_a_frame_that_could_not_be_measured_has_a_row_and_no_say(rng: np.random.Generator) -> None:
    frames = UnlabelledFrames.from_arrays(heard(rng, frames=4))
    frames.source.iq[1] = np.nan  # type: ignore[attr-defined]
    found = measure(frames)
    assert [len(row) > 2 for row in found.rows()] == [True, False, True, True]
    assert found.cards[0].frames == 3
    assert np.isfinite(found.cards[0].error).all()


@pytest.mark.parametrize(("waveform", "rate_hz"), [("wifi", 20e6), ("lora", 1e6)])
def test_noise_is_not_measured(waveform: str, rate_hz: float, rng: np.random.Generator) -> None:
    """What the channel's estimate would be is noise too; among frames, those that are noise are left out."""
    iq = white(rng, 200, 4, 320)
    with pytest.raises(DataError, match=r"none of 200 frames could be measured: expected frames that begin with"):
        one_sender(iq, sample_rate_hz=rate_hz)
    iq[50:60] = received(sent_with(waveform, {"image": 0.03}), 10, rng, 5, echo=0.1)
    found = one_sender(iq, sample_rate_hz=rate_hz)
    assert np.flatnonzero(found.measurement.measured).tolist() == list(range(50, 60))
    assert found.cards[0].frames == 10


def test_one_antenna_that_hears_is_enough(rng: np.random.Generator) -> None:
    iq = heard(rng, frames=20)
    iq[:, 1:] = white(rng, 20, 3, 320)
    [card] = one_sender(iq).cards
    assert card.frames >= 18  # the others are faded
    assert abs(card.theta["image"] - FLAWED["image"]) < 3 * np.sqrt(card.variance["image"])
    json.dumps(card.to_json(), allow_nan=False)


def test_a_card_that_was_kept_is_the_same_card(rng: np.random.Generator, tmp_path: Path) -> None:
    [card] = one_sender(heard(rng)).cards
    card.save(tmp_path / "card.json")
    again = Card.load(tmp_path / "card.json")
    np.testing.assert_array_equal(again.error, card.error)
    assert replace(again, mean=card.mean, error=card.error) == card
    assert again.compared(card).p_value == 1


def test_cards_of_other_waveforms_are_not_compared(rng: np.random.Generator) -> None:
    [card] = one_sender(heard(rng)).cards
    iq = received(sent_with("lora", {}), 5, rng, 20, echo=0.1)
    [other] = one_sender(iq, sample_rate_hz=1e6).cards
    with pytest.raises(ConfigError, match=r"cards of wifi .*lora .*expected the same waveform"):
        card.compared(other)


DAMAGE: dict[str, Any] = {
    "no card": [],
    "a number": 3,
    "nothing": {},
    "a text": "card",
    "another schema": {"schema": 9},
    "no flaws": {"flaws": []},
    "too many flaws": {"flaws": ["image"] * 65},
    "a short mean": {"mean": [0.1]},
    "a mean that is none": {"mean": ["x"] * 6},
    "an error that is no number": {"error": [[None] * 6] * 6},
    "an infinite error": {"error": [[math.inf] * 6] * 6},
    "an error that is not symmetric": {"error": np.triu(np.ones((6, 6)) + np.eye(6)).tolist()},
    "a negative variance": {"error": (-np.eye(6)).tolist()},
    "an endless number of frames": {"frames": math.inf},
    "no CFO": {"cfo_hz": {}},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_card_is_refused_in_one_line(damage: str, rng: np.random.Generator, tmp_path: Path) -> None:
    whole = one_sender(heard(rng, frames=3)).cards[0].to_json()
    change, path = DAMAGE[damage], tmp_path / "kept.json"
    path.write_text(json.dumps(sealed(change and whole | change) if isinstance(change, dict) else change))
    with pytest.raises(
        DataError, match=r"kept\.json: (cannot be read .* Expected a card|written with schema 9)"
    ) as found:
        Card.load(path)
    assert "\n" not in str(found.value)


def test_a_number_that_was_changed_in_a_card_is_noticed(rng: np.random.Generator, tmp_path: Path) -> None:
    one_sender(heard(rng, frames=3)).cards[0].save(path := tmp_path / "kept.json")
    path.write_text(path.read_text().replace('"frames": 3', '"frames": 4'))
    with pytest.raises(DataError, match="it was changed"):
        Card.load(path)
