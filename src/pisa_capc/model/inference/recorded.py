"""A frozen network recorded once: of few frames most of the time goes into the calls between the sums, and threads that
share many frames wait for each other at every call.

TorchScript, which needs no compiler where it runs. What it cannot record, or records wrongly, is used as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

OWN, OTHERS = 2, 3  # frames that it is recorded with, and that it is tried with: their number must not matter


class RecordedScores(NamedTuple):
    """(N, D) and (N, C), as of a model's output."""

    embedding: Tensor
    logits: Tensor
    error: Tensor | None = None  # of networks that measure it, which are not recorded


class _Scoring(nn.Module):
    """The part of a network's output that is asked for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, iq: Tensor, descriptor: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output = self.network(iq, descriptor, None)
        return output.embedding, output.logits


@contextmanager
def _constant(network: nn.Module) -> Iterator[None]:
    """Frozen weights: only those can be constants of a record."""
    learnt = [value for value in network.parameters() if value.requires_grad]
    try:
        network.requires_grad_(False)
        yield
    finally:
        for value in learnt:
            value.requires_grad_(True)


class RecordedNetwork(nn.Module):
    """A network for frames of one shape; frames that miss antennas go to the network itself.

    described: frames have a descriptor. lower: products are in bfloat16.
    """

    def __init__(
        self, network: nn.Module, antennas: int, samples: int, described: bool = True, lower: bool = False
    ) -> None:
        super().__init__()
        self.network, self.classifier = network, network.classifier
        self._shape, self._described, self._lower = (antennas, samples, 2), described, lower
        scoring = _Scoring(network).eval()
        with warnings.catch_warnings(), self._precision(), _constant(network):
            warnings.simplefilter("ignore")  # sizes that are constants here, and that TorchScript has successors
            # Of a function, whose weights are constants at once: that of a module takes twice as long to make.
            self._record = torch.jit.trace(lambda *given: scoring(*given), self._example(OWN), check_trace=False)

    def _precision(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self._lower, cache_enabled=False)

    def _example(self, frames: int) -> tuple[Tensor, ...]:
        random = torch.Generator().manual_seed(frames)
        iq = torch.randn((frames, *self._shape), generator=random)
        return (iq, torch.randn((frames, 4), generator=random)) if self._described else (iq,)

    def is_right(self) -> bool:
        """Whether it gives what the network does."""
        ours = self(*self._example(OTHERS))[:2]
        with self._precision():
            theirs = _Scoring(self.network)(*self._example(OTHERS))
        near = 2.0**-6 if self._lower else 1e-4  # of the largest
        return all(bool((a - b).abs().max() <= near * b.abs().max()) for a, b in zip(ours, theirs, strict=True))

    def forward(self, iq: Tensor, descriptor: Tensor | None = None, mask: Tensor | None = None) -> Any:
        if mask is not None or (descriptor is not None) != self._described or iq.shape[1:] != self._shape:
            return self.network(iq, descriptor, mask)
        with torch.autocast("cpu", enabled=False):  # what it does in which precision is in the record
            return RecordedScores(*(self._record(iq) if descriptor is None else self._record(iq, descriptor)))


@torch.no_grad()
def recorded(network: nn.Module, antennas: int, samples: int, described: bool = True, lower: bool = False) -> nn.Module:
    """The network, on a CPU and for inference, recorded if it can be; see `RecordedNetwork`."""
    try:
        found = RecordedNetwork(network.cpu().eval(), antennas, samples, described, lower).eval()
        return found if found.is_right() else network
    except (AttributeError, RuntimeError, TypeError):
        return network
