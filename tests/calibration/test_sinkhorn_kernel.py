"""Sinkhorn in one GPU launch is the plain iteration: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from pisa_capc.calibration import sinkhorn
from pisa_capc.calibration.blocks import Blocks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("classes", "frames"), [(1, 5), (10, 1240), (17, 600), (64, 277)])
def test_one_launch_equals_matrix_products(classes: int, frames: int, monkeypatch: pytest.MonkeyPatch):
    draw = torch.Generator(DEVICE).manual_seed(0)
    scores = 5 * torch.randn(3, classes, frames, dtype=torch.float64, device=DEVICE, generator=draw)
    present = (torch.rand(3, 1, frames, device=DEVICE, generator=draw) < 0.8).double()
    present[:, :, 0] = 1
    blocks, real = Blocks(lambda _: scores, 1, True), Blocks(lambda _: present, 1, True)
    monkeypatch.setattr(sinkhorn, "_one_launch_suits", lambda kernel: True)
    launched = sinkhorn.class_potential(blocks, real, spread=100.0)
    monkeypatch.setattr(sinkhorn, "_one_launch_suits", lambda kernel: False)
    torch.testing.assert_close(launched, sinkhorn.class_potential(blocks, real, spread=100.0), rtol=0, atol=1e-12)
