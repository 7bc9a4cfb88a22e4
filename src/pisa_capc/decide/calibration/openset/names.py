"""The scores by name."""

from __future__ import annotations

from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.decide.calibration.openset.carrier import CarrierDistance
from pisa_capc.decide.calibration.openset.crowd import CrowdDistance
from pisa_capc.decide.calibration.openset.gaussian import GaussianRatio
from pisa_capc.decide.calibration.openset.scores import (
    Energy,
    Mahalanobis,
    MaximumSoftmax,
    NearestNeighbour,
    UnknownScore,
    VirtualLogit,
)
from pisa_capc.decide.calibration.openset.session import SessionDistance

DEFAULT = "session"  # chosen on source environments: studies/strangers.py
MEASURED = "gaussian"  # where embeddings have error bars: the closed form
EARLIER = "knn"  # the default for models that keep no sessions
_SCORES: dict[str, type[UnknownScore]] = {
    "msp": MaximumSoftmax,
    "energy": Energy,
    "knn": NearestNeighbour,
    "mahalanobis": Mahalanobis,
    "vim": VirtualLogit,
    "session": SessionDistance,
    "carrier": CarrierDistance,
    "crowd": CrowdDistance,
    "gaussian": GaussianRatio,
}


def unknown_scores() -> dict[str, type[UnknownScore]]:
    """Every score by name."""
    return dict(_SCORES)


def unknown_score(name: str) -> type[UnknownScore]:
    """The score called `name`; an unknown name is an error that names the nearest one."""
    if name not in _SCORES:
        raise ConfigError(unknown_name("rejection score", name, _SCORES))
    return _SCORES[name]
