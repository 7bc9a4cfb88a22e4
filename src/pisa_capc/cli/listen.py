"""The command listen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.calibrate import chosen_calibrator
from pisa_capc.cli.decisions import EqualiseAntennas, KeepCfo, WaveformName, rejection
from pisa_capc.cli.edge import TORCH, Engine, load_run, place
from pisa_capc.cli.model import Device
from pisa_capc.cli.options import Addresses, AlarmAlpha, Alpha, CalibrationName, TestEvery, options_of, reject_option
from pisa_capc.cli.recordings import PseudonymKey, renaming
from pisa_capc.core.errors import ConfigError, PisaError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.live.listen import Listener
    from pisa_capc.live.notify import AlarmSink, Notifier

SourceName = typer.Argument(
    metavar="SOURCE",
    help="zmq:tcp://HOST:PORT (several with commas: an antenna each), tcp:HOST:PORT, udp:HOST:PORT, rtl_tcp:HOST:PORT, "
    "soapy:driver=NAME, file:PATH (of SigMF too), - for standard input, or a plugin's.",
    show_default=False,
)
RunOption = typer.Option(..., "--run", help="A run that `pisa train` wrote.", show_default=False)
SampleRate = typer.Option(None, help="Sample rate in Hz; where the source does not say it.", show_default=False)
Carrier = typer.Option(None, help="Carrier in Hz; where the source does not say it.", show_default=False)
Antennas = typer.Option(
    None,
    min=1,
    help="Antennas of plain samples; by default those that the source says, or else the model's.",
    show_default=False,
)
Format = typer.Option(
    None,
    help="Encoding of plain samples, as cf32 or cs16; default the ending of a file, else cf32.",
    show_default=False,
)
Follow = typer.Option(False, "--follow", help="Of a file: wait at its end for more.")
Wait = typer.Option(False, "--wait", help="The source is no radio: let it wait instead of missing samples.")
Buffer = typer.Option(0.5, min=0.05, max=60.0, help="Seconds of samples that may wait to be looked at.")
State = typer.Option(
    None, help="Folder of what was learnt; it goes on from there, and leaves it there at the end.", show_default=False
)
SaveEvery = typer.Option(10.0, min=0.1, help="Seconds between two writings of --state.")
Alarms = typer.Option(None, help="Folder for SigMF snippets of the frames that raised alarms.", show_default=False)
AlarmsMb = typer.Option(
    256, min=1, help="Megabytes of --alarms; snippets of unknown devices are deleted first, then the oldest."
)
AlarmEvery = typer.Option(
    3600.0, min=0.0, help="Seconds between two reports of one alarm; and without its cause until it is resolved."
)
Notify = typer.Option(
    [],
    "--notify",
    metavar="URL",
    help="Deliver alarms: exec:COMMAND, https://HOST/PATH, mqtt://HOST, a URL of Apprise as mailto://…, or a plugin's; "
    "may be given again. @FILE: the URLs in a file, a line each.",
    show_default=False,
)


@dataclass(frozen=True)
class Listening:
    """What is listened to, and how: the options that `pisa listen` and `pisa serve` have in common."""

    source: str = SourceName
    run: Path = RunOption
    sample_rate: float | None = SampleRate
    carrier: float | None = Carrier
    antennas: int | None = Antennas
    format: str | None = Format
    follow: bool = Follow
    wait: bool = Wait
    buffer: float = Buffer
    waveform: str | None = WaveformName
    calibration: str | None = CalibrationName
    reject: str = reject_option("auto")
    alpha: float = Alpha
    addresses: Path | None = Addresses
    alarm_alpha: float = AlarmAlpha
    test_every: float = TestEvery
    keep_cfo: bool = KeepCfo
    equalise_antennas: bool = EqualiseAntennas
    pseudonyms: Path | None = PseudonymKey
    state: Path | None = State
    save_every: float = SaveEvery
    alarms: Path | None = Alarms
    alarms_mb: int = AlarmsMb
    alarm_every: float = AlarmEvery
    notify: list[str] = Notify
    device: str = Device
    engine: str = Engine

    def sinks(self) -> list[AlarmSink]:
        """Where alarms are delivered to; a wrong URL is an error before anything is listened to."""
        from pisa_capc.live.notify import open_sink
        from pisa_capc.live.notify.base import urls_of

        return [open_sink(url) for url in urls_of(self.notify)]

    def listener(self) -> Listener:
        """A listener as they describe it."""
        import torch

        from pisa_capc.decide.identification import check_domain
        from pisa_capc.decide.identification.addresses import owners
        from pisa_capc.live.listen import Air, Listener, ListenPlan, LiveChoices, StreamSettings, open_stream
        from pisa_capc.signal.recordings.encoding import Encoding

        where, trained = place(self.device, self.engine), load_run(self.run, self.engine)
        check_domain(trained)
        chosen = chosen_calibrator(self.calibration, trained.statistics, published="as the stream goes on")
        named = None if self.calibration is None else chosen  # a model that is exchanged may have another usual one
        online = replace(LiveChoices().online, calibration=named)
        torch.set_num_threads(1)  # a few frames at a time: more threads only wait for each other
        rename = renaming(self.pseudonyms)
        given = StreamSettings(
            self.sample_rate,
            self.carrier,
            self.antennas,
            None if self.format is None else Encoding.named(self.format),
            self.follow,
            self.wait,
            assumed_antennas=trained.geometry.antennas,
        )
        source, stream = open_stream(self.source, given)
        if stream.sample_rate_hz is None:
            raise ConfigError(f"source {self.source}: does not say its sample rate. Give --sample-rate, as 20e6.")
        antennas, encoding = stream.layout
        plan = ListenPlan(
            choices=LiveChoices(
                rejection(self.reject, trained), self.alpha, self.keep_cfo, self.equalise_antennas, online
            ),
            addresses=None if self.addresses is None else owners(self.addresses, trained.devices, rename),
            rename=rename,
            alpha=self.alarm_alpha,
            spacing_s=self.test_every,
            state=self.state,
            alarms=self.alarms,
            alarms_bytes=self.alarms_mb << 20,
            alarm_every_s=self.alarm_every,
            save_every_s=self.save_every,
            buffer_s=self.buffer,
        )
        air = Air(stream.sample_rate_hz, antennas, encoding, stream.carrier_hz, self.waveform)
        return Listener(trained, source, air, plan, where, say)


@app.command("listen")
@options_of(Listening)
def listen_(
    options: Listening,
    out: Path | None = typer.Option(
        None, help="Where to write: the lines; at 100 MB the file is exchanged, five are kept.", show_default=False
    ),
) -> None:
    """Report which devices are transmitting: a JSON line for every frame as it is received, and for every alarm.

    Frames are found, their headers read, embedded, set aside where they resemble no known device, calibrated online
    by careful, and claimed addresses verified. Ctrl-C and SIGTERM end it with a summary; SIGHUP reloads the
    run and continues with it.
    """
    from pisa_capc.live.listen import Event
    from pisa_capc.live.listen.output import Lines
    from pisa_capc.live.notify import Notifier

    sinks = options.sinks()
    listener, lines = options.listener(), Lines(out, note=say)
    notifier = Notifier(sinks, say)

    def hear(event: Event) -> None:
        lines.write(event)
        notifier.hear(event)

    try:
        with signals(listener, options.run, engine=options.engine):
            listener.run(hear)
    finally:
        lines.close()
        notifier.close()
        summarise(listener, notifier)


def say(text: str) -> None:
    """A note on the way, on standard error."""
    notes.print(f"note: {text}", soft_wrap=True)


def signals(
    listener: Listener, run: Path, stop: Callable[[], None] | None = None, engine: str = TORCH
) -> AbstractContextManager[None]:
    """SIGTERM and Ctrl-C end listening, SIGHUP exchanges the model for what its folder holds now.

    stop: what ends it, if there is more to end than the listener.
    """
    from pisa_capc.live.listen.service import service

    return service(listener, stop or listener.stop, partial(_exchange, listener, run, engine))


def _exchange(listener: Listener, run: Path, engine: str) -> None:
    try:
        listener.exchange(load_run(run, engine))
    except PisaError as error:
        say(f"the model is not exchanged: {error}")


def summarise(listener: Listener, notifier: Notifier) -> None:
    """The last lines."""
    status = listener.status()
    seconds = status.samples / listener.air.sample_rate_hz
    withheld = sum(status.withheld.values())
    notes.print(
        f"{status.frames:,} frames decided in {seconds:,.1f} s of samples, {status.alarms:,} alarms"
        + (f" ({withheld:,} had to wait)" if withheld else "")
        + f"; {status.missed:,} "
        f"samples missed, {status.breaks:,} interruptions; delay {status.delay_ms[0]:.1f} ms in the median, "
        f"{status.delay_ms[1]:.1f} ms at 99 %.",
        soft_wrap=True,
    )
    for text in notifier.summary():
        notes.print(text, soft_wrap=True)
