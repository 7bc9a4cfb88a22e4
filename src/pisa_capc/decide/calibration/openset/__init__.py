"""Unknown devices: how little a frame resembles the source, and what to do with one that resembles it too little.

`OpenSet(UCAPC(), "session").calibrate(embedding, logits, capture, source)` rejects first and calibrates the rest.
"""

from pisa_capc.decide.calibration.openset.names import DEFAULT, unknown_score, unknown_scores
from pisa_capc.decide.calibration.openset.reject import OpenSet, Rejection
from pisa_capc.decide.calibration.openset.scores import UnknownScore, register_rejection, score_frames, score_senders
from pisa_capc.decide.calibration.openset.thresholds import FalseAcceptance, conformal_threshold, false_accept_threshold

__all__ = [
    "DEFAULT",
    "FalseAcceptance",
    "OpenSet",
    "Rejection",
    "UnknownScore",
    "conformal_threshold",
    "false_accept_threshold",
    "register_rejection",
    "score_frames",
    "score_senders",
    "unknown_score",
    "unknown_scores",
]
