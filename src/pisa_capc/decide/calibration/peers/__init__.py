"""What people would use instead of U-CAPC, and direct inference; one file each."""

# Tables list calibrations in the order in which they are registered, which is that of these lines.
# isort: off
from pisa_capc.decide.calibration.peers.base import Peer, Transduced
from pisa_capc.decide.calibration.peers.direct import Direct
from pisa_capc.decide.calibration.peers.t3a import T3A
from pisa_capc.decide.calibration.peers.lame import LAME
from pisa_capc.decide.calibration.peers.label_propagation import LabelPropagation
from pisa_capc.decide.calibration.peers.pt_map import PTMAP
from pisa_capc.decide.calibration.peers.bd_cspn import BDCSPN
from pisa_capc.decide.calibration.peers.transclip import TransCLIP
from pisa_capc.decide.calibration.peers.stata import StatA
from pisa_capc.decide.calibration.peers.mlls import MLLS
from pisa_capc.decide.calibration.peers.bbse import BBSE
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
