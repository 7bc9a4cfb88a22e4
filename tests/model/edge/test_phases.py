"""A convolution in phases is the convolution, with fewer products; what would not gain is left alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.edge.phases import PHASES, Convolved, InPhases, OfPhases, Taps, has_long_kernels
from pisa_capc.model.encoders import build_encoder, encoder_names


@pytest.fixture(autouse=True)
def _convolved_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX's own words cannot be run by PyTorch."""

    def convolved(self: Convolved, x: Tensor, added: Tensor | None = None) -> Tensor:
        border = -self.first, self.first + self.weight.shape[-1] - self.step
        y = F.conv2d(F.pad(x, border), self.weight, self.bias, stride=(1, self.step))
        return y if added is None else y + added

    monkeypatch.setattr(Convolved, "forward", convolved)


@pytest.mark.parametrize("taps", [3, 7, 15])
@pytest.mark.parametrize("phases", [1, 2, 4, 8])
def test_a_convolution_of_phases_is_that_of_the_signal(taps: int, phases: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 1, 64), torch.randn(5, 3, taps), torch.randn(5)
    expected = F.conv2d(x, weight[:, :, None], bias, padding=(0, taps // 2))
    convolution = OfPhases(Taps(weight, -(taps // 2)), bias, phases)
    found = torch.stack(convolution([x[..., phase::phases] for phase in range(phases)]), dim=-1).flatten(-2)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_it_takes_fewer_products() -> None:
    convolution = OfPhases(Taps(torch.ones(1, 1, 15), -7), None, PHASES)
    taken = sum(part.weight.shape[-1] for part in convolution.modules() if isinstance(part, Convolved)) / PHASES
    assert taken == 9.25


@pytest.mark.parametrize("samples", [64, 60, 50])
@torch.no_grad()
def test_an_encoder_in_phases_gives_the_same(samples: int) -> None:
    """Also where they do not come out even."""
    torch.manual_seed(0)
    encoder = build_encoder("mscnn").eval()
    x = torch.randn(1, 3, samples, 2)
    for tokens in (1, 8):
        np.testing.assert_allclose(InPhases(encoder)(x, tokens), encoder(x, tokens), atol=1e-5)


def test_only_encoders_of_long_kernels_gain() -> None:
    assert [name for name in encoder_names() if has_long_kernels(build_encoder(name))] == ["mscnn"]
    assert not has_long_kernels(nn.Linear(2, 2))
