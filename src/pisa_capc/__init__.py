"""PISA-CAPC: cross-environment radio-frequency fingerprint identification.

Data flows left to right: store / simulate → Frames → protocol → training → calibration.
"""

from pisa_capc.frames import Frames, UnlabelledFrames
from pisa_capc.geometry import ArrayGeometry
from pisa_capc.simulate.generate import simulate
from pisa_capc.store.native import load

__version__ = "0.1.0"
__all__ = ["ArrayGeometry", "Frames", "UnlabelledFrames", "load", "simulate"]
