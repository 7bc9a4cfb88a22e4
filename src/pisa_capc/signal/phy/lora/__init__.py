"""LoRa: chirps, explicit header, payload, and who sends it where that is LoRaWAN."""

from pisa_capc.signal.phy.lora.modulation import Modulation
from pisa_capc.signal.phy.lora.reception import LoraHeader, rebuild, receive
from pisa_capc.signal.phy.lora.transmission import transmit

__all__ = ["LoraHeader", "Modulation", "rebuild", "receive", "transmit"]
