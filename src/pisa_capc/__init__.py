"""PISA-CAPC: cross-environment radio-frequency fingerprint identification.

Data flows left to right: store / simulate → Frames → protocol → training → inference → calibration → evaluation.
"""

from typing import TYPE_CHECKING, Any

from pisa_capc.core import moved, plugins, registry
from pisa_capc.core.revisions import PACKAGE as __version__

if TYPE_CHECKING:
    from pisa_capc.data.frames import Frames, UnlabelledFrames, load
    from pisa_capc.data.geometry import ArrayGeometry
    from pisa_capc.data.protocol import split
    from pisa_capc.decide.calibration import UCAPC
    from pisa_capc.model.inference import load_model
    from pisa_capc.model.inference.embedding import embed
    from pisa_capc.model.networks import PISA, Single
    from pisa_capc.model.training import Run, TrainingConfig
    from pisa_capc.model.training.fitting import fit
    from pisa_capc.signal.simulation.generate import simulate

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
    "ArrayGeometry": "pisa_capc.data.geometry",
    "Frames": "pisa_capc.data.frames",
    "UCAPC": "pisa_capc.decide.calibration",
    "PISA": "pisa_capc.model.networks",
    "Single": "pisa_capc.model.networks",
    "Run": "pisa_capc.model.training",
    "TrainingConfig": "pisa_capc.model.training",
    "UnlabelledFrames": "pisa_capc.data.frames",
    "embed": "pisa_capc.model.inference",
    "fit": "pisa_capc.model.training",
    "load": "pisa_capc.data.frames",
    "load_model": "pisa_capc.model.inference",
    "simulate": "pisa_capc.signal.simulation.generate",
    "split": "pisa_capc.data.protocol",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in moved.MOVED:
        moved.warn_of(f"{__name__}.{name}", f"{__name__}.{moved.MOVED[name]}")
        return import_module(f"{__name__}.{moved.MOVED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


moved.find_old_names()
registry.search_with(plugins.load)  # last: what is imported above asks for no plugin
