"""A frozen model on frames that miss antennas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.descriptors import cfo_descriptors
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.inference.inputs import available_input, model_input
from pisa_capc.model.inference.model import method_of
from pisa_capc.model.runs import ModelRun
from tests.model.methods.tools import IN_EPOCHS
from tests.problems import small_frames

ANTENNAS, SAMPLES = 3, 64
FRAMES = small_frames(devices=2, environments=1, frames=6, samples=SAMPLES, antennas=ANTENNAS).unlabelled()


def frozen(method: str = "pisa") -> TrainedModel:
    """A model of random weights, as good as a trained one where scores do not matter."""
    about = ModelRun(
        method=method, encoder="cnn", devices=("D1", "D2"), source=("E2", "E3"), geometry=FRAMES.geometry,
        samples=SAMPLES, sample_rate_hz=20e6,
    )  # fmt: skip
    torch.manual_seed(0)
    model = method_of(about).build(1).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.1 * torch.randn_like(value))
    return TrainedModel(model, about, {})


def with_iq(iq: np.ndarray) -> UnlabelledFrames:
    return replace(FRAMES, source=replace(FRAMES.source, iq=iq))  # type: ignore[type-var]


def silenced(frames: list[int], antennas: list[int]) -> UnlabelledFrames:
    iq = FRAMES.iq
    iq[np.ix_(frames, antennas)] = 0
    return with_iq(iq)


@pytest.mark.parametrize("method", IN_EPOCHS)
def test_frames_with_all_antennas_do_not_change_by_a_bit(method: str) -> None:
    trained = frozen(method)
    iq, descriptor = torch.from_numpy(model_input(FRAMES)), cfo_descriptors(FRAMES)
    with torch.no_grad():
        plain = trained.model(iq, torch.from_numpy(descriptor))
    found = embed(trained, FRAMES)
    np.testing.assert_array_equal(found.logits, plain.logits)
    np.testing.assert_array_equal(found.embedding, plain.embedding)
    np.testing.assert_array_equal(found.cfo_hz, FRAMES.cfo_hz.mean(axis=1))
    beside = embed(trained, silenced([4], [1]))  # in one batch with a frame that misses one
    others = np.arange(len(FRAMES)) != 4
    np.testing.assert_array_equal(beside.logits[others], found.logits[others])
    np.testing.assert_array_equal(beside.embedding[others], found.embedding[others])
    np.testing.assert_array_equal(beside.cfo_hz[others], found.cfo_hz[others])
    assert not np.allclose(beside.logits[4], found.logits[4])


@pytest.mark.parametrize("method", IN_EPOCHS)
def test_a_silent_antenna_is_one_that_is_named_as_missing(method: str) -> None:
    trained = frozen(method)
    noisy = FRAMES.iq
    noisy[:, 1] = np.random.default_rng(0).normal(0, 100, noisy[:, 1].shape)
    silent = embed(trained, silenced(list(range(len(FRAMES))), [1]))
    for frames in (FRAMES, with_iq(noisy)):
        named = embed(trained, frames, missing=[1])
        np.testing.assert_array_equal(named.logits, silent.logits)
        np.testing.assert_array_equal(named.embedding, silent.embedding)
        np.testing.assert_array_equal(named.cfo_hz, silent.cfo_hz)


def test_a_missing_antenna_is_masked_and_the_power_is_that_of_the_others() -> None:
    trained = frozen()
    found = embed(trained, FRAMES, missing=[2, 0])
    left = FRAMES.iq[:, 1]
    iq = np.zeros((len(FRAMES), ANTENNAS, SAMPLES), dtype=np.complex64)
    iq[:, 1] = left / np.sqrt(np.mean(np.abs(left) ** 2, axis=1, keepdims=True))
    mask = torch.tensor([False, True, False]).expand(len(FRAMES), 3)
    descriptor = torch.from_numpy(cfo_descriptors(FRAMES, np.array([False, True, False])))
    with torch.no_grad():
        expected = trained.model(torch.view_as_real(torch.from_numpy(iq)), descriptor, mask)
    np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.cfo_hz, FRAMES.cfo_hz[:, 1])
    unmasked = trained.model(torch.view_as_real(torch.from_numpy(iq)), descriptor).logits.detach()
    assert not np.allclose(found.logits, unmasked, rtol=1e-2)


@pytest.mark.parametrize("method", ["equalised", "eada", "pisa-equalised"])
def test_behind_an_equaliser_the_antennas_that_are_left_keep_their_power(method: str) -> None:
    equalise = frozen(method).model.front
    seen, present = available_input(silenced([0], [1]))
    found = equalise(torch.from_numpy(seen), torch.from_numpy(present)).square().sum(-1).mean(-1)
    torch.testing.assert_close(found[1:].mean(1), torch.ones(len(FRAMES) - 1))
    assert found[0, [0, 2]].mean() == pytest.approx(1, rel=1e-5)
    assert found[0, 1] == 0


def test_the_descriptor_comes_from_the_antennas_that_are_there() -> None:
    wild = replace(FRAMES.source, cfo_hz=FRAMES.cfo_hz * np.array([1, 1, 100]))  # type: ignore[type-var]
    trained = frozen()
    a, b = (embed(trained, frames, missing=[2]) for frames in (FRAMES, replace(FRAMES, source=wild)))
    np.testing.assert_array_equal(a.logits, b.logits)
    np.testing.assert_array_equal(a.cfo_hz, b.cfo_hz)


def test_what_an_absent_antenna_holds_does_not_matter() -> None:
    iq = FRAMES.iq
    iq[:, 0] = np.nan
    with pytest.raises(DataError, match="holds NaN"):
        embed(frozen(), with_iq(iq))
    assert np.isfinite(embed(frozen(), with_iq(iq), missing=[0]).logits).all()


def test_antennas_that_do_not_exist_are_refused() -> None:
    for missing in ([3], [0, -1]):
        with pytest.raises(ConfigError, match=rf"missing antenna {missing[-1]}: expected 0 to 2"):
            embed(frozen(), FRAMES, missing=missing)
    with pytest.raises(ConfigError, match="all 3 are named"):
        embed(frozen(), FRAMES, missing=[2, 1, 0, 0])


def test_a_frame_without_any_antenna_is_named() -> None:
    bad = silenced([6 + 3], [0, 1])  # the fourth frame of the second device
    assert np.isfinite(embed(frozen(), bad).logits).all()
    with pytest.raises(DataError, match=r"frame 3 of E1/L1 has no antenna left: .* but the missing 2"):
        embed(frozen(), bad, missing=[2])
    with pytest.raises(DataError, match="frame 0 of E1/L1 has no antenna left: it is zero in its first 64 samples"):
        embed(frozen(), silenced([0], [0, 1, 2]))
