"""One walk over blocks that are made anew finds the same frames as walks over blocks in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pisa_capc.decide.calibration import UCAPC, retained
from pisa_capc.decide.calibration.blocks import Blocks
from pisa_capc.decide.calibration.retained import retained_sums
from tests.decide.calibration.examples import shifted_captures

GROUPS, CLASSES, WIDTH, FEATURES, BLOCKS, TOP = 2, 3, 20, 4, 12, 15


def drawn(levels: int) -> tuple[Blocks[torch.Tensor], Blocks[torch.Tensor]]:
    """Assignments of so many different values, and embeddings."""

    def assignment(number: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(number)
        return torch.randint(levels, (GROUPS, CLASSES, WIDTH), generator=draw).double() / levels

    def embedding(number: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(100 + number)
        return torch.randn(GROUPS, WIDTH, FEATURES, generator=draw, dtype=torch.float64)

    return Blocks(assignment, BLOCKS, keep=False), Blocks(embedding, BLOCKS, keep=False)


@pytest.mark.parametrize("levels", [10**9, 50, 2, 1], ids="{} levels".format)
@pytest.mark.parametrize("room", [2**22, 1])
def test_one_walk_gives_what_many_walks_give(levels: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "_LAID_ASIDE", room)
    assignment, embedding = drawn(levels)
    walked, laid_aside = (retained_sums(assignment, embedding, TOP, kept) for kept in (True, False))
    torch.testing.assert_close(laid_aside, walked, rtol=0, atol=1e-12)


def test_what_is_tied_without_end_is_not_laid_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "_LAID_ASIDE", 1)
    assert retained._sums_of_laid_aside(*drawn(2), TOP) is None
    assert retained._sums_of_laid_aside(*drawn(10**9), TOP) is not None


@pytest.mark.parametrize("scale", [1.0, 30.0], ids=["float32 kernel", "scores too far apart for it"])
def test_streamed_float32_scores_give_their_own_precision(scale: float) -> None:
    example = shifted_captures((150, 100))
    embedding, logits = example.embedding.astype(np.float32), (scale * example.logits).astype(np.float32)
    whole, streamed = (
        UCAPC(top=20, workspace_mib=mib).calibrate(embedding, logits, example.capture) for mib in (1024, 0)
    )
    np.testing.assert_allclose(streamed.probability, whole.probability, rtol=0, atol=1e-6)
