"""A recorded network gives what the network does, whatever the number of frames."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pisa_capc.model.encoders import ENCODERS
from pisa_capc.model.inference.recorded import RecordedNetwork, recorded
from pisa_capc.model.networks import PISA


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_scores_are_those_of_the_network(encoder: str) -> None:
    network = PISA(3, encoder).eval()
    quick = recorded(network, antennas=4, samples=64)
    assert isinstance(quick, RecordedNetwork)
    with torch.no_grad():
        for frames in (1, 5):
            iq, descriptor = torch.randn(frames, 4, 64, 2), torch.randn(frames, 4)
            ours, theirs = quick(iq, descriptor), network(iq, descriptor)
            torch.testing.assert_close(ours.logits, theirs.logits)
            torch.testing.assert_close(ours.embedding, theirs.embedding)


@torch.no_grad()
def test_frames_that_miss_antennas_go_to_the_network() -> None:
    network = PISA(3, "cnn").eval()
    iq, mask = torch.randn(2, 4, 64, 2), torch.tensor([[True, True, False, True]] * 2)
    descriptor = torch.zeros(2, 4)
    found = recorded(network, antennas=4, samples=64)(iq, descriptor, mask)
    torch.testing.assert_close(found.logits, network(iq, descriptor, mask).logits)


class Counting(nn.Module):
    """What it gives depends on how many frames there are, which a record does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(2, 2)

    def forward(self, iq: Tensor, descriptor: Tensor, mask: Tensor | None) -> object:
        from pisa_capc.model.inference.recorded import RecordedScores

        return RecordedScores(iq[:, 0, 0] * int(iq.shape[0]), iq[:, 0, 1])


def test_what_is_recorded_wrongly_is_used_as_it_is() -> None:
    network = Counting()
    assert recorded(network, antennas=4, samples=64) is network
