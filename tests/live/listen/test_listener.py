"""A listener decides every frame once, with the right numbers, and raises alarms where there is a cause."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import DataError, ModelError
from pisa_capc.decide.calibration import Online, calibrator
from pisa_capc.live.listen import Alarm, Event, Listener, ListenPlan, LiveChoices
from pisa_capc.live.listen.events import CHANGED, NOT_ITS_ADDRESS, RECEIVER, SHARED_ADDRESS, UNKNOWN_DEVICE
from pisa_capc.live.listen.recognise import Recogniser
from pisa_capc.live.listen.sources import FileSource
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.training import fit
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.recordings.sigmf import read_metadata
from tests.live.listen.air import AIR, ENROLLED, RATE_HZ, SPACING, Script, address, as_bytes, in_turn, played, script
from tests.live.listen.tools import wait_until
from tests.problems import ANTENNAS, SAMPLES, runs, small_frames

pytestmark = pytest.mark.usefixtures("toy")


def heard(listener: Listener) -> list[Event]:
    events: list[Event] = []
    listener.run(events.append)
    for event in events:
        json.dumps(event.to_json(), allow_nan=False)
    return events


def decisions(events: list[Event]) -> list[FoundFrame]:
    return [event for event in events if isinstance(event, FoundFrame)]


def alarms(events: list[Event], kind: str | None = None) -> list[Alarm]:
    return [event for event in events if isinstance(event, Alarm) and kind in (None, event.kind)]


def test_every_frame_is_decided_once_in_order(trained: TrainedModel) -> None:
    sent = in_turn(90)
    listener = Listener(trained, script(played(sent)), AIR, ListenPlan(addresses=ENROLLED))
    got = decisions(heard(listener))
    assert [one.number for one in got] == list(range(90))
    assert [one.start for one in got] == [SPACING * i + 100 for i in range(90)]
    assert [one.time_s for one in got] == [one.start / RATE_HZ for one in got]
    assert [one.claimed for one in got] == [address(number) for _, number in sent]
    right = [one.who.device == f"D{device + 1}" for one, (device, _) in zip(got, sent, strict=True)]
    assert np.mean(right) > 0.8
    status = listener.status()
    assert (status.frames, status.missed, status.samples, status.source) == (90, 0, 90 * SPACING, "ended")


def test_frames_after_a_gap_have_their_right_numbers(trained: TrainedModel) -> None:
    iq = played(in_turn(30))
    steps = [
        lambda ring: ring.write(as_bytes(iq[:, :2050])),
        lambda ring: ring.skip(1000 * ANTENNAS * 8),
        lambda ring: ring.write(as_bytes(iq[:, 3050:4000])),
        lambda ring: ring.interrupt(),
        lambda ring: ring.write(as_bytes(iq[:, 4000:])),
    ]
    listener = Listener(trained, Script(steps), AIR)
    starts = [one.start for one in decisions(heard(listener))]
    kept = [start for i in range(30) if not 2050 - SAMPLES < (start := SPACING * i + 100) <= 3050]
    assert starts == kept
    status = listener.status()
    assert (status.missed, status.breaks) == (1000, 1)


def test_an_address_that_another_device_uses_raises_an_alarm(trained: TrainedModel, tmp_path: Path) -> None:
    sent = [*in_turn(60), *[(2, 1)] * 60]  # D3 sends as D1
    plan = ListenPlan(addresses=ENROLLED, alarms=tmp_path)
    events = heard(Listener(trained, script(played(sent)), AIR, plan))
    [alarm] = [alarm for alarm in alarms(events, NOT_ITS_ADDRESS) if alarm.address == address(1)]
    assert alarm.device == "D1"
    assert alarm.time_s * RATE_HZ >= 60 * SPACING
    assert decisions(events)[-1].verdict == "not the device"
    assert alarm.snippet is not None
    metadata = read_metadata(tmp_path / alarm.snippet)
    assert [note["pisa:number"] for note in metadata["annotations"]] == list(alarm.frames)
    recording = open_recording(tmp_path / alarm.snippet)
    assert recording.about.length == SAMPLES * len(alarm.frames)
    assert recording.about.antennas == ANTENNAS


def test_an_address_that_two_devices_use_at_once_raises_one_of_its_own(trained: TrainedModel, tmp_path: Path) -> None:
    sent = [(2 if i % 5 == 0 else 0, 1) for i in range(200)]  # every fifth frame of D1's address is D3's
    iq = played([*sent, *[(0, 1)] * 300], offset_hz=20e3)
    events = heard(Listener(trained, script(iq), AIR, ListenPlan(addresses=ENROLLED, alarms=tmp_path)))
    [alarm] = alarms(events, SHARED_ADDRESS)
    assert (alarm.address, alarm.device) == (address(1), "D1")
    said = decisions(events)
    assert {round(said[number].cfo_hz[0]) for number in alarm.frames} == {0, 40_000}, "frames of both are shown"
    assert alarm.snippet is not None
    verdicts = [one.verdict for one in said]
    assert verdicts[alarm.frames[-1]] == verdicts[200] == "several devices"
    assert verdicts[-1] == "genuine", "when the other has gone"


def test_looks_for_two_devices_are_counted_on_after_a_restart(trained: TrainedModel, tmp_path: Path) -> None:
    """Were they counted anew, many restarts would find two where there is one."""
    plan = ListenPlan(addresses=ENROLLED, state=tmp_path)
    for again in (1, 2):
        listener = Listener(trained, script(played([(0, 1), (2, 1)] * 32, offset_hz=20e3)), AIR, plan)
        heard(listener)
        assert listener._verifier.tests.claims[address(1)].shared.looks == 2 * again


def test_a_device_whose_carrier_jumps_is_one(trained: TrainedModel) -> None:
    mine, again = (played([(0, 1)] * 4, seed=seed) for seed in (0, 1))
    blocks = [block for _ in range(40) for block in (mine, again)]
    for block in blocks[1::2]:
        block[0].imag[np.abs(block[0].real - 1001) < 0.5] = 30.0  # kHz, of which its samples know nothing
    model = LiveChoices(reject=None, keep_cfo=True)
    events = heard(Listener(trained, script(*blocks), AIR, ListenPlan(model, addresses=ENROLLED)))
    assert {one.cfo_hz[0] for one in decisions(events)} == {0.0, 30e3}
    assert not alarms(events, SHARED_ADDRESS)


def test_devices_that_are_who_they_claim_raise_none_and_are_confirmed(trained: TrainedModel) -> None:
    events = heard(Listener(trained, script(played(in_turn(300))), AIR, ListenPlan(addresses=ENROLLED, alpha=1e-4)))
    assert not alarms(events, NOT_ITS_ADDRESS)
    assert "genuine" in {one.verdict for one in decisions(events)[-3:]}


def test_a_stranger_raises_an_alarm_and_does_not_flood(trained: TrainedModel, tmp_path: Path) -> None:
    sent = [pair for both in zip(in_turn(400), [(9, 77)] * 400, strict=True) for pair in both]
    listener = Listener(trained, script(played(sent)), AIR, ListenPlan(addresses=ENROLLED, alarms=tmp_path))
    events = heard(listener)
    [alarm] = alarms(events, UNKNOWN_DEVICE)
    assert alarm.address == address(77)
    assert "no device that is known" in alarm.text
    assert np.mean([one.who.device is None for one in decisions(events) if one.number in alarm.frames]) > 0.5
    assert (alarm.state, listener.status().withheld) == ("open", {})


def test_what_calibrates_is_what_is_usual_with_the_model(trained: TrainedModel) -> None:
    def by(model: TrainedModel) -> str:
        return Recogniser(model, LiveChoices(), torch.device("cpu")).calibrator.by

    unsaid = replace(trained, statistics=replace(trained.statistics, covariance=None))
    assert [by(model) for model in (trained, unsaid)] == ["careful", "U-CAPC"]


@pytest.mark.parametrize("name", ["lda", "ucapc"])
def test_any_calibration_can_be_listened_with(trained: TrainedModel, name: str) -> None:
    choices = LiveChoices(online=Online(calibrator(name)(), warmup=16, refresh=64))
    events = heard(Listener(trained, script(played(in_turn(200))), AIR, ListenPlan(choices)))
    assert len(decisions(events)) == 200
    assert Recogniser(trained, choices, torch.device("cpu")).calibrator.by == calibrator(name).title


def test_without_rejection_nobody_is_a_stranger(trained: TrainedModel) -> None:
    plan = ListenPlan(LiveChoices(reject=None))
    events = heard(Listener(trained, script(played([(9, 77)] * 100)), AIR, plan))
    assert not alarms(events, UNKNOWN_DEVICE)
    assert None not in {one.who.device for one in decisions(events)}


@pytest.mark.filterwarnings("ignore:a group of this stream looks poisoned")
def test_a_device_that_changes_raises_an_alarm(trained: TrainedModel) -> None:
    before, after = played([(0, 1)] * 200), played([(0, 1)] * 200, seed=1)
    frames = np.abs(after[0]) > 0.1
    after[:, frames & (np.abs(after[0]) < 100)] += 0.12  # its carrier leaks more than it did
    plan = ListenPlan(LiveChoices(reject=None), addresses=ENROLLED, change_spacing_s=0.0)
    events = heard(Listener(trained, script(before, after), AIR, plan))
    found = alarms(events, CHANGED)
    assert found
    assert found[0].device == "D1"
    assert found[0].time_s * RATE_HZ > before.shape[1]


def test_a_dead_antenna_raises_an_alarm_and_frames_are_decided(trained: TrainedModel, tmp_path: Path) -> None:
    iq = np.tile(played(in_turn(300)), 2)
    iq[1] = 0
    air = replace(AIR, sample_rate_hz=20e6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pisa_capc.live.listen.receiver.WINDOW_S", 1e-3)
        events = heard(Listener(trained, script(iq), air, ListenPlan(alarms=tmp_path)))
    [alarm] = alarms(events, RECEIVER)
    assert "antenna 1 is dead" in alarm.text
    assert len(decisions(events)) == 600
    assert all(np.isnan(one.cfo_hz[1]) for one in decisions(events))
    assert alarm.snippet is not None
    assert open_recording(tmp_path / alarm.snippet).about.length > 0


def test_clipping_raises_an_alarm(trained: TrainedModel) -> None:
    rng = np.random.default_rng(0)
    values = np.clip(rng.normal(0, 20000, (60_000, ANTENNAS, 2)), -32768, 32767)
    values[:, 1] /= 100
    source = Script([lambda ring: ring.write(values.astype("<i2").tobytes())])
    air = replace(AIR, encoding=Encoding.named("cs16"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pisa_capc.live.listen.receiver.WINDOW_S", 1e-3)
        texts = [alarm.text for alarm in alarms(heard(Listener(trained, source, air)), RECEIVER)]
    assert len(texts) == 1
    assert "antenna 0 clips" in texts[0]


def test_samples_that_are_no_numbers_are_zero_and_said(trained: TrainedModel) -> None:
    iq = played(in_turn(30))
    iq[:, 10:20] = np.nan
    iq[0, 30] = np.inf
    events = heard(Listener(trained, script(iq), AIR))
    assert ["21 samples" in alarm.text for alarm in alarms(events, RECEIVER)] == [True]
    assert len(decisions(events)) == 30


def test_samples_that_are_missed_raise_an_alarm(trained: TrainedModel) -> None:
    iq = played(in_turn(30))
    steps = [lambda ring: ring.skip(160), lambda ring: ring.write(as_bytes(iq))]
    events = heard(Listener(trained, Script(steps), AIR))
    assert ["10 samples" in alarm.text for alarm in alarms(events, RECEIVER)] == [True]


def test_a_silent_source_raises_an_alarm(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisa_capc.live.listen.watch.SILENCE_S", 0.05)
    events: list[Event] = []
    listener = Listener(trained, Script([], patient=False, ends=False), AIR)
    runner = threading.Thread(target=listener.run, args=(events.append,))
    runner.start()
    wait_until(lambda: bool(events))
    listener.stop()
    runner.join(10)
    assert "nothing has come" in alarms(events, RECEIVER)[0].text


@pytest.mark.parametrize("encoding", ["cf32", "cs16", "cu8"])
def test_garbage_is_survived(trained: TrainedModel, encoding: str) -> None:
    rng = np.random.default_rng(1)
    steps = [lambda ring: ring.write(rng.bytes(1_000_003)), lambda ring: ring.write(rng.bytes(17))]
    events = heard(Listener(trained, Script(steps), replace(AIR, encoding=Encoding.named(encoding))))
    assert all(isinstance(event, FoundFrame | Alarm) for event in events)


def test_a_listener_goes_on_where_it_was_stopped(trained: TrainedModel, tmp_path: Path) -> None:
    first, second = played([*in_turn(60), *[(2, 1)] * 20]), played([(2, 1)] * 20)
    plan = ListenPlan(addresses=ENROLLED, state=tmp_path / "state", alarms=tmp_path / "alarms")
    one = heard(Listener(trained, script(first), AIR, plan))
    two = heard(Listener(trained, script(second), AIR, plan))
    whole = heard(Listener(trained, script(first, second), AIR, replace(plan, state=None)))
    assert [event.number for event in decisions(one + two)] == list(range(100))
    assert [d.verdict for d in decisions(one + two)] == [d.verdict for d in decisions(whole)]
    assert [d.who.device for d in decisions(one + two)] == [d.who.device for d in decisions(whole)]
    assert [d.start for d in decisions(one + two)] == [d.start for d in decisions(whole)]
    numbers = [alarm.number for alarm in alarms(one + two)]
    assert len(set(numbers)) == len(numbers)


def test_strangers_are_set_aside_after_a_restart_too(trained: TrainedModel, tmp_path: Path) -> None:
    plan = ListenPlan(state=tmp_path)
    heard(Listener(trained, script(played(in_turn(60))), AIR, plan))
    again = decisions(heard(Listener(trained, script(played([(9, 77)] * 60)), AIR, plan)))
    assert np.mean([one.who.device is None for one in again]) > 0.5


def test_a_file_is_read_on_and_no_frame_is_decided_twice(trained: TrainedModel, tmp_path: Path) -> None:
    path, data = tmp_path / "roof.cf32", as_bytes(played(in_turn(1500)))
    plan = ListenPlan(state=tmp_path / "state")
    starts: list[int] = []
    for end in (100_000, 101_003, 3_000_000, len(data)):
        path.write_bytes(data[:end])
        starts += [one.start for one in decisions(heard(Listener(trained, FileSource(path), AIR, plan)))]
    assert starts == [SPACING * i + 100 for i in range(1500)]


def test_a_state_of_another_calibration_is_said_and_left(trained: TrainedModel, tmp_path: Path) -> None:
    plan, notes = ListenPlan(state=tmp_path), list[str]()
    unsaid = replace(trained, statistics=replace(trained.statistics, covariance=None))
    heard(Listener(unsaid, script(played(in_turn(20))), AIR, plan))
    later = Listener(trained, script(played(in_turn(20))), AIR, plan, note=notes.append)
    assert len(decisions(heard(later))) == 20
    assert "another calibration" in notes[0]


def test_a_state_of_another_model_keeps_numbers_alone(
    trained: TrainedModel, other: TrainedModel, tmp_path: Path
) -> None:
    plan, notes = ListenPlan(addresses=ENROLLED, state=tmp_path), list[str]()
    heard(Listener(trained, script(played(in_turn(10))), AIR, plan))
    again = Listener(other, script(played(in_turn(10))), AIR, plan, note=notes.append)
    assert decisions(heard(again))[0].number == 10
    assert "another model" in notes[0]


def test_two_listeners_do_not_share_a_state(trained: TrainedModel, tmp_path: Path) -> None:
    code = Listener(trained, Script([], ends=False), AIR, ListenPlan(state=tmp_path))
    runner = threading.Thread(target=code.run, args=(lambda event: None,))
    runner.start()
    wait_until(lambda: (tmp_path / ".lock").exists() and (tmp_path / "ledger").exists())
    # Within one process a folder may be held twice, so another one asks.
    asked = (
        "from pathlib import Path; from pisa_capc.data.store.lock import only_runner\nwith "
        "only_runner(Path({!r})): pass"
    )
    done = subprocess.run([sys.executable, "-c", asked.format(str(tmp_path))], capture_output=True, text=True)
    code.stop()
    runner.join(10)
    assert "another runner" in done.stderr


def test_a_model_is_exchanged_while_listening(trained: TrainedModel, other: TrainedModel) -> None:
    iq, events = played(in_turn(60)), list[Event]()
    ready = threading.Event()
    steps = [
        lambda ring: ring.write(as_bytes(iq[:, :6000])),
        lambda ring: ready.wait(20),
        lambda ring: ring.write(as_bytes(iq[:, 6000:])),
    ]
    listener = Listener(trained, Script(steps), AIR, ListenPlan(addresses=ENROLLED))
    runner = threading.Thread(target=listener.run, args=(events.append,))
    runner.start()
    wait_until(lambda: len(decisions(events)) >= 29)
    listener.exchange(other)
    wait_until(lambda: listener.model is other)
    ready.set()
    runner.join(20)
    assert [one.number for one in decisions(events)] == list(range(60))
    assert listener.status().missed == 0


def test_a_model_that_needs_more_of_a_frame_than_is_kept_is_not_exchanged(trained: TrainedModel) -> None:
    listener = Listener(trained, script(played(in_turn(1))), AIR)
    with pytest.raises(ModelError, match="needs 4000 samples of a frame; this listener keeps 2048"):
        listener.exchange(replace(trained, run=replace(trained.run, samples=4000)))


def test_recent_frames_can_be_had_by_number(trained: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisa_capc.live.listen.alarms.RECENT_BYTES", 10 * ANTENNAS * SAMPLES * 8)
    iq = played(in_turn(30))
    listener = Listener(trained, script(iq), AIR)
    heard(listener)
    kept = listener.frame(29)
    assert kept is not None
    np.testing.assert_array_equal(kept.iq, iq[:, 29 * SPACING + 100 :][:, :SAMPLES])
    assert listener.frame(19) is None
    assert listener.frame(30) is None


def test_a_model_of_another_array_is_refused(trained: TrainedModel) -> None:
    with pytest.raises(ModelError, match="3 antennas"):
        Listener(trained, script(), replace(AIR, antennas=3))


def test_a_source_that_fails_is_an_error_after_what_was_heard(trained: TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        heard(Listener(trained, FileSource(tmp_path / "none.cf32"), AIR))


@pytest.fixture(scope="session")
def other() -> TrainedModel:
    """Another model of the same devices."""
    [model] = fit(runs(small_frames(frames=80), (2, 2)), encoder="cnn", epochs=3, batch=16, device="cpu", show=False)
    return model
