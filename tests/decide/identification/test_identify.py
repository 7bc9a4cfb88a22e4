"""From found frames to devices and verdicts, on a small problem whose recordings are played from its frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from studies.identify import found_by_truth

from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.geometry import linear
from pisa_capc.decide.calibration.peers.base import Direct
from pisa_capc.decide.identification import Choices, Identified, check_recording, identify, observe, verify, waveform_of
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.signal.recordings import About
from tests.decide.identification.tools import found_in, played
from tests.problems import small_frames
from tests.signal.recordings.tools import InMemory

A, B, C = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
ENROLLED = {A: "D1", B: "D2", C: "D3"}
PLAIN = Choices(Direct(), reject=None)


def in_turn(frames: int) -> list[tuple[int, str | None]]:
    return [(i % 3, (A, B, C)[i % 3]) for i in range(frames)]


@pytest.fixture(scope="module")
def who(trained: TrainedModel) -> Identified:
    return identify(trained, [found_in(in_turn(60))], PLAIN, "cpu")


def test_frames_of_a_recording_are_those_of_the_set(trained: TrainedModel) -> None:
    """What comes out of the stream, its carrier offset taken off, is what went in."""
    seen = observe(trained, [found_in([(1, B)] * 5, offset_hz=30e3)])
    frames = small_frames(frames=5)
    own = frames.where(environment="E1", device="D2")
    np.testing.assert_allclose(seen.frames.iq, own.iq, atol=1e-5)
    np.testing.assert_allclose(
        embed(trained, seen.frames, "cpu").logits.argmax(axis=1),
        embed(trained, own.unlabelled(), "cpu").logits.argmax(axis=1),
    )


def test_every_sender_is_named(who: Identified) -> None:
    right = [device == ENROLLED[address] for device, address in zip(who.device, who.seen.address, strict=True)]
    assert np.mean(right) > 0.95
    assert who.confidence.min() > 1 / 3
    np.testing.assert_allclose(who.probability.sum(axis=1), 1)


def test_a_carrier_offset_that_is_left_in_changes_what_the_model_sees(trained: TrainedModel) -> None:
    found = found_in([(1, B)] * 3, offset_hz=200e3)
    kept, taken = (observe(trained, [found], keep_cfo=keep).frames.iq for keep in (True, False))
    assert np.abs(kept - taken).max() > 0.1
    np.testing.assert_allclose(np.abs(kept), np.abs(taken), atol=1e-5)


def test_antennas_may_be_brought_to_equal_power(trained: TrainedModel) -> None:
    recording, notes = played([(0, A)] * 3)
    weak = InMemory(recording.read(0, recording.about.length) * np.array([[1], [0.1]], dtype=np.complex64))
    found = found_by_truth(weak, notes)
    power = np.mean(np.abs(observe(trained, [found], equalise_antennas=True).frames.iq) ** 2, axis=2)
    np.testing.assert_allclose(power, 1, rtol=1e-4)


def test_a_dead_antenna_is_absent(trained: TrainedModel) -> None:
    found = found_in([(0, A)] * 4)
    frames = tuple(replace(frame, cfo_hz=np.array([frame.cfo_hz[0], np.nan])) for frame in found.frames)
    who = identify(trained, [replace(found, frames=frames)], PLAIN, "cpu")
    assert not who.seen.frames.iq[:, 1].any()
    assert np.isfinite(who.probability).all()


def test_carriers_are_followed_along_one_sender(who: Identified) -> None:
    """Were all senders one recording, the spread of their offsets would be taken for drift."""
    assert len(set(who.seen.track.tolist())) == 3
    traces = list(who.seen.frames.source.cfo_traces(who.seen.frames.rows))
    assert all(np.ptp(trace.cfo_hz) == 0 for trace in traces)


def test_frames_at_the_end_are_left_out_and_none_is_an_error(trained: TrainedModel) -> None:
    found = found_in([(0, A)] * 3)
    last = replace(found.frames[-1], at=found.stream.about.length - 5)
    with pytest.warns(UserWarning, match="1 frames are left out"):
        seen = observe(trained, [replace(found, frames=(*found.frames[:2], last))])
    assert len(seen) == 2
    with pytest.raises(DataError, match=r"played: no frame of .* was found in .* besides 1"):
        observe(trained, [replace(found, frames=(last,))])


def test_other_arrays_and_rates_are_refused(trained: TrainedModel) -> None:
    about = About("roof", 20e6, 5.8e9, 4, 1000)
    with pytest.raises(ModelError, match="roof: has 4 antennas, the model was trained for 2"):
        check_recording(trained, about)
    with pytest.raises(ModelError, match=r"distances differ by up to 1\.5 wavelengths"):
        check_recording(trained, replace(about, antennas=2, geometry=linear(2, 2.0)))
    check_recording(trained, replace(about, antennas=2, geometry=linear(2)))
    other = replace(trained, run=replace(trained.run, sample_rate_hz=1e6))
    assert (waveform_of(trained), waveform_of(other)) == ("wifi", "lora")
    with pytest.raises(ModelError, match="no waveform that is known"):
        waveform_of(replace(trained, run=replace(trained.run, sample_rate_hz=3e6)))
    with pytest.raises(ModelError, match="trained at 1e\\+06"):
        observe(other, [found_in([(0, A)])])


def test_together_changes_what_is_decided_apart(trained: TrainedModel, who: Identified) -> None:
    together = identify(trained, [found_in(in_turn(60))], replace(PLAIN, together_s=1.0), "cpu")
    for address in (A, B, C):
        own = [i for i, claimed in enumerate(together.seen.address) if claimed == address]
        assert len({together.device[i] for i in own}) == 1
        assert np.ptp(together.probability[own], axis=0).max() == 0
    assert together.confidence.mean() >= who.confidence.mean()


def test_genuine_addresses_are_confirmed_and_a_spoofer_is_named(trained: TrainedModel) -> None:
    taken = [(2, A) if i > 45 and device == 0 else (device, a) for i, (device, a) in enumerate(in_turn(150))]
    verdicts = {v.address: v for v in verify(identify(trained, [found_in(taken)], PLAIN, "cpu"), ENROLLED)}
    assert {a: v.verdict for a, v in verdicts.items()} == {A: "not the device", B: "genuine", C: "genuine"}
    assert verdicts[A].sounds_like == "D3"
    assert verdicts[A].frames == 50
    after = verdicts[A].after
    assert after is not None
    assert 16 < after <= 40  # sixteen were its own
    said = verdicts[A].to_json()
    assert len(said["log_evidence_against"]) == said["tested"] == 50


def test_an_address_of_nobody_is_said_to_be_so(trained: TrainedModel) -> None:
    who = identify(trained, [found_in([(1, "02:ff"), (1, "02:ff"), (0, None)])], PLAIN, "cpu")
    [verdict] = verify(who, ENROLLED)
    assert (verdict.verdict, verdict.device, verdict.frames, verdict.sounds_like) == ("not enrolled", None, 2, "D2")


def test_few_frames_leave_a_claim_undecided(trained: TrainedModel) -> None:
    [verdict] = verify(identify(trained, [found_in([(1, B)])], PLAIN, "cpu"), ENROLLED)
    assert (verdict.verdict, verdict.after) == ("undecided", None)


def test_frames_too_close_in_time_are_not_tested(trained: TrainedModel) -> None:
    who = identify(trained, [found_in([(1, B)] * 30)], PLAIN, "cpu")  # one every 0.1 ms
    [verdict] = verify(who, ENROLLED, spacing_s=0.00035)
    assert (verdict.frames, len(verdict.rows)) == (30, 8)


def test_what_verification_needs_is_asked_for(trained: TrainedModel, who: Identified) -> None:
    with pytest.raises(ConfigError, match="alpha is 2"):
        verify(who, ENROLLED, alpha=2)
    bare = replace(who.scores, statistics=replace(who.scores.statistics, validation_logits=None))
    with pytest.raises(DataError, match="keeps no validation frames"):
        verify(replace(who, scores=bare), ENROLLED)
