"""Blocks are made once where they are kept and never pile up where they are not."""

from __future__ import annotations

import weakref

import pytest
import torch

from pisa_capc.core.errors import DataError
from pisa_capc.decide.calibration.blocks import Blocks, spilled
from pisa_capc.decide.calibration.inputs import check_inputs
from pisa_capc.decide.calibration.sinkhorn import class_potential
from pisa_capc.decide.calibration.ucapc import capture_prototypes
from pisa_capc.decide.calibration.workspace import batches, row_blocks


class Counted:
    """Makes blocks and knows how many were alive at once."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.alive, self.most, self.made = shape, 0, 0, 0

    def __call__(self, number: int) -> torch.Tensor:
        block = torch.rand(self.shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        self.made += 1
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(block, self._gone)
        return block

    def _gone(self) -> None:
        self.alive -= 1


@pytest.mark.parametrize(("keep", "made"), [(True, 5), (False, 15)])
def test_kept_blocks_are_made_once(keep: bool, made: int):
    make = Counted(2)
    blocks = Blocks(make, 5, keep)
    for _ in range(3):
        assert len(list(blocks)) == 5
    assert make.made == made


def test_streaming_holds_few_blocks_whatever_their_number():
    scores, features = Counted(1, 3, 40), Counted(1, 40, 4)
    assigned = Blocks(scores, 50, keep=False)
    capture_prototypes(assigned, Blocks(features, 50, keep=False), top=16)
    capture_prototypes(assigned, Blocks(features, 50, keep=False), top=16, threshold=0.5)
    class_potential(assigned, assigned.map(lambda s: torch.ones_like(s[:, :1]), keep=False), 2, spread=1.0, keep=False)
    assert scores.most <= 3
    assert features.most <= 3


def test_batches_cover_every_group_once_with_little_padding():
    sizes = (1, 1, 2, 3, 50, 60, 61, 400)
    capture = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    inputs = check_inputs(torch.ones(len(capture), 2), torch.ones(len(capture), 2), capture)
    chosen = batches(inputs)
    assert sorted(group for batch in chosen for group in batch) == list(range(len(sizes)))
    for batch in chosen:
        padded = len(batch) * max(sizes[group] for group in batch)
        assert padded <= 1.5 * sum(sizes[group] for group in batch)
        rows = list(row_blocks(inputs.groups, batch, width=7, keep=False))
        seen = torch.cat([block.index[block.present.squeeze(1) == 1] for block in rows])
        assert sorted(capture[seen].unique().tolist()) == sorted(batch)
        assert len(seen.unique()) == len(seen) == sum(sizes[group] for group in batch)


def test_spilled_blocks_are_made_once_and_read_back_the_same():
    made: list[int] = []

    def make(number: int) -> torch.Tensor:
        made.append(number)
        return torch.full((2, 3, number + 1), float(number), dtype=torch.float64)

    blocks = spilled(Blocks(make, 4, keep=False))
    for _ in range(3):
        for number, block in enumerate(blocks):
            assert torch.equal(block, torch.full((2, 3, number + 1), float(number), dtype=torch.float64))
    assert made == [0, 1, 2, 3]


def test_a_disk_too_small_for_spilled_blocks_is_a_clear_error(monkeypatch: pytest.MonkeyPatch):
    class Full:
        def seek(self, *_: int) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", Full)
    blocks = spilled(Blocks(lambda _: torch.ones(1, 2, 3, dtype=torch.float64), 2, keep=False))
    with pytest.raises(DataError, match="TMPDIR"):
        blocks[0]
