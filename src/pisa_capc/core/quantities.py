"""Limits of numbers from outside: options, files, metadata, the network."""

from __future__ import annotations

import math
from typing import Any

from pisa_capc.core.errors import ConfigError, PisaError

HIGHEST_HZ = 1e12
LARGEST = 2**53  # of any number: beyond, floats skip whole numbers
MOST_ANTENNAS = 256
# Of what is counted, the most that there may be; what is not here may be as large as any number.
MOST = {
    "antennas": MOST_ANTENNAS,
    "samples": 1 << 28,  # of a frame
    "workers": 4096,
    "threads": 4096,
    "batch": 1 << 24,
    "epochs": 1 << 24,
    "points": 1 << 24,
}
FREQUENCIES = ("sample_rate", "carrier")


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


def size(value: Any, what: str, most: int = LARGEST, error: type[PisaError] = ConfigError) -> int:
    """A whole number from one up to `most`.

    >>> size(4, "antennas", MOST_ANTENNAS)
    4
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= most or value != int(value):
        raise error(f"{what} {str(value)[:40]}: expected a whole number from 1 to {most:,}.")
    return int(value)


def option(name: str, value: float) -> float:
    """The number of an option, as `sample_rate`, where it can be one; else ConfigError."""
    word = f"--{name.replace('_', '-')}"
    if name in FREQUENCIES:
        return frequency(value, word)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{value} is not finite; expected a number.")
    if name in MOST:
        return size(value, word, MOST[name])
    if abs(value) > LARGEST:
        raise ConfigError(f"{word} {str(value)[:40]}: expected at most {LARGEST:,}.")
    return value
