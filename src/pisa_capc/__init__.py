"""PISA-CAPC: cross-environment radio-frequency fingerprint identification.

Data flows left to right: store / simulate → Frames → protocol → training → inference → calibration → evaluation.
"""

from typing import TYPE_CHECKING, Any

import pisa_capc.simulate  # noqa: F401  (at once: imported later, the room would take the place of the function)
from pisa_capc import plugins, registry
from pisa_capc.revisions import PACKAGE as __version__

if TYPE_CHECKING:
    from pisa_capc.calibration import UCAPC
    from pisa_capc.frames import Frames, UnlabelledFrames, load
    from pisa_capc.geometry import ArrayGeometry
    from pisa_capc.inference import load_model
    from pisa_capc.inference.embed import embed
    from pisa_capc.model import PISA, Single
    from pisa_capc.protocol import split
    from pisa_capc.simulate.generate import simulate
    from pisa_capc.training import Run, TrainingConfig
    from pisa_capc.training.fit import fit

__all__ = [
    "PISA",
    "UCAPC",
    "ArrayGeometry",
    "Frames",
    "Run",
    "Single",
    "TrainingConfig",
    "UnlabelledFrames",
    "__version__",
    "embed",
    "fit",
    "load",
    "load_model",
    "simulate",
    "split",
]

# Imported when it is first asked for, so that `pisa --help` answers at once.
_LAZY = {
    "ArrayGeometry": "pisa_capc.geometry",
    "Frames": "pisa_capc.frames",
    "UCAPC": "pisa_capc.calibration",
    "PISA": "pisa_capc.model",
    "Single": "pisa_capc.model",
    "Run": "pisa_capc.training",
    "TrainingConfig": "pisa_capc.training",
    "UnlabelledFrames": "pisa_capc.frames",
    "embed": "pisa_capc.inference",
    "fit": "pisa_capc.training",
    "load": "pisa_capc.frames",
    "load_model": "pisa_capc.inference",
    "simulate": "pisa_capc.simulate.generate",
    "split": "pisa_capc.protocol",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


globals().pop("simulate")  # the room, whose name is asked for as that of the function
registry.search_with(plugins.load)  # last: what is imported above asks for no plugin
