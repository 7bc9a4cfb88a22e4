"""Whether a capture that is calibrated as balanced looks balanced.

U-CAPC as published takes all devices for equally frequent in every capture, and nothing in its output says where they
are not. `warn_where_uneven` says it, from the unlabelled frames alone: by the evenness that `careful` chooses by, or
where the source does not say what that needs, by that of the scores before they were balanced.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch

from pisa_capc.decide.calibration.base import Calibrator
from pisa_capc.decide.calibration.careful import Careful, evenness, knows_enough, unbalanced
from pisa_capc.decide.calibration.result import Calibration
from pisa_capc.decide.calibration.ucapc import UCAPC
from pisa_capc.model.inference.statistics import SourceStatistics

LOOKED_AT = 512  # frames of a capture at most: what is looked for is large, and a calibration takes milliseconds
NAMED = 5  # captures in a warning
HARM = (
    "U-CAPC as published takes devices for equally frequent and may do great harm there. Use the usual calibration, "
    "which no option asks for, or careful."
)


def warn_where_uneven(calibrator: Calibrator, result: Calibration, source: SourceStatistics) -> None:
    """Warn of captures that `calibrator` has balanced although their devices seem to send unevenly."""
    warn_of(uneven(calibrator, result, source))


def uneven(calibrator: Calibrator, result: Calibration, source: SourceStatistics) -> dict[str | int, float]:
    """These captures and their evenness; none where nothing was balanced."""
    if not isinstance(calibrator, UCAPC) or calibrator.prior != "balanced":
        return {}
    return {key: found for key, found in _evenness(result, source).items() if not Careful().believed(found)}


def warn_of(captures: Mapping[str | int, float]) -> None:
    """Warn of captures, by name and evenness, if there are any."""
    if not captures:
        return
    named = ", ".join(f"{key} ({found:.2f})" for key, found in list(captures.items())[:NAMED])
    more = f" and {len(captures) - NAMED} more" if len(captures) > NAMED else ""
    warnings.warn(
        f"devices seem to send unevenly in {named}{more}: found is the evenness, expected at least {Careful.even}. "
        f"{HARM}",
        stacklevel=3,
    )


def _evenness(result: Calibration, source: SourceStatistics) -> dict[str | int, float]:
    """How evenly devices seem to send, by capture; of the frames that were not set aside."""
    inputs, score = result.inputs, torch.as_tensor(result.score)
    decided = torch.as_tensor(result.prediction) >= 0
    found: dict[str | int, float] = {}
    for r, key in enumerate(inputs.groups.keys):
        rows = inputs.groups.rows(r)
        rows = rows[decided[rows]]
        if not len(rows):
            continue
        rows = rows[torch.linspace(0, len(rows) - 1, min(len(rows), LOOKED_AT), device=rows.device).round().long()]
        if knows_enough(source):
            seen = unbalanced(inputs.embedding[rows].double(), inputs.logits[rows].double(), source)
            found[key] = evenness(torch.stack(seen).mean(dim=0))
        else:
            found[key] = evenness(torch.softmax(score[rows].double(), dim=1))
    return found
