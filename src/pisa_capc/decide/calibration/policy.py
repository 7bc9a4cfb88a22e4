"""The one policy: which calibration and which rejection are used where no option names one. Every command asks here.

Whole captures and streams are calibrated by `careful`; where too little is known of the source, by U-CAPC without a
prior. Neither assumes that devices send equally often: the published calibration is never usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pisa_capc.core.config import from_mapping
from pisa_capc.decide.calibration.base import Calibrator, calibrator
from pisa_capc.decide.calibration.careful import Careful, knows_enough
from pisa_capc.decide.calibration.openset.names import DEFAULT, EARLIER, MEASURED
from pisa_capc.decide.calibration.prior import PriorUCAPC
from pisa_capc.decide.calibration.ucapc import UCAPC
from pisa_capc.model.inference.statistics import SourceStatistics

AUTO = "auto"  # the name by which the usual rejection is asked for


class Usual(NamedTuple):
    """The usual calibration, and the score by which unknown devices are rejected where that is asked for."""

    calibration: Calibrator
    rejection: str


def usual(source: SourceStatistics) -> Usual:
    """What is usual with this source, for whole captures and for streams."""
    calibration: Calibrator = Careful() if knows_enough(source) else UCAPC(prior="none")
    if source.frame_error is not None:
        return Usual(calibration, MEASURED)
    # Models of earlier versions keep no sessions.
    return Usual(calibration, DEFAULT if source.session_mean is not None else EARLIER)


def named(name: str, settings: Mapping[str, Any]) -> Calibrator:
    """The calibration called `name` with these settings; U-CAPC by class shares that are neither equal nor free is
    `PriorUCAPC`."""
    kind = calibrator(name)
    if kind is UCAPC and settings.get("prior") in ("given", "estimated"):
        kind = PriorUCAPC
    return from_mapping(kind, settings, name)


def rejection(name: str | None, source: SourceStatistics) -> str | None:
    """The score called `name`, the usual one for `AUTO`, none for None."""
    return usual(source).rejection if name == AUTO else name
