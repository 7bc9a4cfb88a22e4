"""802.11: frames of octets to samples and back (non-HT at all eight rates, HT-mixed in 20 MHz with one stream).

coding        rates: puncturing, interleaving, mapping, and soft bits
transmission  octets to samples
demodulate    samples of all antennas to equalised points
signal        L-SIG and HT-SIG
viterbi       soft decoding of many sequences at once
reception     samples to addresses, and to what was sent
mac           frames of octets: build, check, parse
"""

from typing import Any

from pisa_capc.core.moved import by_old_name
from pisa_capc.signal.phy.wifi import mac
from pisa_capc.signal.phy.wifi.reception import Front, fronts, rebuild, receive
from pisa_capc.signal.phy.wifi.signal import SignalField
from pisa_capc.signal.phy.wifi.transmission import transmit, transmit_ht

__all__ = ["Front", "SignalField", "fronts", "mac", "rebuild", "receive", "transmit", "transmit_ht"]


def __getattr__(name: str) -> Any:
    return by_old_name(__name__, {"Signal": "SignalField"}, name)
