"""LoRa: chirps, explicit header, payload, and who sends it where that is LoRaWAN."""

from pisa_capc.phy.lora.modulation import Modulation
from pisa_capc.phy.lora.receive import LoraHeader, receive
from pisa_capc.phy.lora.transmit import transmit

__all__ = ["LoraHeader", "Modulation", "receive", "transmit"]
