"""802.11 frames in a stream: a fast screen for the L-STF, then the whole preamble where the screen says so."""

from pisa_capc.detect.wifi.detector import WifiDetector

__all__ = ["WifiDetector"]
