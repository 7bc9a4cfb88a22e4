"""Calibration: better decisions from a frozen classifier's embeddings and logits, without labels.

`UCAPC(...).calibrate(embedding, logits, capture)` is the paper's; `calibrators()` names it and its peers, all
with the same interface.
"""

from pisa_capc.calibration.frozen import Applied, FrozenCalibration
from pisa_capc.calibration.peers import Calibrator, calibrator, calibrators
from pisa_capc.calibration.result import Calibration, CaptureSummary
from pisa_capc.calibration.source import SourceStatistics
from pisa_capc.calibration.ucapc import PRESETS, UCAPC

__all__ = [
    "PRESETS",
    "UCAPC",
    "Applied",
    "Calibration",
    "Calibrator",
    "CaptureSummary",
    "FrozenCalibration",
    "SourceStatistics",
    "calibrator",
    "calibrators",
]
