"""802.11: frames of octets to samples and back (non-HT at all eight rates, HT-mixed in 20 MHz with one stream)."""

from pisa_capc.phy.wifi import mac
from pisa_capc.phy.wifi.transmit import transmit, transmit_ht

__all__ = ["mac", "transmit", "transmit_ht"]
