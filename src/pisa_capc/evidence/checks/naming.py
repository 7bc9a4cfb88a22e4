"""How well one quantity alone identifies the sender of a frame, by the nearest mean, and how far that is from chance.

Three questions about a place, that is an environment and a capture, where several devices were recorded:

- *later*: the last third of each recording, by the means of the first, and the other way round;
- *next*: every other frame, by the frame among the rest that is most like it, and may be its neighbour in time: what a
  random split of the frames into training and validation allows;
- *elsewhere*: all frames of the place, by the means of all other places.

Frames of one recording are no independent witnesses, so intervals (Wilson, 95 %) count each device in each part that is
decided as one observation, however many frames it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pisa_capc.evidence.checks.measure import SetMeasured

Real = NDArray[np.float64]
Labels = NDArray[np.int64]
Z = 1.96
PIECE = 2**22  # pairs of frames compared at once


class Comparable(Protocol):
    """A quantity that identifies frames: how alike two values are, and the middle of many."""

    def centre(self, x: Any) -> Any: ...

    def likeness(self, x: Any, others: Any) -> Real: ...


class Directions:
    """Complex directions (N, G, D), each with a phase of its own: likeness Σ_g |⟨x_g, u_g⟩|²."""

    def centre(self, x: NDArray[np.complex64]) -> NDArray[np.complex64]:
        """(G, D) the direction nearest to all: the strongest eigenvector of Σ x xᴴ."""
        across = np.moveaxis(x, 0, 1)
        _, vectors = np.linalg.eigh(across.swapaxes(-1, -2) @ across.conj())
        return np.asarray(vectors[..., -1])

    def likeness(self, x: NDArray[np.complex64], others: NDArray[np.complex64]) -> Real:
        return np.asarray(
            sum(np.abs(x[:, g] @ others[:, g].conj().T) ** 2 for g in range(x.shape[1])), dtype=np.float64
        )


class Numbers:
    """Real numbers (N,): likeness −|x − u|."""

    def centre(self, x: Real) -> Real:
        return np.asarray(np.median(x))

    def likeness(self, x: Real, others: Real) -> Real:
        return np.asarray(-np.abs(x[:, None] - others))


class Points:
    """Real vectors (N, D): likeness −‖x − u‖²."""

    def centre(self, x: Real) -> Real:
        return np.asarray(np.median(x, axis=0))

    def likeness(self, x: Real, others: Real) -> Real:
        return np.asarray(2 * x @ others.T - (others**2).sum(axis=1))  # ‖x‖² is the same for all others


@dataclass(frozen=True)
class NamingScore:
    """Balanced accuracy, its interval, what guessing gives, and how many observations it rests on."""

    accuracy: float
    low: float
    high: float
    chance: float
    observations: int

    @property
    def beyond_chance(self) -> float:
        """(accuracy − chance)/(1 − chance): the part of what guessing leaves open."""
        return (self.accuracy - self.chance) / (1 - self.chance)

    @property
    def surely_beyond_chance(self) -> float:
        """The same for the lower end of the interval."""
        return (self.low - self.chance) / (1 - self.chance)

    def __str__(self) -> str:
        return f"{self.accuracy:.2f} ({self.low:.2f}–{self.high:.2f}, chance {self.chance:.2f})"

    def to_json(self) -> dict[str, float]:
        return {**self.__dict__, "beyond_chance": self.beyond_chance}


@dataclass(frozen=True)
class PlaceNaming:
    """How well the devices of one place are identified; None where a question cannot be asked."""

    name: str
    later: NamingScore | None
    next: NamingScore | None
    elsewhere: NamingScore | None

    def to_json(self) -> dict[str, Any]:
        questions = {q: getattr(self, q) for q in QUESTIONS}
        return {"place": self.name, **{q: None if own is None else own.to_json() for q, own in questions.items()}}


QUESTIONS = ("later", "next", "elsewhere")


def name_devices(found: SetMeasured, quantity: Comparable, x: Any) -> list[PlaceNaming]:
    """The three questions in every place where two devices or more were recorded; x: (N, …) of each frame."""
    places = found.frames.capture_key
    device, third, neighbour = found.frames.device, found.sample.third, found.sample.neighbour
    answers = []
    for name in np.unique(places).tolist():
        here = places == name
        if len(np.unique(device[here])) < 2:
            continue
        first, last, even, odd = (here & part for part in (third == 0, third == 2, ~neighbour, neighbour))
        later = [*recalls(quantity, x, device, first, last), *recalls(quantity, x, device, last, first)]
        following = recalls(quantity, x, device, even, odd, every=True)
        abroad = recalls(quantity, x, device, ~here, here)
        answers.append(PlaceNaming(name, *(balanced(own) for own in (later, following, abroad))))
    return answers


def recalls(
    quantity: Comparable,
    x: Any,
    device: Labels,
    known: NDArray[np.bool_],
    asked: NDArray[np.bool_],
    every: bool = False,
) -> list[tuple[float, float]]:
    """For each known device among the `asked`: share of its frames that are identified correctly, and chance.

    By the nearest mean of the known devices, or with `every` by the nearest of all known frames.
    """
    devices = np.unique(device[known])
    asked = asked & np.isin(device, devices)
    if len(devices) < 2 or not asked.any():
        return []
    if every:
        others, owner = x[known], device[known]
    else:
        others, owner = np.stack([quantity.centre(x[known & (device == k)]) for k in devices]), devices
    values = x[asked]
    step = max(1, PIECE // len(others))
    pieces = (quantity.likeness(values[i : i + step], others).argmax(1) for i in range(0, len(values), step))
    right = owner[np.concatenate(list(pieces))] == device[asked]
    return [(float(right[device[asked] == k].mean()), 1 / len(devices)) for k in np.unique(device[asked])]


def balanced(observations: Sequence[tuple[float, float]]) -> NamingScore | None:
    """The mean of observations (recall, chance), with its interval."""
    if not observations:
        return None
    accuracy, chance = np.mean(observations, axis=0).tolist()
    return NamingScore(accuracy, *wilson(accuracy, len(observations)), chance, len(observations))


def pooled(answers: Iterable[NamingScore | None]) -> NamingScore | None:
    """All places together, each counted by its observations."""
    there = [own for own in answers if own is not None]
    return balanced([(own.accuracy, own.chance) for own in there for _ in range(own.observations)])


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` observations (Wilson, JASA 22, 1927).

    >>> [round(end, 3) for end in wilson(1.0, 20)]
    [0.839, 1.0]
    """
    middle = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * np.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))
