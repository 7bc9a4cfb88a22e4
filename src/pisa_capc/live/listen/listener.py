"""A listener: samples in, events out, until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pisa_capc.core.errors import ConfigError, DataError, ModelError, PisaError
from pisa_capc.core.process import quick_turns
from pisa_capc.data.store.files import reading
from pisa_capc.data.store.lock import only_runner
from pisa_capc.decide.calibration import OnlineCalibrator
from pisa_capc.decide.enrolment import enrol
from pisa_capc.decide.identification.decide import UNKNOWN, identities
from pisa_capc.decide.identification.observation import CARRIER_HZ, check_recording, waveform_of
from pisa_capc.live.listen.alarms import AlarmFinding, Alarms, Folder, Recent, utc
from pisa_capc.live.listen.claims import Tests
from pisa_capc.live.listen.events import (
    CHANGED,
    CONNECTED,
    ENDED,
    NO_SAMPLES,
    OK,
    RECEIVER,
    STUCK,
    UNKNOWN_DEVICE,
    WAITING,
    Alarm,
    OnEvent,
    Status,
)
from pisa_capc.live.listen.finder import CLOSE_S, STUCK_S, FrameFinder, Part, ThreadFinder
from pisa_capc.live.listen.finder_process import ProcessFinder, SharedMemory
from pisa_capc.live.listen.hearing import KEPT, Hearing
from pisa_capc.live.listen.plan import Air, ListenPlan
from pisa_capc.live.listen.receiver import Health
from pisa_capc.live.listen.recognise import Recogniser
from pisa_capc.live.listen.ring import Ring
from pisa_capc.live.listen.senders import Sender, Senders, newest_descriptors
from pisa_capc.live.listen.sources import FileSource, Source
from pisa_capc.live.listen.state import ALARM_FILE, ALL_TOLD, Keeper, Mark
from pisa_capc.live.listen.verifier import Verifier
from pisa_capc.live.listen.watch import Meter, Trouble, Watch
from pisa_capc.model.inference import TrainedModel
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.detection.base import NO_IQ
from pisa_capc.signal.detection.finding import renamed
from pisa_capc.signal.measurement.quantities import Quantity
from pisa_capc.signal.recordings import About

GRID = 131072  # samples: a file that is read on is read from a multiple of these
MOST = 8 * GRID  # samples that are looked at together
MOST_BYTES = 16 << 30  # of samples that may wait
TOGETHER = 256  # frames that are decided together
STOP_S = 5.0  # in which what was received is still decided after `stop`
LONGEST_S = 100 * 366 * 86400.0  # of a stream: a state that says more is damaged


class Listener:
    """Reports which devices are transmitting.

    `run` is for one thread; everything else may be called from any other while it runs.

    >>> listener = Listener(load_model("run"), source, Air(20e6, 4, encoding))       # doctest: +SKIP
    >>> listener.run(lambda event: print(event.to_json()))                           # doctest: +SKIP
    """

    def __init__(
        self,
        model: TrainedModel,
        source: Source,
        air: Air,
        plan: ListenPlan | None = None,
        device: str | torch.device = "cpu",
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.air, self.plan, self.source = air, plan or ListenPlan(), source
        self._device, self._note = torch.device(device), note
        self._about = About(source.name, air.sample_rate_hz, air.carrier_hz, air.antennas, 0)
        self._verifier = self._prepared(model)
        kept = max(KEPT, self._verifier.recogniser.samples)
        self._hearing = Hearing(self._about, air.encoding, air.waveform or waveform_of(model), kept)
        self._check_rate(model)
        self._health = Health()
        self._next_verifier: Verifier | None = None
        self._ring = self._new_ring(0)
        self._senders = Senders(air.antennas, air.carrier_hz or CARRIER_HZ, self._is_enrolled)
        self._alarms, self._meter = self._new_alarms(), Meter()
        self._folder = self._alarm_folder()
        self._recent = Recent()
        self._keeper = Keeper(self.plan.state, self.plan.save_every_s, note)
        self._stop, self._failed = threading.Event(), list[BaseException]()
        self._since = utc(time.time())
        self._missed_before = self._breaks_before = 0  # in earlier runs
        self._watch = Watch(source, self._meter, air.sample_rate_hz)
        self._on_event: OnEvent = lambda event: None
        self._ended = False
        self._stop_by = self._turned_s = np.inf  # on the clock of time.monotonic

    def _prepared(self, model: TrainedModel) -> Verifier:
        check_recording(model, self._about)
        plan = self.plan
        recogniser = Recogniser(model, plan.choices, self._device, live=not self.source.patient)
        spacing = plan.spacing_s, plan.change_spacing_s
        return Verifier(
            recogniser, Tests(model, recogniser.reference, plan.addresses, plan.alpha, *spacing, plan.rename)
        )

    def _new_alarms(self) -> Alarms:
        def enrolled() -> int:
            return len(self._verifier.devices if self.plan.addresses is None else self.plan.addresses)

        return Alarms(self.plan.alarm_every_s, self._begin_alarm, self._tell_alarm, enrolled)

    def _tell_alarm(self, alarm: Alarm) -> None:
        """Report an alarm that is on disk already: after a kill it goes on under its number."""
        self._keeper.keep_alarms(self._alarms.state(), alarm.number)
        self._on_event(alarm)

    def _new_ring(self, first: int) -> Ring:
        room = max(2 * MOST, int(self.plan.buffer_s * self.air.sample_rate_hz))
        size = self._hearing.sample_bytes
        if room * size > MOST_BYTES:
            raise ConfigError(
                f"--buffer {self.plan.buffer_s:g}: {room * size / 2**30:,.1f} GiB of samples; expected at most "
                f"{MOST_BYTES / 2**30:g} GiB. Take fewer seconds."
            )
        if self.source.patient:  # it waits instead
            room = 2 * MOST
        self._shared = SharedMemory(room * size) if self._own_process else None
        memory = None if self._shared is None else self._shared.memory
        rate_hz = self.air.sample_rate_hz
        return Ring(room, size, wait=self.source.patient, first=first, memory=memory, rate_hz=rate_hz)

    @property
    def _own_process(self) -> bool:
        return not self.source.patient if self.plan.own_process is None else self.plan.own_process

    def _begun_finder(self) -> FrameFinder:
        if self._shared is None:
            return ThreadFinder(self._ring, self._hearing, MOST)
        return ProcessFinder(self._ring, self._shared, self._hearing, MOST, self._note)

    def _alarm_folder(self) -> Folder | None:
        if self.plan.alarms is None:
            return None
        return Folder(self.plan.alarms, self.sample_rate_hz, self.air.carrier_hz, self.plan.alarms_bytes)

    @property
    def model(self) -> TrainedModel:
        """The model that decides now."""
        return self._verifier.recogniser.trained

    @property
    def sample_rate_hz(self) -> float:
        """Of the frames that `frame` gives: that of the waveform."""
        return self._hearing.waveform.sample_rate_hz

    def stop(self) -> None:
        """End `run` soon: what was received is decided, if that takes no longer than `STOP_S`; the state is kept."""
        self._stop_by = min(self._stop_by, time.monotonic() + STOP_S)
        self._stop.set()

    def exchange(self, model: TrainedModel) -> None:
        """Decide with another model from the next frame on; of the same array and waveform. No sample is missed."""
        name, own = self._hearing.waveform.name, waveform_of(model)
        own = own if isinstance(own, str) else own.name
        if self.air.waveform is None and own != name:
            raise ModelError(f"the new model is one of {own}; this listener hears {name}.")
        if (needed := model.run.samples) > (kept := self._hearing.kept):
            raise ModelError(
                f"the new model needs {needed} samples of a frame; this listener keeps {kept}. Restart it."
            )
        self._check_rate(model)
        self._next_verifier = self._prepared(model)

    def _check_rate(self, model: TrainedModel) -> None:
        if (trained := model.run.sample_rate_hz) != self.sample_rate_hz:
            raise ModelError(
                f"the model was trained at {trained:g} samples/s; {self._hearing.waveform.title} frames are found at "
                f"{self.sample_rate_hz:g}. Give a model of this waveform and rate."
            )

    def frame(self, number: int) -> FoundFrame | None:
        """A recent frame by its number, with its samples and its embedding; None where it is no longer kept."""
        return self._recent.get(number)

    def measured(self, frame: FoundFrame) -> list[tuple[str, Quantity, Quantity]]:
        """Measurements of a kept frame, beside those of the most similar device."""
        explainer = self._verifier.explainer
        device = explainer.devices.get(frame.who.like, {})
        if frame.embedding is None or frame.error is None:
            return []
        own = explainer.measured(frame.embedding[None], frame.error[None])
        return [(name, own[name], device[name]) for name in own if name in device]

    def with_device(self, name: str, numbers: Sequence[int], anyway: bool = False) -> TrainedModel:
        """The model with one more device, which sent these recent frames; `exchange` takes it into use.

        anyway: also where they sound like a device that is there, as of `enrol`.
        """
        recogniser = self._verifier.recogniser
        kept = [one for n in numbers if (one := self._recent.get(n)) is not None and recogniser.usable(one)]
        if not kept:
            raise DataError(f"{name}: none of its frames is kept any more. Enrol it while it is on the air.")
        origin = {"source": self.source.name, "frames": len(kept), "first": kept[0].utc, "last": kept[-1].utc}
        if len(claimed := {one.claimed for one in kept}) == 1 and self.plan.rename is None:
            origin["address"] = claimed.pop()
        frames = recogniser.frames(kept)
        return enrol(recogniser.trained, name, frames, origin=[origin], anyway=anyway, device=self._device)

    def status(self) -> Status:
        ring, health = self._ring, self._health
        rate_hz, frames_per_s = self._meter.rates()
        return Status(
            source=ENDED if self._ended else CONNECTED if self.source.connected else WAITING,
            since=self._since,
            samples=ring.received,
            missed=self._missed_before + ring.missed,
            breaks=self._breaks_before + ring.breaks,
            rate_hz=rate_hz,
            frames=self._keeper.mark.decisions,
            frames_per_s=frames_per_s,
            delay_ms=self._meter.delays_ms(),
            clipped=health.clipped,
            dead=health.dead,
            waiting_s=ring.held / self.air.sample_rate_hz,
            alarms=self._keeper.mark.alarms,
            open_alarms=self._alarms.open,
            withheld=dict(self._alarms.withheld),
            health=self.health,
        )

    @property
    def health(self) -> str:
        """ok, ended, no samples (the source gives none; all is well here), or stuck (only a restart helps)."""
        if self._ended:
            return ENDED
        if max(time.monotonic() - self._turned_s, self._ring.stalled_s) > 2 * STUCK_S:
            return STUCK
        return NO_SAMPLES if self._watch.silent else OK

    def acknowledge(self, number: int, by: str) -> None:
        """End this alarm, acknowledged by a user."""
        self._alarms.acknowledge(number, by)

    # Running.

    def run(self, on_event: OnEvent) -> None:
        """Listen until the source ends or `stop` is called; events are handed over at once, in the order of time."""
        self._on_event = on_event
        alone = nullcontext() if self.plan.state is None else only_runner(self.plan.state)
        # Products here are small, and BLAS's own threads would only spin.
        with alone, threadpool_limits(1), quick_turns():
            self._resume()
            finder = self._begun_finder()
            reader = threading.Thread(target=self._read, name="reader", daemon=True)
            reader.start()
            try:
                self._listen(finder)
            finally:
                self._end(finder, reader)
        if self._failed:
            raise self._failed[0]

    def _end(self, finder: FrameFinder, reader: threading.Thread) -> None:
        """Whatever has happened: nothing here is waited for without a limit but the disk."""
        self._stop.set()
        self._ring.end()
        try:
            finder.close()
            reader.join(CLOSE_S)
            if reader.is_alive():
                self._note(f"{self.source.name} does not end; it is left behind.")
            else:
                self._release_ring()
            self._keep()
        finally:
            self._keeper.close()
            self._ended = True

    def _release_ring(self) -> None:
        """It is the largest thing that a listener has, which may be kept for its frames and counts."""
        self._ring.release()
        if self._shared is not None:
            self._shared.close()

    def _read(self) -> None:
        try:
            self.source.read_into(self._ring, self._stop, self._note)
        except Exception as error:
            self._failed.append(error)
        finally:
            self._ring.end()

    def _listen(self, finder: FrameFinder) -> None:
        while (parts := finder.parts()) is not None:
            self._turned_s = time.monotonic()
            if self._turned_s > self._stop_by:
                self._note(f"{self._ring.held:,} samples are left: deciding them takes longer than {STOP_S:g} s.")
                return
            if self._next_verifier is not None:
                self._verifier, self._next_verifier = self._next_verifier, None
                self._note("another model decides from now on.")
            self._hear([self._named(frame) for part in parts for frame in part.frames])
            for advice in filter(None, (part.advice for part in parts)):
                self._note(advice)
            self._health = parts[-1].health if parts else self._health
            self._look(max(parts, key=lambda part: (part.shown.size > 0, part.first), default=None))
            if self._keeper.due:
                self._keep()
        if not self._stop.is_set():
            self._alarms.finish()

    def _named(self, frame: FoundFrame) -> FoundFrame:
        """The frame with pseudonyms, where they are wanted."""
        rename = self.plan.rename
        return frame if rename is None else replace(frame, header=renamed(frame.header, rename))

    def _hear(self, frames: Sequence[FoundFrame]) -> None:
        decided, usable = self._keeper.mark.sample, self._verifier.recogniser.usable
        new = [frame for frame in frames if frame.start > decided and usable(frame)]
        for first in range(0, len(new), TOGETHER):
            self._decide(new[first : first + TOGETHER])

    def _decide(self, frames: Sequence[FoundFrame]) -> None:
        """Decide frames, say it, and see whether there is an alarm in it."""
        senders = [self._senders.of(frame.claimed, frame.cfo_hz) for frame in frames]
        traces = [sender.push(frame.cfo_hz) for sender, frame in zip(senders, frames, strict=True)]
        got = self._verifier.recogniser.recognise(frames, newest_descriptors(traces))
        decision = np.where(got.known, got.probability.argmax(axis=1), UNKNOWN)
        who = identities(self._verifier.devices, got.probability, decision, got.unknown)
        first = self._keeper.mark.decisions
        for i, (frame, sender) in enumerate(zip(frames, senders, strict=True)):
            number = first + i
            self._keeper.advance(decisions=number + 1, sample=frame.start)
            sender.numbers.append(number)
            verdict, causes = self._verifier.tested(sender, frame.time_s, got, i)
            at = self._when(frame.start)
            said = replace(frame, iq=NO_IQ, identity=who[i], number=number, utc=at, verdict=verdict)
            self._recent.add(
                replace(
                    said, iq=frame.iq, embedding=got.embedding[i], error=None if got.error is None else got.error[i]
                )
            )
            self._meter.delay(time.monotonic() - self._ring.arrival(frame.end - 1))
            self._on_event(said)
            for kind, device, text, everybody in causes:
                subject = str(device if kind == CHANGED else sender.address)
                own = partial(self._frames_of, sender, everybody)
                self._alarms.found(AlarmFinding(kind, subject, text, frame.start, sender.address, device, own))

    def _frames_of(self, sender: Sender, everybody: bool) -> tuple[int, ...]:
        return self._senders.frames(sender.address) if everybody else tuple(sender.numbers)

    def _is_enrolled(self, address: str | None) -> bool:
        return self._verifier.tests.device_of(address) is not None

    def _begin_alarm(self, finding: AlarmFinding) -> Alarm:
        number, frames = self._keeper.mark.alarms, finding.frames()
        self._keeper.advance(alarms=number + 1)
        kept = finding.kept or [one for n in frames if (one := self._recent.get(n)) is not None]
        name = None
        if self._folder is not None and kept:
            try:
                name = self._folder.write(number, finding.text, kept, finding.kind == UNKNOWN_DEVICE)
            except (PisaError, OSError) as error:  # a full disk is no reason to stop listening
                self._note(str(error))
        sample = finding.sample if finding.sample >= 0 else self._ring.received
        time_s, at = sample / self.air.sample_rate_hz, self._when(sample)
        about = finding.kind, finding.address, finding.device, finding.text
        return Alarm(number, time_s, at, *about, frames, name, updated_at=at)

    # The receiver, and what outlives the listener.

    def _look(self, newest: Part | None) -> None:
        self._meter.mark(self._ring.received, self._keeper.mark.decisions)
        for trouble in self._watch.look(self._ring, self._health):
            self._trouble(trouble, newest)
        if self._keeper.failed is not None:
            self._trouble(Trouble("state", f"the state is not kept: {self._keeper.failed}"), None)
        self._alarms.tick()

    def _trouble(self, trouble: Trouble, newest: Part | None) -> None:
        """An alarm about the receiver; with some of its samples, where they show something."""
        snippet, sample = list[FoundFrame](), self._ring.received if newest is None else newest.first
        if (
            trouble.shown
            and newest is not None
            and newest.shown.size
            and self.sample_rate_hz == self.air.sample_rate_hz
        ):
            nowhere = np.full(self.air.antennas, np.nan)
            snippet = [FoundFrame(sample, newest.shown, nowhere, nowhere, 0.0, start=sample, utc=self._when(sample))]
        self._alarms.found(AlarmFinding(RECEIVER, trouble.cause, trouble.text, sample, kept=snippet))

    def _when(self, sample: int) -> str:
        """UTC of a sample's arrival."""
        return utc(time.time() - (time.monotonic() - self._ring.arrival(sample)))

    def _resume(self) -> None:
        with self._keeper.resuming() as found:
            if found is not None:
                self._go_on(*found)
        folder = self.plan.state
        if folder is not None and (kept := self._keeper.kept_alarms()) is not None:
            with reading(folder / ALARM_FILE, "alarms of a listener"):
                self._alarms.resume(kept[0])
                self._alarms.tell_again(kept[1])

    def _go_on(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        self._missed_before, self._breaks_before = int(about["missed"]), int(about["breaks"])
        self._alarms.resume(about.get("alarms", []))
        self._ring = self._new_ring(self._first_sample(about))
        if about["model"] != self._verifier.fingerprint:
            self._note("the state is of another model: numbers continue, everything else is learnt again.")
            return
        if self._keeper.folder is not None:
            kept, new = OnlineCalibrator.load(self._keeper.folder), self._verifier.recogniser.calibrator
            if kept.by == new.by:
                kept.rejection = new.rejection
                self._verifier.recogniser.calibrator = kept
            else:
                self._note("the state is of another calibration: groups are learnt again.")
        self._verifier.tests.resume(arrays, about["tests"])
        self._note(f"going on after {self._keeper.mark.decisions:,} decisions.")

    def _first_sample(self, about: Mapping[str, Any]) -> int:
        """The number of the next sample: of a file, before the newest decided frame; else after all that were seen."""
        decided = self._keeper.mark.sample
        if max(decided, int(about["samples"])) > LONGEST_S * self.air.sample_rate_hz:
            self._note("the state claims a stream of more than a century; its samples are counted from zero.")
            self._keeper.advance(sample=Mark().sample)
            self._missed_before = 0
            return 0
        if isinstance(self.source, FileSource) and about["source"] == self.source.name:
            origin = int(about["origin"])
            first = origin + max(0, decided - origin) // GRID * GRID
            self.source.origin, self.source.begin = origin, (first - origin) * self._ring.sample_bytes
            return first
        return max(int(about["samples"]), decided + 1)

    def _keep(self) -> None:
        self._keeper.keep_alarms(self._alarms.state(), ALL_TOLD)
        arrays, tests = self._verifier.tests.state()
        about = {
            "given": [self._keeper.mark.decisions, self._keeper.mark.alarms],
            "samples": self._ring.received,
            "missed": self._missed_before + self._ring.missed,
            "breaks": self._breaks_before + self._ring.breaks,
            "model": self._verifier.fingerprint,
            "source": self.source.name,
            "origin": self.source.origin if isinstance(self.source, FileSource) else 0,
            "alarms": self._alarms.state(),
            "tests": tests,
        }
        self._keeper.keep(self._verifier.recogniser.calibrator, arrays, about)
