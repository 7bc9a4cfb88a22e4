"""What outlives a listener: numbers that are never given twice, what was learnt, and how far a file was read.

Three things are kept. The ledger is a line of numbers in a file of fixed size, written before a decision is output: a
kill at any moment may leave a number unused, but none is used twice. The alarms are written before one is reported, so
after a kill it goes on under its number; the last one, whose report the kill may have prevented, is reported again. The
learnt state is a pair of files, written now and then; what came after the last save is learnt again.
"""

from __future__ import annotations

import copy
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pisa_capc.core.errors import DataError, PisaError
from pisa_capc.data.store.files import read_json, reading, write_text_atomic
from pisa_capc.data.store.pair import described, write_pair
from pisa_capc.data.store.seal import sealed, unsealed
from pisa_capc.decide.calibration import OnlineCalibrator

NAME, SCHEMA, MADE_BY = "listen", 1, "`pisa listen --state`"
ALARM_FILE, ALL_TOLD = "alarms.json", -1


class Mark(NamedTuple):
    """decisions, alarms: given so far. sample: of the stream, the first of the newest decided frame; −1: of none."""

    decisions: int = 0
    alarms: int = 0
    sample: int = -1


class Ledger:
    """The newest mark, in two places that are written in turn: a torn one leaves the other.

    Each write gives one number more, or two. Where one of the places is damaged it may have held the newer mark, so the
    numbers after the other are passed over.
    """

    _record = struct.Struct("<QQQqI")  # which, decisions, alarms, sample, CRC-32 of these

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror}). Choose another --state.") from error
        self._turn, self.mark = self._newest()

    def _newest(self) -> tuple[int, Mark]:
        size = self._record.size
        content = os.pread(self._file, 2 * size, 0)
        places = content[:size], content[size:]
        found = [self._record.unpack(place)[:-1] for place in places if self._is_whole(place)]
        if content and not found:
            raise DataError(f"{self._path}: damaged: it does not say which numbers were given. Begin another --state.")
        turn, *mark = max(found, default=(0, *Mark()))
        newest = Mark(*mark)
        # The first mark of all is written to the second place; the first is empty until the next.
        if len(found) == 2 or not content or (turn == 1 and not any(places[0])):
            return turn, newest
        return turn, newest._replace(decisions=newest.decisions + 1, alarms=newest.alarms + 1)

    def _is_whole(self, record: bytes) -> bool:
        return len(record) == self._record.size and zlib.crc32(record[:-4]).to_bytes(4, "little") == record[-4:]

    def write(self, mark: Mark) -> None:
        self._turn += 1
        content = self._record.pack(self._turn, *mark, 0)[:-4]
        whole = content + struct.pack("<I", zlib.crc32(content))
        try:
            os.pwrite(self._file, whole, (self._turn % 2) * self._record.size)
        except OSError as error:
            raise self._unwritten(error) from error
        self.mark = mark

    def close(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritten(error) from error
        finally:
            os.close(self._file)

    def _unwritten(self, error: OSError) -> DataError:
        return DataError(f"{self._path}: cannot be written ({error.strerror}). Is the disk well?")


class Keeper:
    """Gives numbers, and keeps what was learnt in a folder; without a folder it keeps nothing."""

    def __init__(self, folder: Path | None, every_s: float, note: Callable[[str], None]) -> None:
        self.folder, self._every_s, self._note = folder, every_s, note
        self.mark = Mark()
        self._ledger: Ledger | None = None
        self._ledger_fails = False
        self._saved_at = time.monotonic()
        self._saving: threading.Thread | None = None
        self._alarms_fail = False
        self.failed: str | None = None  # why what was learnt was not kept the last time

    @contextmanager
    def resuming(self) -> Iterator[tuple[dict[str, NDArray[Any]], dict[str, Any]] | None]:
        """What was kept, for the block that goes on from it; None where there is nothing yet."""
        if self.folder is None:
            yield None
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ledger = Ledger(self.folder / "ledger")
        self.mark = self._ledger.mark
        if not (self.folder / f"{NAME}.json").is_file():
            yield None
            return
        with described(self.folder, NAME, SCHEMA, "a listener's state", MADE_BY) as (arrays, about):
            decisions, alarms = (int(number) for number in about.get("given", (0, 0)))  # a ledger may have been lost
            self.mark = self.mark._replace(
                decisions=max(self.mark.decisions, decisions), alarms=max(self.mark.alarms, alarms)
            )
            yield arrays, about

    def advance(self, **changes: int) -> None:
        """Give numbers: what is written is never given again."""
        self.mark = self.mark._replace(**changes)
        if self._ledger is not None:
            try:
                self._ledger.write(self.mark)
            except DataError as error:  # as some file systems do when they are full: go on deciding
                if not self._ledger_fails:
                    self._note(f"{error} After a kill, numbers given from now on may be given again.")
                self._ledger_fails = True
            else:
                self._ledger_fails = False

    def keep_alarms(self, alarms: list[dict[str, Any]], newest: int) -> None:
        """Write them before the newest of them, an alarm's number, is reported; `ALL_TOLD` where each has been."""
        if self.folder is not None:
            try:
                about = {"schema": SCHEMA, "newest": newest, "alarms": alarms}
                write_text_atomic(self.folder / ALARM_FILE, json.dumps(sealed(about)))
            except PisaError as error:  # a full disk is no reason to raise no alarm
                if not self._alarms_fail:
                    self._note(str(error))
                self._alarms_fail = True
            else:
                self._alarms_fail = False

    def kept_alarms(self) -> tuple[list[dict[str, Any]], int] | None:
        """The alarms, and the number of the one that may not have been reported; None where none was kept."""
        path = None if self.folder is None else self.folder / ALARM_FILE
        if path is None or not path.is_file():
            return None
        with reading(path, f"alarms as {MADE_BY} writes"):
            found = unsealed(read_json(path), path)
            if found["schema"] != SCHEMA:
                raise ValueError(f"schema {found['schema']!r}")
            return list(found["alarms"]), int(found["newest"])

    @property
    def due(self) -> bool:
        """Whether it is time to keep what was learnt."""
        busy = self._saving is not None and self._saving.is_alive()
        return self.folder is not None and not busy and time.monotonic() - self._saved_at >= self._every_s

    def keep(self, calibrator: OnlineCalibrator, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Write it in a thread of its own: decisions do not wait for a disk."""
        self._saved_at = time.monotonic()
        if self.folder is not None:
            self._wait()
            kept = self.folder, copy.deepcopy(calibrator), arrays, about
            self._saving = threading.Thread(target=self._write, args=kept)
            self._saving.start()

    def close(self) -> None:
        self._wait()
        if self._ledger is not None:
            self._ledger.close()

    def _wait(self) -> None:
        if self._saving is not None:
            self._saving.join()

    def _write(
        self, folder: Path, calibrator: OnlineCalibrator, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]
    ) -> None:
        try:
            calibrator.save(folder)
            write_pair(folder, NAME, SCHEMA, arrays, about)
            self.failed = None
        except Exception as error:  # a full disk is no reason to stop listening, nor is anything else here
            why = str(error) if isinstance(error, PisaError) else f"{type(error).__name__}: {error}"
            if why != self.failed:
                self._note(why)
            self.failed = why
