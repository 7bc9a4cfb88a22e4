"""Where the frames are in a stream of samples, and whom they claim to be from.

How the frames of a waveform of your own are found is a class under `@register_finder("name")`; without one they are
found by their preamble.
"""

from typing import Any

from pisa_capc.core.moved import by_old_name
from pisa_capc.signal.detection.base import Detector, FoundFrame, Identity
from pisa_capc.signal.detection.correlation import PreambleDetector
from pisa_capc.signal.detection.finders import FINDERS, Finder, register_finder
from pisa_capc.signal.detection.finding import Found, detect, finder_of
from pisa_capc.signal.detection.lora import LoraDetector
from pisa_capc.signal.detection.wifi import WifiDetector, with_headers

__all__ = [
    "FINDERS",
    "Detector",
    "Finder",
    "Found",
    "FoundFrame",
    "Identity",
    "LoraDetector",
    "PreambleDetector",
    "WifiDetector",
    "detect",
    "finder_of",
    "register_finder",
    "with_headers",
]


def __getattr__(name: str) -> Any:
    return by_old_name(__name__, {"Detection": "FoundFrame"}, name)
