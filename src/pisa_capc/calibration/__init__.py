"""Calibration: better decisions from a frozen classifier's embeddings and logits, without labels.

`UCAPC(...).calibrate(embedding, logits, capture)` is the paper's; `calibrators()` names it and its peers, all
with the same interface. `Safe()` is U-CAPC under a guard that was trained with the model. `OpenSet(UCAPC())` rejects
frames of unknown devices first. `FrozenCalibration` fits on one stream and applies to another; `OnlineCalibrator`
decides frames as they arrive and finds the captures itself.
"""

from pisa_capc.calibration.frozen import Applied, FrozenCalibration
from pisa_capc.calibration.grouping import Finder, GroupFinder, find_groups
from pisa_capc.calibration.online import Decisions, Online, OnlineCalibrator
from pisa_capc.calibration.openset import OpenSet, unknown_scores
from pisa_capc.calibration.peers import Calibrator, calibrator, calibrators
from pisa_capc.calibration.prior import PriorUCAPC
from pisa_capc.calibration.result import Calibration, CaptureSummary
from pisa_capc.calibration.safe import Safe
from pisa_capc.calibration.ucapc import PRESETS, UCAPC
from pisa_capc.inference.statistics import SourceStatistics

__all__ = [
    "PRESETS",
    "UCAPC",
    "Applied",
    "Calibration",
    "Calibrator",
    "CaptureSummary",
    "Decisions",
    "Finder",
    "FrozenCalibration",
    "GroupFinder",
    "Online",
    "OnlineCalibrator",
    "OpenSet",
    "PriorUCAPC",
    "Safe",
    "SourceStatistics",
    "calibrator",
    "calibrators",
    "find_groups",
    "unknown_scores",
]
