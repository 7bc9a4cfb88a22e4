"""Recordings played from the frames of a small problem, in which frames are found where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from studies.identify import found_by_truth

from pisa_capc.data.geometry import linear
from pisa_capc.signal.detection import Found
from tests.problems import ANTENNAS, SAMPLES, tones
from tests.signal.recordings.tools import InMemory

SPACING = 2000  # samples from one frame to the next
RATE_HZ = 20e6


def played(sent: Sequence[tuple[int, str | None]], offset_hz: float = 20e3) -> tuple[InMemory, list[dict[str, Any]]]:
    """A recording in E1 in which numbered devices of `tests.problems` send under addresses, and what is true of it."""
    supply = {d: iter(tones(d, 0, len(sent))) for d in {device for device, _ in sent}}
    stream = np.zeros((ANTENNAS, SPACING * (len(sent) + 1)), dtype=np.complex64)
    notes = []
    for i, (device, address) in enumerate(sent):
        start, cfo_hz = SPACING * i + 100, offset_hz * device
        turn = np.exp(2j * np.pi * cfo_hz * np.arange(SAMPLES) / RATE_HZ)
        stream[:, start : start + SAMPLES] = next(supply[device]) * turn
        notes.append(
            {
                "core:sample_start": start,
                "core:sample_count": SAMPLES,
                "pisa:address": address,
                "pisa:cfo_hz": [cfo_hz] * ANTENNAS,
                "pisa:snr_db": [20.0] * ANTENNAS,
            }
        )
    recording = InMemory(stream, RATE_HZ)
    recording.about = replace(recording.about, name="played", carrier_hz=5.825e9, geometry=linear(ANTENNAS))
    return recording, notes


def found_in(sent: Sequence[tuple[int, str | None]], offset_hz: float = 20e3) -> Found:
    """The frames of a played recording, where they are."""
    return found_by_truth(*played(sent, offset_hz))
