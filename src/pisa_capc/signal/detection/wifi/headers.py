"""Whom detected frames claim to be from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pisa_capc.signal.detection.base import FoundFrame
from pisa_capc.signal.phy.wifi import receive


def with_headers(found: Sequence[FoundFrame], *, header_only: bool = False) -> list[FoundFrame]:
    """The same frames with what they say of themselves; header_only: no further than their addresses."""
    known = [one.front for one in found]
    headers = receive([one.iq for one in found], [one.cfo_hz for one in found], header_only=header_only, known=known)
    return [replace(one, header=header) for one, header in zip(found, headers, strict=True)]
