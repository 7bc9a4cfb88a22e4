"""One GPU launch gives what many give: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from pisa_capc.decide.calibration import retained, sinkhorn
from pisa_capc.decide.calibration.blocks import Blocks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether kernels of our own are taken."""

    def switch(own: bool) -> None:
        for user in (sinkhorn, retained):
            monkeypatch.setattr(user, "one_launch", lambda block: own)

    return switch


@pytest.mark.parametrize("epsilon", [1.0, 0.7])
@pytest.mark.parametrize(("classes", "frames"), [(1, 5), (10, 1240), (17, 600), (64, 277)])
def test_sinkhorn_in_one_launch_equals_matrix_products(
    classes: int, frames: int, epsilon: float, launched: Callable[[bool], None]
):
    draw = torch.Generator(DEVICE).manual_seed(0)
    scores = 5 * torch.randn(3, classes, frames, dtype=torch.float64, device=DEVICE, generator=draw)
    present = (torch.rand(3, 1, frames, device=DEVICE, generator=draw) < 0.8).double()
    present[:, :, 0] = 1
    blocks, real = Blocks(lambda _: scores, 1, True), Blocks(lambda _: present, 1, True)
    found = []
    for own in (True, False):
        launched(own)
        found.append(sinkhorn.class_potential(blocks, real, epsilon=epsilon, spread=100.0))
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("levels", [10**9, 50, 2, 1], ids="{} levels".format)
@pytest.mark.parametrize(("frames", "top"), [(700, 90), (700, 1), (40, 40), (40, 90)])
def test_frames_retained_in_one_launch_are_those_of_the_walks(
    frames: int, top: int, levels: int, launched: Callable[[bool], None]
):
    draw = torch.Generator(DEVICE).manual_seed(levels)
    values = torch.randint(levels, (2, 3, frames), generator=draw, device=DEVICE).double() / levels
    values[0, 1] = 0  # a class without a frame
    values[1, :, frames // 2 :] = 0  # a group that is padded
    values[1, 2, :5] = 0.3 * (1 + 1e-13 * torch.arange(5, device=DEVICE))  # tied but for rounding
    features = torch.randn(2, frames, 4, dtype=torch.float64, device=DEVICE, generator=draw)
    blocks, embedding = Blocks(lambda _: values, 1, True), Blocks(lambda _: features, 1, True)
    found = []
    for own in (True, False):
        launched(own)
        found.append(retained.retained_sums(blocks, embedding, top, kept=True))
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
