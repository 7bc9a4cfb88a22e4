"""A listener that hears nothing and says what it is told to; and a busy one to look at:

python -m tests.live.serve.fake busy|alarmed|empty [PORT]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.geometry import square
from pisa_capc.live.listen import Air, Alarm, Status
from pisa_capc.live.listen.alarms import Folder
from pisa_capc.live.serve.app import create_app
from pisa_capc.live.serve.gate import Gate, Rules
from pisa_capc.live.serve.hub import Hub
from pisa_capc.live.serve.memory import Memory
from pisa_capc.model.inference import SourceStatistics
from pisa_capc.model.runs import ModelRun
from pisa_capc.signal.detection import FoundFrame, Identity
from pisa_capc.signal.detection.base import NO_IQ
from pisa_capc.signal.measurement.quantities import Quantity
from pisa_capc.signal.phy import Header
from pisa_capc.signal.recordings.encoding import Encoding

DEVICES = ("camera-hall", "camera-roof", "door-7", "laptop-anna", "meter-3", "printer")
ADDRESSES = tuple(f"02:1a:7d:da:71:{k:02x}" for k in range(len(DEVICES)))
FEATURES, ANTENNAS, SAMPLES, RATE_HZ = 16, 4, 400, 20e6


def utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


QUIET = Status("connected", utc(0), 10_000_000, 0, 0, RATE_HZ, 0, 0.0, (0.0, 0.0), (), (), 0.0, 0, 0)


def a_decision(number: int = 0, at: float | None = None, **changes: Any) -> FoundFrame:
    """A frame as a listener hands it over; changes by the names that its event has for them."""
    said: dict[str, Any] = {
        "device": DEVICES[0],
        "like": DEVICES[0],
        "probability": 0.97,
        "address": ADDRESSES[0],
        "receiver": "ff:ff:ff:ff:ff:ff",
        "kind": "beacon",
        "rate_mbps": 6.0,
        "cfo_hz": (1200.0, 1210.0, 1190.0, 1205.0),
        "snr_db": (24.0, 22.0, 23.0, 25.0),
        "verdict": "genuine",
        "time_s": number / 100,
        "iq": NO_IQ,
        **changes,
    }
    return FoundFrame(
        number * 200_000,
        said["iq"],
        np.array(said["cfo_hz"]),
        np.array(said["snr_db"]),
        0.9,
        header=Header(said["kind"], said["rate_mbps"], None, said["address"], said["receiver"]),
        start=number * 200_000,
        time_s=said["time_s"],
        identity=Identity(said["device"], said["like"], said["probability"]),
        number=number,
        utc=utc(time.time() if at is None else at),
        verdict=said["verdict"],
    )


def an_alarm(number: int = 0, **changes: Any) -> Alarm:
    text = f"{ADDRESSES[0]} is the address of {DEVICES[0]}, and does not sound like it."
    plain = Alarm(number, 1.0, utc(time.time()), "not its address", ADDRESSES[0], DEVICES[0], text, (0, 1), None)
    return replace(plain, **changes)


RUN = ModelRun(method="single", encoder="cnn", devices=DEVICES, geometry=square(), samples=SAMPLES, sample_rate_hz=20e6)


@dataclass
class Model:
    devices: tuple[str, ...] = DEVICES
    run: ModelRun = RUN
    statistics: SourceStatistics = field(default_factory=SourceStatistics)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(3)
        self.means = rng.normal(size=(len(self.devices), FEATURES)) * 3
        bank = np.repeat(self.means, 12, axis=0) + 0.5 * rng.normal(size=(12 * len(self.devices), FEATURES))
        self.statistics = SourceStatistics(class_mean=self.means, bank=bank)


@dataclass
class FakeListener:
    """Frames that were given to it are kept; its status is what is written into it."""

    model: Model = field(default_factory=Model)
    air: Air = field(default_factory=lambda: Air(RATE_HZ, ANTENNAS, Encoding.named("cs16"), 2.437e9))
    sample_rate_hz: float = RATE_HZ
    state: Status = QUIET
    kept: dict[int, FoundFrame] = field(default_factory=dict)
    acknowledged: list[tuple[int, str]] = field(default_factory=list)

    def status(self) -> Status:
        return self.state

    def acknowledge(self, number: int, by: str) -> None:
        self.acknowledged.append((number, by))

    def frame(self, number: int) -> FoundFrame | None:
        return self.kept.get(number)

    def measured(self, frame: FoundFrame) -> list[tuple[str, Quantity, Quantity]]:
        own, device = (Quantity("image rejection", "dB", value, value - 0.5, value + 0.5) for value in (38.9, 29.4))
        return [(own.name, own, device)]

    def with_device(self, name: str, numbers: Sequence[int], anyway: bool = False) -> Any:
        if len(numbers) < 10:
            raise DataError(f"{name}: {len(numbers)} frames; expected at least 10.")
        if name in self.model.devices and not anyway:
            raise DataError(f"{name}: is there already.")
        return Model((*self.model.devices, name))

    def exchange(self, model: Any) -> None:
        self.model = model

    def keep(self, decision: FoundFrame, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        iq, who = a_frame(rng), decision.who
        k = DEVICES.index(who.like) if who.like in DEVICES else 0
        away = 0.6 if who.device else 6.0
        near = self.model.means[k] + away * rng.normal(size=FEATURES) / np.sqrt(3)
        self.kept[decision.number] = replace(decision, iq=iq, embedding=near.astype(np.float32))


def a_frame(rng: np.random.Generator, antennas: int = ANTENNAS, samples: int = 1600) -> NDArray[np.complex64]:
    """Something like an OFDM frame: a band of 52 of 64 subcarriers, with noise before and in it."""
    carriers = np.zeros((samples // 80 + 1, 64), dtype=complex)
    used = np.r_[1:27, 38:64]
    carriers[:, used] = rng.choice([1 + 1j, 1 - 1j, -1 + 1j, -1 - 1j], size=(len(carriers), 52))
    body = np.fft.ifft(carriers, axis=1) * 4
    sent = np.concatenate([body[:, -16:], body], axis=1).ravel()[:samples]
    gains = rng.normal(size=(antennas, 1)) + 1j * rng.normal(size=(antennas, 1))
    noise = rng.normal(size=(antennas, samples)) + 1j * rng.normal(size=(antennas, samples))
    return (0.1 * (gains * sent + 0.05 * noise)).astype(np.complex64)


def a_hub(**changes: Any) -> Hub:
    return Hub(FakeListener(), Memory(), "zmq:tcp://radio:5555", **changes)


def an_app(hub: Hub | None = None, rules: Rules | None = None) -> Gate:
    return create_app(hub or a_hub(), rules or Rules())


class Air6:
    """Six known devices on the air, one that nobody knows, and, if asked, one with an address of another's."""

    def __init__(self, hub: Hub, alarmed: bool, seed: int = 7) -> None:
        self.hub, self.alarmed = hub, alarmed
        self.listener: FakeListener = hub.listener  # type: ignore[assignment]
        self.rng, self.number, self.alarms = np.random.default_rng(seed), 0, 0
        self.folder = Folder(hub.alarms, RATE_HZ, 2.437e9, 1 << 26) if hub.alarms else None

    def past(self, seconds: float) -> None:
        """What was heard before somebody looks."""
        end = time.time()
        for at in np.arange(end - seconds, end, 0.1):
            self.moment(float(at), float(end - at))
        if self.alarmed:
            self.alarm("unknown device", None, None, "0a:00:27:00:00:0c sounds like no device that is known; most like "
                       "door-7.", end - 240)  # fmt: skip
            self.alarm("receiver", None, None, "antenna 2 clips. Frames are distorted; lower the gain.", end - 95)
            self.alarm(
                "not its address", ADDRESSES[2], DEVICES[2], f"{ADDRESSES[2]} is the address of door-7, and does not "
                "sound like it (now: none that is known).", end - 12)  # fmt: skip

    def moment(self, at: float, ago: float = 0.0) -> None:
        rng = self.rng
        for k, often in enumerate((0.9, 0.5, 0.3, 0.4, 0.12, 0.05)):
            silent = k == 3 and 200 < ago < 420
            if rng.random() < often and not silent:
                taken = self.alarmed and k == 2 and ago < 40
                sure = float(np.clip(rng.beta(30, 1.5 + k), 0, 1))
                self.say(
                    at, device=None if taken else DEVICES[k], like=DEVICES[k], probability=sure * (1 - 0.5 * taken),
                    address=ADDRESSES[k], verdict="not the device" if taken else "genuine",
                    cfo_hz=self.cfo(9000.0 if taken else 2500 * (k - 2.3), ago),
                    snr_db=tuple((27 - 3 * k + rng.normal(size=4) + 2 * np.sin(ago / 60 + k)).tolist()),
                    kind=("beacon", "data", "data", "QoS data", "ack", "data")[k], rate_mbps=(6.0, 54.0, 24.0)[k % 3],
                )  # fmt: skip
        if rng.random() < 0.1 and ago < 260:
            self.say(
                at, device=None, like="door-7", probability=0.41, address="0a:00:27:00:00:0c", verdict=None,
                cfo_hz=self.cfo(14_000.0, ago), snr_db=tuple((11 + rng.normal(size=4)).tolist()), kind="probe request",
            )  # fmt: skip

    def cfo(self, middle_hz: float, ago: float) -> tuple[float, ...]:
        drift = 150 * np.sin(ago / 90 + middle_hz)
        return tuple((middle_hz + drift + 40 * self.rng.normal(size=4)).tolist())

    def say(self, at: float, **changes: Any) -> None:
        decision = a_decision(self.number, at, time_s=self.number / 20, **changes)
        if time.time() - at < 60:
            self.listener.keep(decision, self.number)
        while len(self.listener.kept) > 200:
            self.listener.kept.pop(next(iter(self.listener.kept)))
        self.hub.memory.hear(decision)
        self.number += 1
        self.listener.state = replace(
            self.listener.state, since=utc(time.time() - 86400 * 2.3), frames=4_211_000 + self.number,
            frames_per_s=23.4, samples=int(3.9e12) + 1_000_000 * self.number, missed=40_960 if self.alarmed else 0,
            breaks=1 if self.alarmed else 0, delay_ms=(8.3, 21.7), alarms=self.alarms, waiting_s=0.004,
            clipped=(2,) if self.alarmed else (),
        )  # fmt: skip

    def alarm(self, kind: str, address: str | None, device: str | None, text: str, at: float) -> None:
        number, name, frames = self.alarms, None, tuple(range(self.number - 6, self.number))
        if self.folder is not None:
            kept = [replace(a_decision(n, at), iq=self.listener.kept[n].iq) for n in frames]
            name = self.folder.write(number, text, kept)
        shown = () if kind == "receiver" else frames
        self.hub.memory.hear(Alarm(number, at, utc(at), kind, address, device, text, shown, name))
        self.alarms += 1


def main() -> None:
    from pisa_capc.live.serve.server import bound, serving, url_of

    what, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8642
    with tempfile.TemporaryDirectory() as folder:
        hub = a_hub(alarms=Path(folder))
        at = bound("127.0.0.1", port)
        with serving(an_app(hub), at):
            print(url_of(at), flush=True)
            air = Air6(hub, what == "alarmed")
            if what == "empty":
                air.listener.state = replace(QUIET, source="waiting", samples=0, rate_hz=0.0, since=utc(time.time()))
                while True:
                    time.sleep(1)
            air.past(600)
            while True:
                air.moment(time.time())
                time.sleep(0.1)


if __name__ == "__main__":
    main()
