"""Calibration: better decisions from a frozen classifier's embeddings and logits, without labels.

`UCAPC(...).calibrate(embedding, logits, capture)` is the paper's; `calibrators()` names it and its peers, all
with the same interface. `OpenSet(UCAPC())` rejects frames of unknown devices first.
"""

from pisa_capc.calibration.openset import OpenSet, unknown_scores
from pisa_capc.calibration.peers import Calibrator, calibrator, calibrators
from pisa_capc.calibration.result import Calibration, CaptureSummary
from pisa_capc.calibration.source import SourceStatistics
from pisa_capc.calibration.ucapc import PRESETS, UCAPC

__all__ = [
    "PRESETS",
    "UCAPC",
    "Calibration",
    "Calibrator",
    "CaptureSummary",
    "OpenSet",
    "SourceStatistics",
    "calibrator",
    "calibrators",
    "unknown_scores",
]
