"""Bits to samples and back: what a frame says of itself."""

from pisa_capc.signal.phy.base import Header

__all__ = ["Header"]
