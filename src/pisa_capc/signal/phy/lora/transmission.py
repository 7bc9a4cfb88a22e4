"""Octets to samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.lora.coding import encode
from pisa_capc.signal.phy.lora.modulation import Modulation


def transmit(
    payload: bytes,
    spreading_factor: int,
    coding_rate: int,
    *,
    sync_word: int,
    crc: bool = True,
    preamble: int = 8,
    sample_rate_hz: float = 1e6,
    bandwidth_hz: float = 125e3,
) -> NDArray[np.complex128]:
    """A whole LoRa frame of modulus one: upchirps, sync word, 2.25 downchirps, explicit header, payload.

    payload: at most 255 octets. spreading_factor: 7 … 12. coding_rate: 1 … 4 for 4/5 … 4/8.
    sync_word: one octet, 0x34 for LoRaWAN. crc: whether a checksum follows the payload.
    preamble: upchirps before the sync word. sample_rate_hz: a whole multiple of bandwidth_hz.
    """
    if not 0 <= sync_word <= 0xFF:
        raise ConfigError(f"sync word {sync_word:#x}; expected one octet")
    if preamble < 1:
        raise ConfigError(f"a preamble of {preamble} upchirps; expected one at least")
    modulation = Modulation(spreading_factor, bandwidth_hz, sample_rate_hz)
    symbols = encode(payload, coding_rate, crc, modulation)
    return np.concatenate([modulation.preamble(preamble, sync_word), *map(modulation.chirp, symbols.tolist())])
