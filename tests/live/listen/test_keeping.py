"""What outlives a listener, and what must not grow."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.decide.identification.evidence import conformal_p, log_evidence
from pisa_capc.live.listen import Alarm
from pisa_capc.live.listen.alarms import AlarmFinding, Alarms, Folder, utc
from pisa_capc.live.listen.claims import EPOCH, Test, Tests
from pisa_capc.live.listen.output import Lines
from pisa_capc.live.listen.senders import MOST, Senders
from pisa_capc.live.listen.state import Keeper, Ledger, Mark
from pisa_capc.model.inference import TrainedModel
from tests.live.listen.air import snippet_of


def test_the_ledger_gives_back_the_newest_mark(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for i in range(5):
        ledger.write(Mark(i, 2 * i, 100 * i))
    ledger.close()
    assert Ledger(tmp_path / "ledger").mark == Mark(4, 8, 400)


@pytest.mark.parametrize("byte", range(0, 72, 5))
def test_after_a_torn_line_no_number_is_given_twice(tmp_path: Path, byte: int) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    for i in range(4):
        ledger.write(Mark(i, 0, i))
    ledger.close()
    content = bytearray(path.read_bytes())
    content[byte % len(content)] ^= 0xFF
    path.write_bytes(content)
    ledger = Ledger(path)
    assert ledger.mark in (Mark(4, 1, 3), Mark(3, 1, 2))
    ledger.write(Mark(5, 1, 9))
    ledger.close()
    assert Ledger(path).mark == Mark(5, 1, 9)


def test_the_first_mark_is_read_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.write(Mark(1, 0, 7))
    assert Ledger(tmp_path / "ledger").mark == Mark(1, 0, 7)


def test_a_ledger_on_a_full_disk_is_named_once_and_written_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    notes = list[str]()
    keeper = Keeper(tmp_path, 1.0, notes.append)
    with keeper.resuming():
        keeper.advance(decisions=1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            for number in (2, 3):
                keeper.advance(decisions=number)
        assert keeper.mark.decisions == 3
        assert len(notes) == 1
        assert f"{tmp_path / 'ledger'}: cannot be written (No space" in notes[0]
        keeper.advance(decisions=4)
    assert Ledger(tmp_path / "ledger").mark.decisions == 4


def test_a_ledger_that_says_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(os.urandom(100))
    with pytest.raises(DataError, match="damaged"):
        Ledger(tmp_path / "ledger")


def test_the_folder_of_alarms_keeps_its_size(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 20e6, None, most_bytes=100_000)
    (tmp_path / "mine.txt").write_text("not to be touched")
    frame = snippet_of(np.ones((4, 1000), dtype=np.complex64))
    names = [folder.write(number, "text", [frame]) for number in range(10)]
    left = sorted(path.name for path in tmp_path.glob("alarm-*.sigmf-meta"))
    assert left == names[-len(left) :]
    assert 0 < sum(path.stat().st_size for path in tmp_path.glob("alarm-*")) <= 100_000
    assert (tmp_path / "mine.txt").exists()


def test_lines_are_whole_and_files_are_exchanged(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"cut')
    lines = Lines(path, most_bytes=2000, kept=2)
    for number in range(40):
        lines.write(Alarm(number, 0.0, "", "receiver", None, None, "text \u2028", (), None))
    lines.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.1", "out.jsonl.2"]
    newest = [json.loads(line)["number"] for line in path.read_text().splitlines()]
    before = [json.loads(line)["number"] for line in (tmp_path / "out.jsonl.1").read_text().splitlines()]
    assert [*before, *newest] == list(range(before[0], 40))


def test_a_test_is_the_evidence_of_identify_and_goes_on_after_a_restart() -> None:
    rng = np.random.default_rng(0)
    reference, scores = rng.normal(size=50), rng.normal(size=100)
    test = Test([reference], 0.01)
    highest = [float(test.push(score)[0]) for score in scores]
    expected = np.maximum.accumulate(np.maximum(log_evidence(conformal_p(scores, reference)), 0))
    np.testing.assert_allclose(highest, expected)
    one, two = Test([reference], 0.01), Test([reference], 0.01)
    for score in scores[:40]:
        one.push(score)
    two.resume(one.arrays())
    assert [float(two.push(score)[0]) for score in scores[40:]] == pytest.approx(highest[40:])


def test_memory_of_a_test_does_not_grow_and_its_alarms_are_rarer_later() -> None:
    test = Test([np.arange(20.0)], 0.01)
    limits = []
    for i in range(3 * EPOCH):
        test.push(float(i % 20))
        if test.full:
            test.renew()
            limits.append(test.limit)
    assert len(test.seen) <= EPOCH
    assert limits == sorted(limits)
    spent = [np.exp(-limit) for limit in (np.log(e * (e + 1) / 0.01) for e in range(1, 1000))]
    assert sum(spent) <= 0.01


def test_addresses_that_anybody_may_send_do_not_fill_memory(trained: TrainedModel) -> None:
    senders, tests = Senders(2, 5e9, lambda address: False), Tests(trained, np.arange(20.0), {})
    for i in range(3 * MOST):
        sender = senders.of(f"address {i}", np.zeros(2))
        tests.stranger(sender.number, 0.0)
    assert senders._count == MOST
    assert len(tests.strangers) == MOST
    assert not tests.claims


def test_senders_are_told_by_address_and_carrier() -> None:
    senders = Senders(2, 5e9, lambda address: False)
    one = senders.of("a", np.array([0.0, 100.0]))
    one.push(np.array([0.0, 100.0]))
    assert senders.of("a", np.array([50.0, np.nan])) is one
    assert senders.of("a", np.array([20e3, 20e3])) is not one
    assert senders.of(None, np.array([0.0, 100.0])) is not one


def test_a_full_disk_under_out_is_named_and_written_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, notes = [0], list[str]()

    class Disk:
        def __init__(self, file: BinaryIO) -> None:
            self._file, self.tell, self.close = file, file.tell, file.close

        def write(self, data: bytes) -> int:
            if not room[0]:
                raise OSError(28, "No space left on device")
            taken = data[: room[0]]
            room[0] -= len(taken)
            return self._file.write(taken)

    path = tmp_path / "out.jsonl"
    lines = Lines(path, note=notes.append)
    lines._file = Disk(path.open("ab", buffering=0))  # type: ignore[assignment,arg-type]
    for number, space in enumerate([0, 0, 100, 0, 10_000]):
        room[0] += space
        lines.write(Alarm(number, 0.0, "", "receiver", None, None, "text", (), None))
    assert [note.split(": ")[1].split(" (")[0] for note in notes] == [
        "cannot be written",
        "is written again; 4 lines were left out.",
    ]
    cut, whole = path.read_text().splitlines()
    assert len(cut) == 100
    assert json.loads(whole)["number"] == 4


def test_an_alarm_that_was_reported_goes_on_under_its_number_after_a_kill(tmp_path: Path) -> None:
    """Nothing is saved but what is written before an alarm is reported: as if the listener had been killed then."""
    told: list[Alarm] = []
    keeper = Keeper(tmp_path, 1e9, told.append)  # type: ignore[arg-type]

    def alarms() -> Alarms:
        def tell(alarm: Alarm) -> None:
            keeper.keep_alarms(made.state(), alarm.number)
            told.append(alarm)

        def begin(finding: AlarmFinding) -> Alarm:
            return Alarm(
                len(told), 0.0, utc(0), finding.kind, finding.address, None, finding.text, (), None, updated_at=""
            )

        made = Alarms(3600.0, begin, tell)
        return made

    first = alarms()
    for address in ("a", "b"):
        first.found(AlarmFinding("not its address", address, "it is not", 0, address))
    kept = keeper.kept_alarms()
    assert kept is not None
    again = alarms()
    again.resume(kept[0])
    again.tell_again(kept[1])
    assert [alarm.number for alarm in told] == [0, 1, 1]  # of the last nobody knows whether it was reported
    for address in ("a", "b"):
        again.found(AlarmFinding("not its address", address, "it is not", 0, address))
    assert [alarm.number for alarm in told] == [0, 1, 1]
    assert again.open == 2
    path = tmp_path / "alarms.json"
    path.write_text(path.read_text().replace("open", "gone", 1))
    with pytest.raises(DataError, match=r"alarms.json: cannot be read .*it was changed"):
        keeper.kept_alarms()
