"""One found frame, from the detector that finds it to the page that shows it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.brief import brief
from pisa_capc.signal.phy import Header
from pisa_capc.signal.phy.wifi import Front

NO_IQ = np.empty((0, 0), dtype=np.complex64)


@dataclass(frozen=True)
class Identity:
    """Who a model takes the sender of a frame to be.

    device: None for one that the model does not know. like: the device it is most like all the same. probability: of
    that one among the known. unknown_score: how little the frame resembles the source, where that was asked. reason:
    measurements of the frame beside what the device has, where the model measures. p_value: chance that a frame of a
    known device looks at least as unknown. evidence: log10 of how much likelier the frame is from `like` than from any
    other device. fit: chance that a frame which begins with the model's waveform leaves as much unexplained; below
    .01 (one clean frame in a hundred) its measurements are not to be trusted, see `signal.measurement.fit`.
    """

    device: str | None
    like: str
    probability: float
    unknown_score: float | None = None
    reason: str | None = None
    p_value: float | None = None
    evidence: float | None = None
    fit: float | None = None


@dataclass(frozen=True, eq=False)
class FoundFrame:
    """One frame. Each step on its way adds what it knows, and renames nothing.

    The detector:
    at: its first preamble sample at the waveform's rate, counted from where the detector began. iq: (A, T) samples from
    there on, as received; (0, 0) where they are not kept with it. cfo_hz, snr_db: (A,) of each antenna, NaN for a dead
    one. quality: 0 … 1, how much of the preamble's energy the known preamble explains. samples: of the whole frame,
    where its header says it. header: its decoded header. front: the samples of a Wi-Fi frame that were read for it.
    turn_hz: how much faster its samples turn than its carrier does: a chirp that begins between two samples.
    bandwidth_hz: of a burst, which no waveform says. channel, channel_hz: number and centre of the channel that it is
    in, of a band with several; cfo_hz is relative to that centre.

    Where it was found:
    source: the recording's name. start, end: its first sample in the recording or stream and the one after its last, as
    far as it was received. time_s: of the first.

    The model that decides:
    identity: who sent it. embedding: (D,), before the calibration, and its error (D, D), while the listener keeps it.

    The listener:
    number: increasing, never given twice, restarts included; −1 before. utc: of its first sample, ISO 8601. verdict: on
    the claim of its address, so far; None where no device is enrolled with it.
    """

    at: int
    iq: NDArray[np.complex64]
    cfo_hz: NDArray[np.float64]
    snr_db: NDArray[np.float64]
    quality: float
    samples: int | None = None
    header: Header = field(default_factory=Header)
    front: Front | None = None
    turn_hz: float = 0.0
    bandwidth_hz: float | None = None
    channel: int | None = None
    channel_hz: float | None = None

    source: str = ""
    start: int = 0
    end: int = 0
    time_s: float = 0.0

    identity: Identity | None = None
    embedding: NDArray[np.float32] | None = None
    error: NDArray[np.float32] | None = None

    number: int = -1
    utc: str = ""
    verdict: str | None = None

    __repr__ = brief

    @property
    def claimed(self) -> str | None:
        """The address of the transmitter; a header with a wrong checksum claims nothing."""
        return None if self.header.fcs is False else self.header.transmitter

    @property
    def who(self) -> Identity:
        """Its identity, where a model has decided."""
        assert self.identity is not None
        return self.identity

    def to_json(self) -> dict[str, Any]:
        """As `pisa detect` prints it; a frame that a listener has numbered is its event `decision`."""
        return self._row() if self.number < 0 else self._event()

    def _row(self) -> dict[str, Any]:
        header = self.header
        return {
            "recording": self.source,
            "start": self.start,
            "time_s": self.time_s,
            "cfo_hz": _numbers(self.cfo_hz),
            "snr_db": _numbers(self.snr_db),
            "quality": self.quality,
            "rate_mbps": header.rate_mbps,
            "length": header.length,
            "kind": header.kind,
            "transmitter": header.transmitter,
            "receiver": header.receiver,
            "fcs": header.fcs,
        } | self._measured()

    def _event(self) -> dict[str, Any]:
        header, identity = self.header, self.who
        return {
            "event": "decision",
            "number": self.number,
            "time_s": self.time_s,
            "at": self.utc,
            "start": self.start,
            "device": identity.device,
            "like": identity.like,
            "probability": _number(identity.probability),
            "address": self.claimed,
            "receiver": None if header.fcs is False else header.receiver,
            "kind": header.kind,
            "rate_mbps": header.rate_mbps,
            "cfo_hz": _numbers(self.cfo_hz),
            "snr_db": _numbers(self.snr_db),
            "quality": _number(self.quality),
            "verdict": self.verdict,
        } | self._measured()

    def _measured(self) -> dict[str, Any]:
        """What only bursts have."""
        if self.bandwidth_hz is None:
            return {}
        channel = {} if self.channel_hz is None else {"channel_hz": self.channel_hz}
        return {"samples": self.samples, "bandwidth_hz": self.bandwidth_hz, **channel}


def _number(value: float) -> float | None:
    """JSON has no word for numbers that are not finite."""
    return value if math.isfinite(value) else None


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [_number(value) for value in values.tolist()]


class Detector(Protocol):
    """Finds frames in a stream of samples, whatever the blocks it comes in."""

    def wanted(self, received: int) -> int:
        """Further samples that it would best be given at once, after so many of a stream."""
        ...

    def push(self, block: NDArray[Any]) -> list[FoundFrame]:
        """The frames that are complete with these (A, n) further samples; bytes, of a detector that takes them."""
        ...

    def finish(self) -> list[FoundFrame]:
        """Frames that the end of the stream cuts off, from their complete preamble on."""
        ...
