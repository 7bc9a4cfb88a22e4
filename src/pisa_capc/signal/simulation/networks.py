"""What devices say to each other: exchanges of frames with addresses, one network per waveform.

A network knows its rates, the address of a device, the messages of one exchange, and the samples of each. `traffic`
decides when exchanges happen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.registry import Registry
from pisa_capc.signal.phy import adsb, ble, ieee802154, lora, wifi
from pisa_capc.signal.phy.lora import lorawan
from pisa_capc.signal.phy.lora.coding import HEADER_SYMBOLS, ExplicitHeader
from pisa_capc.signal.phy.lora.modulation import DOWNCHIRPS, SPREADING_FACTORS, SYNC_SYMBOLS, Modulation
from pisa_capc.signal.phy.wifi import mac
from pisa_capc.signal.phy.wifi.coding import HT, LEGACY
from pisa_capc.signal.waveforms.adsb import SAMPLES as SQUITTER_SAMPLES
from pisa_capc.signal.waveforms.ble import CHANNELS, HEADER_OCTETS
from pisa_capc.signal.waveforms.ble import frame_samples as packet_samples
from pisa_capc.signal.waveforms.ieee802154 import frame_samples
from pisa_capc.signal.waveforms.wifi import PREAMBLE_SAMPLES, SYMBOL_SAMPLES


@dataclass(frozen=True)
class Station:
    """Who sends, and the address that it says is its own."""

    device: str
    address: str


@dataclass(frozen=True)
class Message:
    """One frame as its sender makes it.

    transmitter: as it stands in the frame; None in frames that name none. rate: as the network counts it.
    samples: how long it lasts. wait_samples: silence between the message before and this one.
    """

    device: str
    kind: str
    transmitter: str | None
    receiver: str | None
    rate: float
    octets: bytes
    samples: int
    scrambler: int = 1
    wait_samples: int = 0


class Network:
    """rates: all available rates. usual: those used by default. rate_name: their name in annotations.

    pause_samples: the shortest silence between exchanges.
    """

    rates: ClassVar[tuple[float, ...]]
    usual: ClassVar[tuple[float, ...]]
    rate_name: ClassVar[str]
    pause_samples: ClassVar[int]

    def address(self, device: str) -> str:
        """What a device is called in frames."""
        raise NotImplementedError

    def exchange(
        self, rng: np.random.Generator, sender: Station, others: Sequence[str], rates: Sequence[float], answered: bool
    ) -> list[Message]:
        """The messages of `sender` and of another device that answers, in order; without answers if not `answered`."""
        raise NotImplementedError

    def waveform(self, message: Message) -> NDArray[np.complex128]:
        """(T,) the whole frame, as strong as in `Waveform.frames`."""
        raise NotImplementedError


NETWORKS: Registry[Network] = Registry("network")
N = TypeVar("N", bound=type[Network])


def register_network(waveform: str) -> Callable[[N], N]:
    """Make known what devices with this waveform say to each other, so that scenes with it can be recorded."""

    def add(cls: N) -> N:
        NETWORKS.add(waveform, cls())
        return cls

    return add


@register_network("wifi")
class WiFiNetwork(Network):
    """Stations of an ad hoc network: QoS data with its ACK, some of it behind RTS and CTS, and beacons.

    Rates are in Mb/s; those that only HT has (6.5, 13, …) make HT-mixed frames. Answers go out after a SIFS at the
    highest mandatory rate that is not above the data's (IEEE Std 802.11-2020, 10.6.6.5).
    """

    legacy: ClassVar = {coding.rate_mbps: coding for coding in LEGACY.values()}
    ht: ClassVar = {coding.rate_mbps: mcs for mcs, coding in enumerate(HT)}
    rates = (*legacy, *ht)
    usual = tuple(legacy)
    rate_name = "rate_mbps"
    pause_samples = 680  # a DIFS, 34 µs
    sifs_samples = 320
    mandatory_mbps = (6.0, 12.0, 24.0)
    beacons, guarded = 0.1, 0.15  # parts of the exchanges
    bodies = (20, 1400)  # octets
    nobody = "02:00:00:00:00:00"  # receiver where there is no other device
    name = "pisa"

    def address(self, device: str) -> str:
        """A locally administered address: 02 and five octets of the name's hash."""
        return "02:" + hashlib.sha256(device.encode()).digest()[:5].hex(":")

    def exchange(
        self, rng: np.random.Generator, sender: Station, others: Sequence[str], rates: Sequence[float], answered: bool
    ) -> list[Message]:
        draw = rng.random()
        if draw < self.beacons:
            octets = mac.beacon(sender.address, self.name, sequence=int(rng.integers(4096)))
            return [self._message(rng, sender.device, "beacon", sender.address, mac.BROADCAST, 6.0, octets)]
        peer = others[int(rng.integers(len(others)))] if others else None
        to = self.nobody if peer is None else self.address(peer)
        rate = float(rates[int(rng.integers(len(rates)))])
        answer = max(r for r in self.mandatory_mbps if r <= max(rate, self.mandatory_mbps[0]))
        data = self._data(rng, sender, to, rate)
        if peer is None or not answered:
            return [data]
        waited = self.sifs_samples
        ack = self._message(rng, peer, "ack", None, sender.address, answer, mac.ack(sender.address), waited)
        if draw >= self.beacons + self.guarded:
            return [data, ack]
        rts = mac.rts(to, sender.address)
        return [
            self._message(rng, sender.device, "rts", sender.address, to, answer, rts),
            self._message(rng, peer, "cts", None, sender.address, answer, mac.cts(sender.address), waited),
            self._data(rng, sender, to, rate, waited),
            ack,
        ]

    def _data(self, rng: np.random.Generator, sender: Station, to: str, rate: float, waited: int = 0) -> Message:
        body = rng.bytes(int(rng.integers(*self.bodies)))
        octets = mac.data(to, sender.address, self.nobody, body, tid=0, sequence=int(rng.integers(4096)))
        return self._message(rng, sender.device, "qos-data", sender.address, to, rate, octets, waited)

    def _message(
        self,
        rng: np.random.Generator,
        device: str,
        kind: str,
        transmitter: str | None,
        receiver: str,
        rate: float,
        octets: bytes,
        waited: int = 0,
    ) -> Message:
        scrambler = int(rng.integers(1, 128))
        return Message(
            device, kind, transmitter, receiver, rate, octets, self._samples(rate, len(octets)), scrambler, waited
        )

    def _samples(self, rate: float, octets: int) -> int:
        """Preamble, L-SIG, what HT adds before its data (four symbols), and the data."""
        if rate in self.legacy:
            symbols = 1 + self.legacy[rate].symbols(octets)
        else:
            symbols = 1 + 4 + HT[self.ht[rate]].symbols(octets)
        return PREAMBLE_SAMPLES + SYMBOL_SAMPLES * symbols

    def waveform(self, message: Message) -> NDArray[np.complex128]:
        if message.rate in self.legacy:
            return wifi.transmit(message.octets, message.rate, message.scrambler)
        return wifi.transmit_ht(message.octets, self.ht[message.rate], message.scrambler)


