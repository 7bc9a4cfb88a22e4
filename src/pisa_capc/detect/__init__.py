"""Where the frames are in a stream of samples, and whom they claim to be from."""

from pisa_capc.detect.base import Detection, Detector

__all__ = ["Detection", "Detector"]
