"""Recordings of a few senders, and a detector that needs no waveform."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.phy import Header
from pisa_capc.signal.phy.wifi import mac, transmit
from tests.signal.detection.air import Air

AP, PHONE = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
STARTS = (1000, 6000, 9000, 14_000)
CFO_HZ = (-34_000.0, 21_000.0, -34_000.0, -34_000.0)


def conversation(antennas: int = 2, length: int = 20_000, snr_db: float = 25.0) -> NDArray[np.complex64]:
    """(A, n) the access point, the phone, an acknowledgement without a sender, the access point, at STARTS."""
    air = Air(antennas, length)
    said = [mac.data(PHONE, AP, AP, b"hello" * 8), mac.data(AP, PHONE, AP, b"hi" * 9), mac.ack(PHONE)]
    said.append(mac.data(PHONE, AP, AP, b"bye" * 11))
    for psdu, start, cfo_hz, rate in zip(said, STARTS, CFO_HZ, (6, 24, 6, 12), strict=True):
        air.add(transmit(psdu, rate, 0x5D), start, snr_db, cfo_hz)
    return air.iq


class Marks:
    """Finds samples of ten, as frames of `samples` samples whose CFO is their place: results known without a radio."""

    def __init__(self, samples: int = 40, header: Header | None = None) -> None:
        self._before, self._samples, self._header = 0, samples, header or Header()

    def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
        antennas = len(block)
        found = []
        for place in np.flatnonzero(np.abs(block[0]) > 9).tolist():
            start = self._before + place
            cfo_hz = np.full(antennas, float(start))
            found.append(FoundFrame(start, block[:, :0], cfo_hz, np.zeros(antennas), 0.9, self._samples, self._header))
        self._before += block.shape[1]
        return found

    def finish(self) -> list[FoundFrame]:
        return []


def marked(starts: tuple[int, ...], antennas: int = 2, length: int = 3000) -> NDArray[np.complex64]:
    """Noise with a mark at each start."""
    rng = np.random.default_rng(3)
    x = rng.normal(scale=0.1, size=(antennas, length, 2)).astype(np.float32).view(np.complex64)[..., 0]
    x[:, list(starts)] = 10
    return x


def claiming(header: Header, transmitter: str | None, fcs: bool | None = True) -> Header:
    return replace(header, transmitter=transmitter, fcs=fcs)
