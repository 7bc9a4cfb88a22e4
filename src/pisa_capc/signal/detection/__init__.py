"""Where the frames are in a stream of samples, and whom they claim to be from."""

from typing import Any

from pisa_capc.core.moved import by_old_name
from pisa_capc.signal.detection.base import Detector, FoundFrame, Identity
from pisa_capc.signal.detection.finding import Found, detect
from pisa_capc.signal.detection.lora import LoraDetector
from pisa_capc.signal.detection.wifi import WifiDetector, with_headers

__all__ = ["Detector", "Found", "FoundFrame", "Identity", "LoraDetector", "WifiDetector", "detect", "with_headers"]


def __getattr__(name: str) -> Any:
    return by_old_name(__name__, {"Detection": "FoundFrame"}, name)
