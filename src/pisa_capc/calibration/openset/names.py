"""The scores by name."""

from __future__ import annotations

from pisa_capc.calibration.openset.scores import (
    Energy,
    Mahalanobis,
    MaximumSoftmax,
    NearestNeighbour,
    UnknownScore,
    VirtualLogit,
)
from pisa_capc.calibration.openset.session import SessionDistance
from pisa_capc.errors import ConfigError, unknown_name

DEFAULT = "session"  # chosen on source environments: studies/strangers.py
_SCORES: dict[str, type[UnknownScore]] = {
    "msp": MaximumSoftmax,
    "energy": Energy,
    "knn": NearestNeighbour,
    "mahalanobis": Mahalanobis,
    "vim": VirtualLogit,
    "session": SessionDistance,
}


def unknown_scores() -> dict[str, type[UnknownScore]]:
    """Every score by name."""
    return dict(_SCORES)


def unknown_score(name: str) -> type[UnknownScore]:
    """The score called `name`; an unknown name is an error that names the nearest one."""
    if name not in _SCORES:
        raise ConfigError(unknown_name("rejection score", name, _SCORES))
    return _SCORES[name]