@register_network("lora")
class LoRaNetwork(Network):
    """End devices that report to a gateway: unanswered LoRaWAN uplinks. Rates are spreading factors."""

    rates = tuple(map(float, SPREADING_FACTORS))
    usual = (7.0,)
    rate_name = "spreading_factor"
    pause_samples = 10_000  # 10 ms
    bodies = (4, 40)  # octets
    coding_rate = 1  # 4/5
    upchirps = 8

    def address(self, device: str) -> str:
        """A DevAddr of the network 0, which is everybody's to try things in: 25 bits of the name's hash."""
        return f"{int.from_bytes(hashlib.sha256(device.encode()).digest()[:4], 'big') % 2**25:08x}"

    def exchange(
        self, rng: np.random.Generator, sender: Station, others: Sequence[str], rates: Sequence[float], answered: bool
    ) -> list[Message]:
        rate = float(rates[int(rng.integers(len(rates)))])
        body, counter = rng.bytes(int(rng.integers(*self.bodies))), int(rng.integers(2**16))
        octets = lorawan.data_frame(int(sender.address, 16), counter, body, mic=rng.bytes(4))
        samples = self._samples(int(rate), len(octets))
        return [Message(sender.device, "unconfirmed-up", sender.address, None, rate, octets, samples)]

    def _samples(self, spreading_factor: int, octets: int) -> int:
        modulation = Modulation(spreading_factor)
        payload = ExplicitHeader(octets, self.coding_rate, crc=True).payload_symbols(modulation)
        symbols = self.upchirps + SYNC_SYMBOLS + DOWNCHIRPS + HEADER_SYMBOLS + payload
        return round(symbols * modulation.symbol_samples)

    def waveform(self, message: Message) -> NDArray[np.complex128]:
        return lora.transmit(
            message.octets,
            int(message.rate),
            self.coding_rate,
            sync_word=lorawan.SYNC_WORD,
            preamble=self.upchirps,
        )


