"""What a frequency and a rate may be, wherever they come from: options, files, metadata, the network."""

from __future__ import annotations

import math
from typing import Any

from pisa_capc.core.errors import ConfigError, PisaError

HIGHEST_HZ = 1e12


def frequency(value: Any, what: str, error: type[PisaError] = ConfigError) -> float:
    """A carrier or a sample rate in Hz; `what` begins the message where it is none.

    >>> frequency("20e6", "sample rate")
    20000000.0
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < HIGHEST_HZ:
        raise error(f"{what} {str(value)[:40]}: expected Hz, more than zero and less than {HIGHEST_HZ:g}.")
    return number
