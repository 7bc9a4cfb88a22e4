"""Where the frames are in a stream of samples, and whom they claim to be from."""

from pisa_capc.detect.base import Detection, Detector
from pisa_capc.detect.finding import Found, FoundFrame, detect
from pisa_capc.detect.lora import LoraDetector
from pisa_capc.detect.wifi import WifiDetector, with_headers

__all__ = ["Detection", "Detector", "Found", "FoundFrame", "LoraDetector", "WifiDetector", "detect", "with_headers"]
