"""The one place where randomness is created.

Every random draw is named by a seed and a path of names, so it depends on nothing else: not on the number of
workers, the order of the work, or what was drawn before.
"""

from __future__ import annotations

import hashlib

import numpy as np


def seed_for(seed: int, *path: str | int) -> int:
    """A 128-bit seed from a user's seed and the path of names of what is drawn."""
    text = "/".join([str(int(seed)), *map(str, path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """An independent generator for what `path` names under `seed`."""
    return np.random.Generator(np.random.SFC64(seed_for(seed, *path)))
