"""A frozen network recorded once, for few frames at a time: most of that time goes into the calls between the sums.

TorchScript, which needs no compiler where it runs. What it cannot record, or records wrongly, is used as it is.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

OWN, OTHERS = 2, 3  # frames that it is recorded with, and that it is tried with: their number must not matter


class Scores(NamedTuple):
    """(N, D) and (N, C), as of a model's output."""

    embedding: Tensor
    logits: Tensor


class _Scoring(nn.Module):
    """The part of a network's output that is asked for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, iq: Tensor, descriptor: Tensor) -> Scores:
        output = self.network(iq, descriptor, None)
        return Scores(output.embedding, output.logits)


class Recorded(nn.Module):
    """A network for frames of one shape with a descriptor; frames that miss antennas go to the network itself."""

    def __init__(self, network: nn.Module, antennas: int, samples: int) -> None:
        super().__init__()
        self.network, self.classifier = network, network.classifier
        self._shape = antennas, samples, 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sizes that are constants here, and that TorchScript has successors
            traced = torch.jit.trace(_Scoring(network).eval(), self._example(OWN), check_trace=False)
            self._record = torch.jit.freeze(traced)

    def _example(self, frames: int) -> tuple[Tensor, Tensor]:
        random = torch.Generator().manual_seed(frames)
        return torch.randn((frames, *self._shape), generator=random), torch.randn((frames, 4), generator=random)

    def is_right(self) -> bool:
        """Whether it gives what the network does."""
        return all(
            torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
            for ours, theirs in zip(
                self(*self._example(OTHERS)), _Scoring(self.network)(*self._example(OTHERS)), strict=True
            )
        )

    def forward(self, iq: Tensor, descriptor: Tensor | None = None, mask: Tensor | None = None) -> Any:
        if mask is not None or descriptor is None or iq.shape[1:] != self._shape:
            return self.network(iq, descriptor, mask)
        return Scores(*self._record(iq, descriptor))


@torch.no_grad()
def recorded(network: nn.Module, antennas: int, samples: int) -> nn.Module:
    """The network, on a CPU and for inference, recorded if it can be."""
    try:
        found = Recorded(network.cpu().eval(), antennas, samples).eval()
        return found if found.is_right() else network
    except (AttributeError, RuntimeError, TypeError):
        return network
