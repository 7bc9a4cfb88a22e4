"""Receivers that SoapySDR has a driver for, tuned from here."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.live.listen.ring import Ring
from pisa_capc.live.listen.sources.base import POLL_S, Note, Source, SourceKind, StreamSettings, register_source
from pisa_capc.signal.recordings.encoding import Encoding

PIECE = 1 << 16  # samples of each antenna that are asked for at once, at most
TIMEOUT, OVERFLOW = -1, -4  # what the driver answers in the place of a number of samples
NEAR = 1e-4  # by how much of it a sample rate may differ from what was asked for


def package() -> Any:
    try:
        import SoapySDR
    except ImportError as error:
        raise ConfigError(
            "source soapy: SoapySDR's Python module was not found. Install it (Debian: python3-soapysdr) for the "
            "Python that runs pisa."
        ) from error
    return SoapySDR


@register_source("soapy")
class SoapyKind(SourceKind):
    """What stands behind the colon goes to the driver; `gain` (in dB) and `port`, the antenna's name, are ours."""

    shape = "soapy:driver=NAME"

    def opened(self, rest: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
        package()
        pairs = [pair.partition("=") for pair in rest.split(",") if pair]
        if not pairs or not all(name and equals for name, equals, _ in pairs):
            raise ConfigError(f"source 'soapy:{rest}': expected soapy:driver=NAME, and further settings with commas.")
        settings = {name.strip(): value.strip() for name, _, value in pairs}
        stream = given.with_what_is_said(rest, StreamSettings(encoding=Encoding.named("cf32")))
        if stream.encoding != Encoding.named("cf32"):
            raise ConfigError(f"source 'soapy:{rest}': gives samples as cf32. Leave --format out.")
        if stream.sample_rate_hz is None or stream.carrier_hz is None:
            raise ConfigError(f"source 'soapy:{rest}': is tuned from here. Give --sample-rate and --carrier.")
        try:
            gain_db = float(settings.pop("gain")) if "gain" in settings else None
        except ValueError as error:
            raise ConfigError(f"source 'soapy:{rest}': expected a gain in dB, as gain=30.") from error
        tuning = stream.sample_rate_hz, stream.carrier_hz, stream.layout[0]
        return SoapySource(f"soapy:{rest}", settings, *tuning, gain_db, settings.pop("port", None)), stream


@dataclass
class SoapySource:
    """The first antennas of a device."""

    name: str
    settings: dict[str, str]
    sample_rate_hz: float
    carrier_hz: float
    antennas: int
    gain_db: float | None = None
    port: str | None = None
    patient: bool = False
    connected: bool = False

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        try:
            device = package().Device(self.settings)
            stream = self._tuned(device)
        except RuntimeError as error:  # what drivers raise
            raise DataError(f"{self.name}: cannot be used ({error}). Is it plugged in, and free?") from error
        try:
            device.activateStream(stream)
            self.connected = True
            self._receive(device, stream, ring, stop, note)
        finally:
            self.connected = False
            device.deactivateStream(stream)
            device.closeStream(stream)

    def _tuned(self, device: Any) -> Any:
        soapy, channels = package(), list(range(self.antennas))
        there = device.getNumChannels(soapy.SOAPY_SDR_RX)
        if there < self.antennas:
            raise DataError(f"{self.name}: has {there} antenna(s), {self.antennas} are asked for. Give --antennas.")
        for channel in channels:
            device.setSampleRate(soapy.SOAPY_SDR_RX, channel, self.sample_rate_hz)
            device.setFrequency(soapy.SOAPY_SDR_RX, channel, self.carrier_hz)
            if self.port is not None:
                device.setAntenna(soapy.SOAPY_SDR_RX, channel, self.port)
            if self.gain_db is not None:
                device.setGain(soapy.SOAPY_SDR_RX, channel, self.gain_db)
        rate_hz = device.getSampleRate(soapy.SOAPY_SDR_RX, 0)
        if abs(rate_hz - self.sample_rate_hz) > NEAR * self.sample_rate_hz:
            raise DataError(
                f"{self.name}: gives {rate_hz:g} samples/s, not {self.sample_rate_hz:g}. Give a rate it has."
            )
        return device.setupStream(soapy.SOAPY_SDR_RX, soapy.SOAPY_SDR_CF32, channels)

    def _receive(self, device: Any, stream: Any, ring: Ring, stop: threading.Event, note: Note) -> None:
        room = np.empty((self.antennas, PIECE), dtype=np.complex64)
        overflowed = False
        while not stop.is_set():
            got = device.readStream(stream, list(room), PIECE, timeoutUs=int(1e6 * POLL_S)).ret
            if got > 0:
                ring.write(np.ascontiguousarray(room[:, :got].T).view(np.uint8).reshape(-1))
            elif got == OVERFLOW:
                ring.interrupt()  # the driver does not say how many samples were lost
                if not overflowed:
                    note(f"{self.name}: this machine is too slow for it; samples are lost.")
                overflowed = True
            elif got not in (0, TIMEOUT):
                raise DataError(f"{self.name}: {package().errToStr(got)}.")
