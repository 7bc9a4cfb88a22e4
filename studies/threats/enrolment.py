"""Poisoned enrolment: among the frames of a new device, a part is another's.

The foreign frames are of an enrolled device or of a stranger, in the same place. `outsiders` names frames that lie
outside the error bars of the others; more than a tenth of them, and the enrolment is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pisa_capc.core.randomness import generator
from pisa_capc.decide.enrolment.alike import MIXED, outsiders
from pisa_capc.model.gaussian import Observations
from studies.threats.world import PARTS, PREAMBLE, World, mean_of

SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
FRAMES = 50


def study(worlds: list[World], pairs: int) -> dict[str, Any]:
    """By whose the foreign frames are and their share."""
    table: dict[str, Any] = {}
    for kind in ("an enrolled device", "a stranger"):
        for share in SHARES:
            rows = [_one(world, pair, kind, share) for world in worlds for pair in range(pairs)]
            table[f"{kind}, {share:g}"] = mean_of(rows) | {"moved_unrefused": _unrefused(rows)}
    return table


def _unrefused(rows: list[dict[str, float]]) -> float | None:
    """How far those enrolments are off, in the mean, that are not refused."""
    done = [row["moved"] for row in rows if not row["refused"]]
    return round(float(np.mean(done)), 4) if done else None


def _one(world: World, pair: int, kind: str, share: float) -> dict[str, float]:
    receiver = world.receivers[PARTS[0]]
    random = generator(world.seed, "threats", "poisoned enrolment", pair)
    other = world.devices[int(random.integers(len(world.devices)))] if kind == "an enrolled device" else f"Y{pair:02d}"
    place = f"E1/{random.choice(['L1', 'L2', 'L3'])}"
    own, foreign = (
        receiver.evidence(world.heard(name, place, FRAMES, samples=PREAMBLE)) for name in (f"N{pair:02d}", other)
    )
    count = round(share * FRAMES)
    bad = np.arange(FRAMES) < count
    assert own.own is not None, "every frame was measured"
    assert foreign.own is not None, "every frame was measured"
    mixed = Observations(
        np.where(bad[:, None], foreign.value, own.value), np.where(bad[:, None, None], foreign.own, own.own), own.frame
    )
    outside = outsiders(mixed)
    here = np.zeros(FRAMES, dtype=int)
    clean = receiver.backend.learn(own, here)

    def off(observed: Observations) -> float:
        """Of the new device's mean, in its error bars."""
        moved = receiver.backend.learn(observed, here[: len(observed)]).mean - clean.mean
        return float(np.sqrt(moved @ np.linalg.solve(clean.error, moved)))

    return {
        "refused": float(outside.sum() > max(1, MIXED * FRAMES)),
        "found": float(outside[bad].mean()) if count else 0.0,
        "own": float(outside[~bad].mean()),
        "moved": off(mixed.select(~outside)) if not outside.all() else 0.0,  # those outside are left out
        "moved_by_all": off(mixed),
    }
