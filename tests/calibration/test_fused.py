"""The fused GPU iteration is the plain one."""

from __future__ import annotations

import pytest
import torch

from pisa_capc.calibration import sinkhorn
from pisa_capc.calibration.blocks import Blocks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(("classes", "frames"), [(1, 5), (10, 6240), (17, 3000), (64, 777)])
def test_one_launch_equals_matrix_products(classes: int, frames: int, monkeypatch: pytest.MonkeyPatch):
    draw = torch.Generator("cuda").manual_seed(0)
    scores = 5 * torch.randn(3, classes, frames, dtype=torch.float64, device="cuda", generator=draw)
    present = (torch.rand(3, 1, frames, device="cuda", generator=draw) < 0.8).double()
    present[:, :, 0] = 1
    blocks, real = Blocks(lambda _: scores, 1, True), Blocks(lambda _: present, 1, True)
    fused = sinkhorn.class_potential(blocks, real, spread=100.0)
    monkeypatch.setattr(sinkhorn, "_fused_suits", lambda kernel: False)
    torch.testing.assert_close(fused, sinkhorn.class_potential(blocks, real, spread=100.0), rtol=0, atol=1e-12)
