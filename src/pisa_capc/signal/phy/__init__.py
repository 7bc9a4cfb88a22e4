"""Bits to samples and back: headers of frames."""

from pisa_capc.signal.phy.base import Header

__all__ = ["Header"]
