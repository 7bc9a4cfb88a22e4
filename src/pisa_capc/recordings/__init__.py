"""Raw I/Q as receivers write it: read in blocks, whatever its size."""

from pisa_capc.recordings.base import Recording

__all__ = ["Recording"]
