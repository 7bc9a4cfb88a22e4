"""The one policy: what is used where nobody asks for a calibration or a rejection by name. Every command asks here.

Whole captures are calibrated under the guard that was trained with the model, without one by `careful`. Streams are
calibrated by `careful`, which has an alarm there and was measured there (`studies.careful_streams`); the prices of a
guard are those of whole captures. Where too little is known of the source U-CAPC without a prior takes the place of
both. None of them assumes that devices send equally often: the published calibration is never usual.
"""

from __future__ import annotations

from typing import NamedTuple

from pisa_capc.decide.calibration.base import Calibrator
from pisa_capc.decide.calibration.careful import Careful, knows_enough
from pisa_capc.decide.calibration.openset.names import DEFAULT, EARLIER
from pisa_capc.decide.calibration.safe import Safe
from pisa_capc.decide.calibration.ucapc import UCAPC
from pisa_capc.model.inference.statistics import SourceStatistics

AUTO = "auto"  # the name by which the usual rejection is asked for


class Usual(NamedTuple):
    """The usual calibration, and the score by which unknown devices are rejected where that is asked for."""

    calibration: Calibrator
    rejection: str


def usual(source: SourceStatistics, streaming: bool = False) -> Usual:
    """What is usual with this source; streaming: frames are decided as they come."""
    if source.guard is not None and not streaming:
        calibration: Calibrator = Safe()
    else:
        calibration = Careful() if knows_enough(source) else UCAPC(prior="none")
    # Models of earlier versions keep no sessions.
    return Usual(calibration, DEFAULT if source.session_mean is not None else EARLIER)


def rejection(name: str | None, source: SourceStatistics, streaming: bool = False) -> str | None:
    """The score called `name`, the usual one for `AUTO`, none for None."""
    return usual(source, streaming).rejection if name == AUTO else name
