"""Bluetooth LE advertising in a stream, by preamble and access address; PDUs with addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.detection.base import Detector, FoundFrame
from pisa_capc.signal.detection.finders import Finder, register_finder
from pisa_capc.signal.detection.lagged import LaggedDetector
from pisa_capc.signal.phy.ble import rebuild, receive
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms.ble import BLE, PER_BIT


@register_finder("ble")
class BLEFinder(Finder):
    def detector(
        self, about: About, encoding: Encoding | None = None, first: int = 0, end: int | None = None
    ) -> Detector:
        return LaggedDetector(BLE(), about.antennas, PER_BIT, about.carrier_hz, explained=0.65)

    def with_headers(self, found: Sequence[FoundFrame], addresses_only: bool = False) -> list[FoundFrame]:
        """The frames, each up to the end that it says."""
        done = []
        for one in found:
            header, samples = receive(one.iq, one.cfo_hz)
            done.append(replace(one, header=header, samples=samples, iq=one.iq[:, : samples or one.iq.shape[1]]))
        return done

    def sent(self, found: Sequence[FoundFrame], about: About) -> list[NDArray[np.complex128] | None]:
        return [rebuild(one.iq, one.cfo_hz) for one in found]
