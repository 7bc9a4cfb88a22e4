"""Whether decisions know anything of the devices: a score against guessing, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

QUANTILE = 1.96  # of a normal distribution, for an interval of 95 %

AFTER_TRAINING = (
    "It has not learnt its source. Try more epochs or frames, a smaller --batch (more steps), another --encoder or "
    "--method, and look at the frames: `pisa inspect DATASET --plot frames.png`."
)
ON_TARGET = (
    "What it learnt does not hold in this place. Try --method pisa-equalised where frames begin with a known preamble, "
    "more source environments or epochs, and see that source and target are recorded alike (`pisa inspect`)."
)


class Chance(NamedTuple):
    """recognised: mean over devices of the share of its frames that are given to it. guess: the same of decisions as
    often as these and blind to the device. margin: half the interval of their difference."""

    recognised: float
    guess: float
    margin: float

    @property
    def is_told(self) -> bool:
        """Whether more is recognised than by guessing, beyond the interval."""
        return self.recognised - self.margin > self.guess


def against_chance(confusion: NDArray[np.integer]) -> Chance:
    """Decisions (C, C), true device by row, against guessing as often.

    d_c = r_c − q_c, the recall of device c less the share of all frames that are decided as c: zero in the mean for
    every rule that does not look at the device, however it favours some. Its interval is mean d ± 1.96 s with
    s² = max(var(d_c)/C, Σ_c r_c(1 − r_c)/n_c / C²): over devices, for frames of one recording err together, and never
    narrower than frames that err alone would have it. Devices without frames are left out.

    >>> against_chance(np.array([[9, 1], [1, 9]])).is_told, against_chance(np.array([[9, 1], [9, 1]])).is_told
    (True, False)
    """
    counts = np.asarray(confusion, dtype=np.float64)
    frames = counts.sum(axis=1)
    there = frames > 0
    devices = int(there.sum())
    if not devices:
        return Chance(0.0, 0.0, 0.0)
    recall = counts.diagonal()[there] / frames[there]
    guess = (counts.sum(axis=0) / counts.sum())[there]
    between = (recall - guess).var(ddof=1) / devices if devices > 1 else 0.0
    within = (recall * (1 - recall) / frames[there]).sum() / devices**2
    return Chance(float(recall.mean()), float(guess.mean()), QUANTILE * float(np.sqrt(max(between, within))))


def at_chance(what: str, confusion: NDArray[np.integer]) -> str | None:
    """A sentence for people if decisions cannot be told from guessing, else None; None too for a single device, whose
    frames cannot show whether another device would be decided otherwise.
    """
    found = against_chance(confusion)
    if found.is_told or np.count_nonzero(confusion.sum(axis=1)) == 1:
        return None
    return (
        f"{what} is not told from chance: of each device {found.recognised:.3f} of the frames are recognised, "
        f"±{found.margin:.3f} (95 % interval over the devices); guessing gives {found.guess:.3f}."
    )


def stages_at_chance(stages: Mapping[str, NDArray[np.integer]]) -> str | None:
    """One sentence for the stages of inference whose decisions are not told from guessing, by their names."""
    sentences = {name: at_chance(name, confusion) for name, confusion in stages.items()}
    found = [sentence for sentence in sentences.values() if sentence is not None]
    return " ".join([*found, ON_TARGET]) if found else None
