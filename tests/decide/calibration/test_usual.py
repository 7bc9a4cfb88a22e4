"""What is used where nobody asks for another calibration or score follows from what is known of the source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pisa_capc.decide.calibration import UCAPC, Careful, Safe, SourceStatistics, usual
from pisa_capc.decide.calibration.openset import usual_score


def test_the_guard_comes_first_then_careful_then_no_prior() -> None:
    known = SourceStatistics(class_mean=np.eye(3), covariance=np.eye(3), weight=np.eye(3))
    assert isinstance(usual(replace(known, guard=np.zeros(3))), Safe)
    assert isinstance(usual(known), Careful)
    for lacking in ("class_mean", "covariance", "weight"):
        assert usual(replace(known, **{lacking: None})) == UCAPC(prior="none")


def test_models_that_keep_no_sessions_set_strangers_aside_by_their_neighbours() -> None:
    assert usual_score(SourceStatistics(session_mean=np.eye(3))) == "session"
    assert usual_score(SourceStatistics()) == "knn"
