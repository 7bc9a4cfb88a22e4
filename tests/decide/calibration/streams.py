"""Made-up streams as a receiver sees them: captures that follow each other, whose transmitters alternate or do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pisa_capc.core.randomness import generator

CLASSES, FEATURES = 6, 16


@dataclass(frozen=True)
class Stream:
    embedding: np.ndarray  # (N, D)
    logits: np.ndarray  # (N, C)
    cfo_hz: np.ndarray  # (N,)
    frame: np.ndarray  # (N,) number within the recording
    capture: np.ndarray  # (N,)
    label: np.ndarray  # (N,)

    def __len__(self) -> int:
        return len(self.label)

    def select(self, which: np.ndarray | slice) -> Stream:
        return Stream(**{name: values[which] for name, values in vars(self).items()})


def stream(
    captures: tuple[int, ...], frames: int = 600, transmitters: int = CLASSES, in_turn: bool = True, seed: int = 0
) -> Stream:
    """Captures one after the other, `frames` each; a number that comes again is the same capture again.

    A capture moves the frames of each transmitter by an offset of their own, as a place does. `in_turn`: the
    transmitters alternate; otherwise each sends all of its frames of a capture before the next one begins.
    """
    draw = generator(seed, "stream")
    weight = draw.normal(size=(CLASSES, FEATURES))
    offset = 0.5 * draw.normal(size=(max(captures) + 1, CLASSES, FEATURES))
    capture = np.repeat(captures, frames)
    number = np.tile(np.arange(frames), len(captures))
    per_transmitter = -(-frames // transmitters)
    label = number % transmitters if in_turn else number // per_transmitter
    frame = number // transmitters if in_turn else number % per_transmitter
    embedding = weight[label] + offset[capture, label] + 0.5 * draw.normal(size=(len(label), FEATURES))
    cfo_hz = 10e3 * (label - 2.5) + 100 * draw.normal(size=len(label))
    return Stream(embedding, 0.5 * embedding @ weight.T, cfo_hz, frame, capture, label)
