"""What is used where nobody asks for another calibration or score follows from what is known of the source."""

from __future__ import annotations

import numpy as np

from pisa_capc.calibration import UCAPC, Careful, Safe, SourceStatistics, usual
from pisa_capc.calibration.openset import usual_score


def test_the_guard_comes_first_then_careful_then_no_prior() -> None:
    means, guard = np.eye(3), np.zeros(3)
    assert isinstance(usual(SourceStatistics(class_mean=means, guard=guard)), Safe)
    assert isinstance(usual(SourceStatistics(class_mean=means)), Careful)
    assert usual(SourceStatistics()) == UCAPC(prior="none")


def test_models_that_keep_no_sessions_set_strangers_aside_by_their_neighbours() -> None:
    assert usual_score(SourceStatistics(session_mean=np.eye(3))) == "session"
    assert usual_score(SourceStatistics()) == "knn"
