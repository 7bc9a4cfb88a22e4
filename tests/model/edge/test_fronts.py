"""What stands before a network, in real numbers, is what it is in complex ones."""

from __future__ import annotations

import pytest
import torch

from pisa_capc.model.edge.fronts import Complex, Fourier, RealAligner, RealEqualiser
from pisa_capc.model.methods.equaliser import Aligner, Equaliser


@pytest.mark.parametrize("samples", [7, 48, 320])
def test_two_small_products_are_the_fourier_transform(samples: int) -> None:
    x = torch.randn(3, samples, dtype=torch.complex64)
    fourier = Fourier(samples)
    found = fourier.transform(Complex(x.real, x.imag))
    expected = torch.fft.fft(x)[:, fourier.order]
    torch.testing.assert_close(torch.complex(found.re, found.im), expected, rtol=1e-5, atol=1e-4)
    back = fourier.inverse(found)
    torch.testing.assert_close(torch.complex(back.re, back.im), x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["equaliser", "aligner"])
def test_a_front_in_real_numbers_is_the_front(name: str) -> None:
    torch.manual_seed(0)
    iq, mask = torch.randn(5, 4, 320, 2), torch.ones(5, 4, dtype=torch.bool)
    mask[2:, 1] = mask[3:, 2] = False
    iq[~mask] = 0
    if name == "equaliser":
        front: torch.nn.Module = Equaliser("wifi", 320, 8, 0.01, 0.01)
        real: torch.nn.Module = RealEqualiser(front, 320)  # type: ignore[arg-type]
    else:
        front = Aligner("wifi", 320, 8)
        real = RealAligner(front)
    found = real(iq, mask)
    assert found.isfinite().all()
    torch.testing.assert_close(found, front(iq, mask), rtol=1e-3, atol=1e-3)
