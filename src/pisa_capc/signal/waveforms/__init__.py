"""What devices send: one file per waveform.

A waveform is known to the simulator and to the equalisers by its name. To add one: a class with
`@register_waveform("mine")`, in a file here, imported below, or in a plugin; and a scene whose `waveform.kind` is
`mine` (see `pisa_capc.signal.simulation.scene`). `signal.phy` and `signal.detection` are for headers and finders.
"""

from pisa_capc.core.moved import renamed
from pisa_capc.signal.waveforms.adsb import ADSB
from pisa_capc.signal.waveforms.base import WAVEFORMS, Draw, Waveform, register_waveform
from pisa_capc.signal.waveforms.ble import BLE
from pisa_capc.signal.waveforms.ieee802154 import IEEE802154
from pisa_capc.signal.waveforms.lora import LoRa
from pisa_capc.signal.waveforms.wifi import WiFi

__all__ = ["ADSB", "BLE", "IEEE802154", "WAVEFORMS", "Draw", "LoRa", "Waveform", "WiFi", "register_waveform"]

register = renamed(__name__, "register", register_waveform)
