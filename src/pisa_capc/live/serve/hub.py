"""Where everything comes together: a listener, what is remembered of it, and who wants to know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pisa_capc.core.errors import PisaError
from pisa_capc.live.listen import Air, Alarm, Status
from pisa_capc.live.listen.alarms import utc
from pisa_capc.live.listen.events import ACKNOWLEDGED
from pisa_capc.live.serve import keepsakes as kept
from pisa_capc.live.serve.audit import Audit
from pisa_capc.live.serve.clients import Clients
from pisa_capc.live.serve.keepsakes import Keepsakes, keep
from pisa_capc.live.serve.memory import Memory, now, restore
from pisa_capc.live.serve.rows import Row
from pisa_capc.live.serve.views import PlaneProjection, projection
from pisa_capc.model.inference import SourceStatistics, TrainedModel
from pisa_capc.model.runs import ModelRun
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.measurement.quantities import Quantity


class Known(Protocol):
    """A model, as far as the page shows it."""

    @property
    def devices(self) -> tuple[str, ...]: ...

    @property
    def run(self) -> ModelRun: ...

    @property
    def statistics(self) -> SourceStatistics: ...


class ServedListener(Protocol):
    """May be asked from any thread."""

    @property
    def air(self) -> Air: ...

    @property
    def model(self) -> Known: ...

    @property
    def sample_rate_hz(self) -> float: ...

    def status(self) -> Status: ...

    def acknowledge(self, number: int, by: str) -> None: ...

    def frame(self, number: int) -> FoundFrame | None: ...

    def measured(self, frame: FoundFrame) -> list[tuple[str, Quantity, Quantity]]: ...

    def with_device(self, name: str, numbers: Sequence[int], anyway: bool = False) -> TrainedModel: ...

    def exchange(self, model: TrainedModel) -> None: ...


TICK_S = 0.1  # between looks into the boxes
TELL_S = 1.0  # between words about the state
ROWS = 64  # transmitters in one message
FRAMES = 400  # of a transmitter that a device is enrolled from


@dataclass(eq=False)
class Hub:
    """Belongs to the thread that answers; only `memory.hear` is for another.

    alarms: folder of snippets. state: folder of what outlives this. run_folder: of the model, as it was given. note:
    reports errors on the way.
    """

    listener: ServedListener
    memory: Memory
    source: str
    alarms: Path | None = None
    state: Path | None = None
    run_folder: Path | None = None
    note: Callable[[str], None] = lambda text: None
    clients: Clients = field(default_factory=Clients)
    keepsakes: Keepsakes = field(default_factory=Keepsakes)

    def __post_init__(self) -> None:
        self.changed = False  # since the state was written
        self._unsaved = ""  # why it could not be
        self._enrolling = asyncio.Lock()
        self._told = -1  # number of the newest decision that rows were told after
        self._projected: tuple[Known, PlaneProjection | None] | None = None
        self.audit = Audit(self.state, self.note)
        if self.state is not None:
            self.keepsakes, alarms = kept.load(self.state)
            restore(self.memory, alarms)

    def catch_up(self) -> None:
        """Remember what was heard by now, and tell everybody."""
        events = self.memory.take()
        if not events:
            return
        self.changed = self.changed or any(isinstance(event, Alarm) for event in events)
        self.clients.tell([event.to_json() for event in events])

    def tell_state(self) -> None:
        """Tell how the listener is doing, and whose frames came since the last time."""
        events = [self.status()]
        if self.clients.wanted("transmitters"):
            rows = self.memory.heard_since(self._told)[:ROWS]
            self._told = max([self._told, *(row.newest.number for row in rows)])
            step = now()
            if rows:
                found = [row.to_json(step - 1) for row in rows]
                events.append({"event": "transmitters", "now": step, "transmitters": found})
        self.clients.tell(events)

    def status(self) -> dict[str, Any]:
        unseen = sum(alarm.state != ACKNOWLEDGED for alarm in self.memory.alarms.values())
        return {**self.listener.status().to_json(), "now": utc(time.time()), "unseen": unseen, "lost": self.memory.lost}

    def acknowledge(self, numbers: Iterable[int], by: str) -> list[Alarm]:
        """A user acknowledges these alarms; those acknowledged before stay as they are."""
        done, at = list[Alarm](), utc(time.time())
        for number in numbers:
            alarm = self.memory.alarms[number]
            if alarm.state != ACKNOWLEDGED:
                done.append(replace(alarm, state=ACKNOWLEDGED, updated_at=at, by=by))
                self.memory.alarms[number] = done[-1]
                self.listener.acknowledge(number, by)
        self.changed = True
        self.clients.tell([alarm.to_json() for alarm in done])
        self.tell_state()
        return done

    async def enrol(self, row: Row, name: str, anyway: bool) -> Path | None:
        """Add the device that sent the recent unknown frames of a transmitter; the model's folder, if it is kept."""
        own = self.memory.newest_decisions(FRAMES, row=row.id)
        numbers = [one.number for one in reversed(own) if one.who.device is None]
        async with self._enrolling:
            model = await asyncio.to_thread(self.listener.with_device, name, numbers, anyway)
            out = None
            if self.state is not None and self.run_folder is not None:
                out = await asyncio.to_thread(keep, self.state, self.run_folder, model)
            await asyncio.to_thread(self.listener.exchange, model)
        return out

    def projection(self) -> PlaneProjection | None:
        """Of the model that decides now; computed once for each."""
        model = self.listener.model
        if self._projected is None or self._projected[0] is not model:
            self._projected = model, projection(model.statistics)
        return self._projected[1]

    async def run(self) -> None:
        """Until it is cancelled."""
        told = time.monotonic()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self.catch_up()
                if time.monotonic() - told >= TELL_S:
                    told = time.monotonic()
                    self.tell_state()
                    await self.save()
        finally:
            self.catch_up()
            await self.save()

    async def save(self) -> None:
        """Write what outlives this, if it has changed."""
        if self.state is None or not self.changed:
            return
        self.changed = False
        content = self.keepsakes.to_json(self.memory.alarms.values())
        try:
            await asyncio.to_thread(kept.save, self.state, content)
        except PisaError as error:  # a full disk is no reason to show nothing
            self.changed = True
            if str(error) != self._unsaved:
                self.note(f"{error} It is tried again every second.")
            self._unsaved = str(error)
        else:
            if self._unsaved:
                self.note(f"{self.state}: is written again.")
            self._unsaved = ""
