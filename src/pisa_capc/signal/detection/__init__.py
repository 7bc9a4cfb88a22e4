"""Where the frames are in a stream of samples, and whom they claim to be from."""

from pisa_capc.signal.detection.base import Detection, Detector
from pisa_capc.signal.detection.finding import Found, FoundFrame, detect
from pisa_capc.signal.detection.lora import LoraDetector
from pisa_capc.signal.detection.wifi import WifiDetector, with_headers

__all__ = ["Detection", "Detector", "Found", "FoundFrame", "LoraDetector", "WifiDetector", "detect", "with_headers"]
