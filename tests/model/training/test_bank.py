"""The frames of a training, as the model sees them."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pisa_capc import load
from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames
from pisa_capc.model.inference.inputs import model_input
from pisa_capc.model.training.bank import Bank, union
from tests.datasets import write_random
from tests.problems import runs, small_frames

FRAMES = small_frames(devices=2, environments=2, frames=8)
CPU = torch.device("cpu")


def with_iq(iq: np.ndarray) -> Frames:
    return replace(FRAMES, source=replace(FRAMES.source, iq=iq.astype(np.complex64)))  # type: ignore[type-var]


def test_the_model_sees_frames_of_unit_mean_power() -> None:
    loud = model_input(with_iq(7 * FRAMES.iq))
    assert loud.shape == (32, 2, 32, 2)
    np.testing.assert_allclose((loud**2).sum(-1).mean((1, 2)), 1, rtol=1e-5)
    np.testing.assert_allclose(loud, model_input(FRAMES), rtol=1e-4, atol=1e-6)  # the receiver's gain is gone
    ratio = (loud[0, 0] ** 2).sum() / (loud[0, 1] ** 2).sum()  # the antennas' powers are not made equal
    first = np.abs(FRAMES.iq[0]) ** 2
    assert ratio == pytest.approx(first[0].sum() / first[1].sum(), rel=1e-4)


def test_power_is_that_of_the_segment() -> None:
    short = model_input(FRAMES.segment(10))
    np.testing.assert_allclose((short**2).sum(-1).mean((1, 2)), 1, rtol=1e-5)
    whole = model_input(FRAMES)[:, :, :10]
    np.testing.assert_allclose(short[0] / short[0, 0, 0, 0], whole[0] / whole[0, 0, 0, 0], rtol=1e-3)


def test_bad_frames_are_named_by_their_place_in_the_recording() -> None:
    iq = FRAMES.iq
    row = 8 + 5  # the sixth frame of the second device
    iq[row, 1, 3] = np.inf
    with pytest.raises(DataError, match="frame 5 of E1/D2/L1 holds NaN or infinite"):
        model_input(with_iq(iq))
    iq[row] = 0
    iq[row, :, 20:] = 1
    model_input(with_iq(iq))
    with pytest.raises(DataError, match="frame 5 of E1/D2/L1 is zero in its first 16 samples"):
        model_input(with_iq(iq).segment(16))


def test_a_bank_holds_each_frame_once_and_finds_it_again() -> None:
    parts = [part for run in runs(FRAMES, (1, 1), (2, 2)) for part in (run.split.train, run.split.validation)]
    bank = Bank(union(parts), CPU, resident=True)
    np.testing.assert_array_equal(bank.frames.rows, np.flatnonzero(FRAMES.environment == 1))
    for part in parts:
        rows = bank.position(part)
        np.testing.assert_array_equal(bank.gather(torch.from_numpy(rows)).numpy(), model_input(part))
        np.testing.assert_array_equal(bank.label[rows].numpy(), part.device)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    """Frames on disk, of more antennas and samples than fit one block of the product."""
    folder = tmp_path_factory.mktemp("bank") / "set"
    return load(write_random(folder, frames=11, samples=40)).segment(32)


@pytest.mark.parametrize("mapped", [True, False])
def test_streamed_batches_are_the_resident_ones_bit_by_bit(
    stored: Frames, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    monkeypatch.setattr("pisa_capc.data.store.native.MAPPED", 512 if mapped else 0)
    for frames in (FRAMES, replace(stored, source=copy.deepcopy(stored.source))):
        banks = [Bank(frames, CPU, resident=r) for r in (True, False)]
        assert banks[1].iq is None
        rng = np.random.default_rng(0)
        for plan in (
            rng.integers(len(frames), size=(9, 2, 40)),
            [np.arange(5), np.arange(5, 12), rng.permutation(len(frames))],  # not all of one size
        ):
            for rows, a, b in zip(plan, banks[0].stream(plan), banks[1].stream(plan), strict=True):
                assert a.shape == (*rows.shape, frames.antennas, 32, 2)
                assert torch.equal(a.view(torch.int32), b.view(torch.int32))
                assert torch.equal(a, banks[0].gather(torch.from_numpy(rows)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gets_the_same_bits(stored: Frames) -> None:
    plan = np.random.default_rng(0).integers(len(stored), size=(20, 2, 40))
    with_product_on_the_device = Bank(stored, torch.device("cuda"), resident=False)
    here = Bank(stored, CPU, resident=True)
    for a, b in zip(with_product_on_the_device.stream(plan), here.stream(plan), strict=True):
        assert torch.equal(a.cpu().view(torch.int32), b.view(torch.int32))


def test_a_bad_frame_is_named_before_the_training_starts() -> None:
    iq = FRAMES.iq
    iq[13, 0, 0] = np.nan
    for resident in (True, False):
        with pytest.raises(DataError, match="frame 5 of E1/D2/L1 holds NaN or infinite"):
            Bank(with_iq(iq), CPU, resident)


def test_a_file_that_goes_bad_while_it_is_streamed_is_an_error_and_no_thread_is_left(tmp_path: Path) -> None:
    frames = load(write_random(tmp_path / "set"))
    bank = Bank(frames, CPU, resident=False)
    (tmp_path / "set/E2/D01/L1.h5").write_bytes(b"not a capture")
    batches = bank.stream(np.arange(len(frames)).reshape(-1, 2))
    with pytest.raises(DataError, match=r"E2/D01/L1.h5: cannot be read"):
        for _ in batches:
            pass
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]


def test_a_bank_is_resident_while_memory_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(FRAMES) * 2 * 32 * 8
    for free, resident in ((10 * size, True), (size, False)):
        monkeypatch.setattr("pisa_capc.model.training.bank.free_bytes", lambda device, free=free: free)
        assert Bank(FRAMES, CPU).resident is resident
