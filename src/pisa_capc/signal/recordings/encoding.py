"""How complex samples lie in a file: I, then Q, each a number of one kind.

Named as SigMF names them (`ci16_le`), and as the endings of plain files do (`cs16`, `sc16`, `fc32`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError

KINDS = {"ci": "i", "cs": "i", "sc": "i", "cu": "u", "uc": "u", "cf": "f", "fc": "f"}
NAME = re.compile(rf"({'|'.join(KINDS)})(8|16|32|64)(_le|_be)?")
ALIASES = {"cfile": "cf32"}  # GNU Radio's file sink
ENDINGS = ("cs8", "cu8", "cs16", "cf32", "ci8", "ci16", "sc8", "sc16", "cu16", "fc32", "cf64", "cfile")
_TILE = 8192  # instants that are taken apart at a time: what fits in a processor's cache
_PAIRS = {2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}  # to move I and Q of a sample together


def without_ending(path: Path) -> str:
    """The name of a file without the ending that tells its format; other dots are part of the name.

    >>> without_ending(Path("wifi-6.5.cs16")), without_ending(Path("wifi-6.5"))
    ('wifi-6.5', 'wifi-6.5')
    """
    return path.stem if path.suffix[1:].lower() in ENDINGS else path.name


@dataclass(frozen=True)
class Encoding:
    """kind: i, u or f. bits: of one number. order: < or >, of its bytes."""

    kind: str
    bits: int
    order: str = "<"

    @classmethod
    def named(cls, name: str) -> Encoding:
        """'cs16' and 'ci16_le' are the same; little-endian by default.

        >>> Encoding.named("sc16") == Encoding.named("ci16_le")
        True
        """
        match = NAME.fullmatch(ALIASES.get(name.lower(), name.lower()))
        if match is None or (match[2] == "8" and KINDS[match[1]] == "f") or (match[2] == "64" and match[1][-1] != "f"):
            real = " These are real numbers; frames are found in complex ones." if name[:1] == "r" else ""
            raise ConfigError(
                f"format {name!r}: expected complex samples, as cs8, cu8, cs16 or cf32, or with the order of their "
                f"bytes, as cs16_be.{real}"
            )
        return cls(KINDS[match[1]], int(match[2]), ">" if match[3] == "_be" and match[2] != "8" else "<")

    @property
    def name(self) -> str:
        """As SigMF has it."""
        order = "" if self.bits == 8 else "_be" if self.order == ">" else "_le"
        return f"c{self.kind}{self.bits}{order}"

    @property
    def sample_bytes(self) -> int:
        return self.bits // 4

    @property
    def full_scale(self) -> float:
        """The largest value after decoding that the receiver can still have measured; floats are taken to end at one.

        What reaches it may have been larger.
        """
        return 1.0 if self.kind == "u" else 1 - 2.0 ** (1 - min(self.bits, 16))

    @property
    def step(self) -> float:
        """What an integer counts after decoding."""
        return 1.0 if self.kind == "f" else 2 / (2.0**self.bits - (self.kind == "u"))

    @cached_property
    def number(self) -> np.dtype[Any]:
        """What I is, and Q."""
        return np.dtype(f"{self.order}{self.kind}{self.bits // 8}")

    def pairs(self, data: NDArray[Any], channels: int) -> NDArray[Any]:
        """(n, channels) samples as they lie in memory."""
        return data.view(_PAIRS[self.sample_bytes]).reshape(-1, channels)

    def decode(self, data: NDArray[np.uint8], channels: int) -> NDArray[np.complex64]:
        """(channels, n) samples of interleaved channels; integers at a full scale of one."""
        samples = self.pairs(data, channels)
        out = np.empty((channels, len(samples)), dtype=np.complex64)
        apart = np.empty((channels, min(_TILE, len(samples))), dtype=samples.dtype)
        for first in range(0, len(samples), _TILE):
            tile = samples[first : first + _TILE]
            own = apart[:, : len(tile)]
            own[...] = tile.T
            self._scale(own.view(self.number), out[:, first : first + _TILE].view(np.float32))
        return out

    def _scale(self, numbers: NDArray[Any], out: NDArray[np.float32]) -> None:
        out[...] = numbers
        if self.kind == "f":
            return
        out *= np.float32(self.step)
        if self.kind == "u":
            out -= 1  # (x − 127.5) / 127.5
