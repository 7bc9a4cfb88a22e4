"""The scores by name, and those that are usual."""

from __future__ import annotations

from collections.abc import Mapping

from pisa_capc.core.errors import ConfigError
from pisa_capc.decide.calibration.openset import carrier, crowd, gaussian, session  # noqa: F401  (they register scores)
from pisa_capc.decide.calibration.openset.scores import REJECTIONS, UnknownScore

DEFAULT = "session"  # chosen on source environments: studies/strangers.py
MEASURED = "gaussian"  # where embeddings have error bars: the closed form
EARLIER = "knn"  # the default for models that keep no sessions
IN_STUDIES = ("msp", "vim")  # of earlier versions: weak everywhere


def unknown_scores() -> Mapping[str, type[UnknownScore]]:
    """Every score by name."""
    return REJECTIONS.parts()


def unknown_score(name: str) -> type[UnknownScore]:
    """The score called `name`; an unknown name is an error that names the nearest one."""
    if name in IN_STUDIES and name not in REJECTIONS:
        raise ConfigError(
            f"the rejection score {name} is now only in the studies. Use {DEFAULT}, which is better, or "
            "--plugin studies/scores.py."
        )
    return REJECTIONS[name]
