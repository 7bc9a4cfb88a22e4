"""What a receiver reads from a frame."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Header:
    """The header of a frame, as far as it could be decoded; None: unknown.

    kind: as "data", "beacon", "ack"; where no more is known the format, as "non-ht", "ht-mixed", "vht".
    length: octets of the PSDU.
    transmitter, receiver: addresses.
    fcs: whether its checksum is right; None where it was not seen whole.
    """

    kind: str | None = None
    rate_mbps: float | None = None
    length: int | None = None
    transmitter: str | None = None
    receiver: str | None = None
    fcs: bool | None = None
