"""Calibration: better decisions from a frozen classifier's embeddings and logits, without labels.

`UCAPC(...).calibrate(embedding, logits, capture)` is the paper's; `calibrators()` names it and its peers, all
with the same interface, `Calibrator`, and `register_calibration` adds one (see `base`). `Careful()` looks at each
capture first. `usual` is the default calibration. `OpenSet(UCAPC())` rejects frames of unknown devices first.
`UCAPC().fit` keeps what one stream teaches for another, as a `FrozenCalibration`; `OnlineCalibrator` decides frames as
they arrive and finds the captures itself.
"""

from typing import Any

from pisa_capc.core.moved import by_old_name, renamed
from pisa_capc.decide.calibration.base import CALIBRATIONS, Calibrator, calibrator, calibrators, register_calibration
from pisa_capc.decide.calibration.careful import Careful
from pisa_capc.decide.calibration.frozen import Applied, FrozenCalibration
from pisa_capc.decide.calibration.grouping import GroupFinder, GroupSettings, find_groups
from pisa_capc.decide.calibration.learning import Decisions
from pisa_capc.decide.calibration.online import Online, OnlineCalibrator
from pisa_capc.decide.calibration.openset import OpenSet, unknown_scores
from pisa_capc.decide.calibration.peers import Peer, Transduced
from pisa_capc.decide.calibration.policy import Usual, usual
from pisa_capc.decide.calibration.prior import PriorUCAPC
from pisa_capc.decide.calibration.result import Calibration, CaptureSummary
from pisa_capc.decide.calibration.ucapc import PRESETS, UCAPC
from pisa_capc.model.inference.statistics import SourceStatistics

__all__ = [
    "CALIBRATIONS",
    "PRESETS",
    "UCAPC",
    "Applied",
    "Calibration",
    "Calibrator",
    "CaptureSummary",
    "Careful",
    "Decisions",
    "FrozenCalibration",
    "GroupFinder",
    "GroupSettings",
    "Online",
    "OnlineCalibrator",
    "OpenSet",
    "Peer",
    "PriorUCAPC",
    "SourceStatistics",
    "Transduced",
    "Usual",
    "calibrator",
    "calibrators",
    "find_groups",
    "register_calibration",
    "unknown_scores",
    "usual",
]

register = renamed(__name__, "register", register_calibration)


def __getattr__(name: str) -> Any:
    return by_old_name(__name__, {"Finder": "GroupSettings"}, name)