@register_network("adsb")
class ADSBNetwork(Network):
    """Aircraft that squitter: identification, positions and velocities, with random content. Nothing is answered."""

    rates = usual = (adsb.RATE_MBPS,)
    rate_name = "rate_mbps"
    pause_samples = 300  # 120 µs
    types = (4, 11, 19)  # type codes

    def address(self, device: str) -> str:
        """An address of a block that no state has, f00000 and up (Annex 10, volume III, 9, table 9-1)."""
        return f"f{hashlib.sha256(device.encode()).hexdigest()[:5]}"

    def exchange(
        self, rng: np.random.Generator, sender: Station, others: Sequence[str], rates: Sequence[float], answered: bool
    ) -> list[Message]:
        code = self.types[int(rng.integers(len(self.types)))]
        content = int.from_bytes(rng.bytes(7), "big") >> 5 | code << 51
        octets = adsb.squitter(sender.address, content.to_bytes(7, "big"))
        kind = adsb.KINDS[code]
        return [Message(sender.device, kind, sender.address, None, rates[0], octets, SQUITTER_SAMPLES)]

    def waveform(self, message: Message) -> NDArray[np.complex128]:
        return adsb.transmit(message.octets)


@register_network("ieee802154")
class IEEE802154Network(Network):
    """Devices of one PAN with short addresses: data to each other, acknowledged after 192 µs."""

    rates = usual = (ieee802154.RATE_MBPS,)
    rate_name = "rate_mbps"
    pause_samples = 2560  # 640 µs, the long spacing between frames
    turnaround_samples = 768
    bodies = (4, 60)  # octets
    pan = "1a62"

    def address(self, device: str) -> str:
        """A short address by the name's hash; the highest, which have meanings of their own, are left out."""
        return f"{self.pan}:{int.from_bytes(hashlib.sha256(device.encode()).digest()[:2], 'big') % 0xFFF0:04x}"

    def exchange(
        self, rng: np.random.Generator, sender: Station, others: Sequence[str], rates: Sequence[float], answered: bool
    ) -> list[Message]:
        peer = others[int(rng.integers(len(others)))] if others else None
        to = f"{self.pan}:ffff" if peer is None else self.address(peer)
        sequence, body = int(rng.integers(256)), rng.bytes(int(rng.integers(*self.bodies)))
        octets = ieee802154.data_frame(sender.address, to, sequence, body, acknowledge=peer is not None)
        data = Message(sender.device, "data", sender.address, to, rates[0], octets, frame_samples(len(octets)))
        if peer is None or not answered:
            return [data]
        octets, waited = ieee802154.acknowledgment(sequence), self.turnaround_samples
        samples = frame_samples(len(octets))
        return [data, Message(peer, "ack", None, None, rates[0], octets, samples, wait_samples=waited)]

    def waveform(self, message: Message) -> NDArray[np.complex128]:
        return ieee802154.transmit(message.octets)


@register_network("ble")
class BLENetwork(Network):
    """Beacons with random static addresses, which nothing answers. Rates are channels, which whiten by their number."""

    rates = tuple(map(float, CHANNELS))
    usual = (37.0,)
    rate_name = "channel"
    pause_samples = 1200  # 150 µs
    bodies = (3, 31)  # octets

    def address(self, device: str) -> str:
        """A random static address, which begins with two ones, by the name's hash."""
        octets = hashlib.sha256(device.encode()).digest()[:6]
        return bytes([octets[0] | 0xC0, *octets[1:]]).hex(":")

    def exchange(
        self, rng: np.random.Generator, sender: Station, others: Sequence[str], rates: Sequence[float], answered: bool
    ) -> list[Message]:
        rate = float(rates[int(rng.integers(len(rates)))])
        octets = ble.advertisement(sender.address, rng.bytes(int(rng.integers(*self.bodies))))
        samples = packet_samples(len(octets) - HEADER_OCTETS)
        return [Message(sender.device, "adv-nonconn-ind", sender.address, None, rate, octets, samples)]

    def waveform(self, message: Message) -> NDArray[np.complex128]:
        return ble.transmit(message.octets, int(message.rate))
