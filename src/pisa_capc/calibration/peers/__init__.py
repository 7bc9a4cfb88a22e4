"""Calibrations by name: U-CAPC, direct inference, and what people would use instead."""

from __future__ import annotations

from typing import TypeAlias

from pisa_capc.calibration.peers.base import Peer
from pisa_capc.calibration.peers.bbse import BBSE
from pisa_capc.calibration.peers.bd_cspn import BDCSPN
from pisa_capc.calibration.peers.direct import Direct
from pisa_capc.calibration.peers.label_propagation import LabelPropagation
from pisa_capc.calibration.peers.lame import LAME
from pisa_capc.calibration.peers.mlls import MLLS
from pisa_capc.calibration.peers.pt_map import PTMAP
from pisa_capc.calibration.peers.stata import StatA
from pisa_capc.calibration.peers.t3a import T3A
from pisa_capc.calibration.peers.transclip import TransCLIP
from pisa_capc.calibration.safe import Safe
from pisa_capc.calibration.ucapc import UCAPC
from pisa_capc.errors import ConfigError, unknown_name

Calibrator: TypeAlias = UCAPC | Safe | Peer

_CALIBRATORS: dict[str, type[Calibrator]] = {
    "direct": Direct,
    "ucapc": UCAPC,
    "safe": Safe,
    "t3a": T3A,
    "lame": LAME,
    "label-propagation": LabelPropagation,
    "pt-map": PTMAP,
    "bd-cspn": BDCSPN,
    "transclip": TransCLIP,
    "stata": StatA,
    "mlls": MLLS,
    "bbse": BBSE,
}


def calibrators() -> dict[str, type[Calibrator]]:
    """Every calibration by name."""
    return dict(_CALIBRATORS)


def calibrator(name: str) -> type[Calibrator]:
    """The calibration called `name`; an unknown name is an error that names the nearest one."""
    if name not in _CALIBRATORS:
        raise ConfigError(unknown_name("method", name, _CALIBRATORS))
    return _CALIBRATORS[name]
