"""What people would use instead of U-CAPC, and direct inference."""

# Tables list calibrations in the order in which they are registered, which is that of these lines.
# isort: off
from pisa_capc.decide.calibration.peers.base import Direct, Peer, Transduced
from pisa_capc.decide.calibration.peers.t3a import T3A
from pisa_capc.decide.calibration.peers.graph import LAME, LabelPropagation
from pisa_capc.decide.calibration.peers.pt_map import PTMAP
from pisa_capc.decide.calibration.peers.bd_cspn import BDCSPN
from pisa_capc.decide.calibration.peers.transclip import StatA, TransCLIP
from pisa_capc.decide.calibration.peers.label_shift import BBSE, MLLS
from pisa_capc.decide.calibration.peers.lda import LDA
# isort: on

__all__ = [
    "BBSE",
    "BDCSPN",
    "LAME",
    "LDA",
    "MLLS",
    "PTMAP",
    "T3A",
    "Direct",
    "LabelPropagation",
    "Peer",
    "StatA",
    "TransCLIP",
    "Transduced",
]
