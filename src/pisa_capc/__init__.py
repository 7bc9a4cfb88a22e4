"""PISA-CAPC: cross-environment radio-frequency fingerprint identification.

Data flows left to right: store / simulate → Frames → protocol → training → calibration.
"""

from typing import TYPE_CHECKING, Any

from pisa_capc.frames import Frames, UnlabelledFrames
from pisa_capc.geometry import ArrayGeometry
from pisa_capc.simulate.generate import simulate
from pisa_capc.store.native import load

if TYPE_CHECKING:
    from pisa_capc.calibration import UCAPC

__version__ = "0.1.0"
__all__ = ["UCAPC", "ArrayGeometry", "Frames", "UnlabelledFrames", "load", "simulate"]

# What needs torch is imported when it is first asked for, so that `pisa --help` answers at once.
_LAZY = {"UCAPC": "pisa_capc.calibration"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
