"""U-CAPC is the published algorithm, and has the properties its equations promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration import workspace
from pisa_capc.decide.calibration.blocks import Blocks
from pisa_capc.decide.calibration.ucapc import PRESETS, UCAPC, capture_prototypes
from tests.decide.calibration.examples import Example, shifted_captures
from tests.reference import ucapc as reference

VARIANTS = [
    {},
    {"prior": "none"},
    {"top": 7},
    {"threshold": 0.6, "top": 11},
    {"balance": 0.4, "epsilon": 0.5},
    {"passes": 1, "fusion": 0.5, "temperature": 0.07, "sinkhorn_iterations": 3},
    {"passes": 0},
]


@pytest.fixture
def example() -> Example:
    return shifted_captures()


@pytest.mark.parametrize("parameters", VARIANTS, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-10)])
def test_equals_the_slow_reference(example: Example, parameters: dict, dtype: type, tolerance: float):
    embedding, logits = example.embedding.astype(dtype), example.logits.astype(dtype)
    result = UCAPC(**parameters).calibrate(embedding, logits, example.capture)
    probability, score = reference.calibrate(embedding, logits, example.capture, **parameters)
    assert result.probability.dtype == result.score.dtype == dtype
    np.testing.assert_allclose(result.probability, probability, rtol=0, atol=tolerance)
    np.testing.assert_allclose(result.score, score, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(result.prediction, probability.argmax(1))


@pytest.mark.parametrize("prior", ["balanced", "none"])
def test_equals_the_reference_on_confident_scores_where_float32_ties(prior: str):
    example = shifted_captures((150, 100), noise=0.2, seed=3)
    embedding, logits = example.embedding.astype(np.float32), (4 * example.logits).astype(np.float32)
    result = UCAPC(top=20, prior=prior).calibrate(embedding, logits, example.capture)
    probability, _ = reference.calibrate(embedding, logits, example.capture, top=20, prior=prior)
    np.testing.assert_allclose(result.probability, probability, rtol=0, atol=1e-5)


def test_rows_sum_to_one_and_classes_are_filled_evenly(example: Example):
    result = UCAPC(sinkhorn_iterations=3000).calibrate(example.embedding, example.logits, example.capture)
    np.testing.assert_allclose(result.probability.sum(1), 1, rtol=0, atol=1e-12)
    for summary in result.captures:
        np.testing.assert_allclose(summary.mass_after, summary.frames / 4, rtol=1e-3)


def test_the_order_of_frames_does_not_matter(example: Example):
    shuffled = generator(1, "test").permutation(len(example.logits))
    calibrator = UCAPC(top=5)
    straight = calibrator.calibrate(example.embedding, example.logits, example.capture)
    mixed = calibrator.calibrate(example.embedding[shuffled], example.logits[shuffled], example.capture[shuffled])
    np.testing.assert_allclose(mixed.probability, straight.probability[shuffled], rtol=0, atol=1e-10)


def test_the_order_of_tied_frames_does_not_matter():
    # Six frames with the same logits compete for three places; which three differ only in their embeddings.
    embedding = np.eye(6)
    logits = np.tile([2.0, 0.0], (6, 1))
    result = UCAPC(top=3, passes=1).calibrate(embedding, logits)
    np.testing.assert_allclose(result.prototypes[0], np.full((2, 6), 1 / np.sqrt(6)), atol=1e-12)


def test_groups_do_not_influence_each_other(example: Example):
    together = UCAPC().calibrate(example.embedding, example.logits, example.capture)
    for key in (0, 1, 2):
        rows = example.capture == key
        alone = UCAPC().calibrate(example.embedding[rows], example.logits[rows])
        np.testing.assert_allclose(together.probability[rows], alone.probability, rtol=0, atol=1e-12)
        np.testing.assert_allclose(together.prototypes[key], alone.prototypes[0], rtol=0, atol=1e-12)


def test_many_small_captures_equal_each_on_its_own():
    example = shifted_captures(tuple(range(1, 40)), noise=0.8)
    together = UCAPC(top=4).calibrate(example.embedding, example.logits, example.capture)
    probability, _ = reference.calibrate(example.embedding, example.logits, example.capture, top=4)
    np.testing.assert_allclose(together.probability, probability, rtol=0, atol=1e-10)


@pytest.mark.parametrize("parameters", [{}, {"top": 7, "threshold": 0.3}, {"prior": "none"}], ids=str)
@pytest.mark.parametrize("workspace_mib", [0, 1024])
def test_streamed_blocks_equal_one_block(
    example: Example, parameters: dict, workspace_mib: int, monkeypatch: pytest.MonkeyPatch
):
    whole = UCAPC(**parameters).calibrate(example.embedding, example.logits, example.capture)
    monkeypatch.setattr(workspace, "BLOCK_ELEMENTS", {"cpu": 130})  # thirteen frames a block
    streamed = UCAPC(**parameters, workspace_mib=workspace_mib).calibrate(
        example.embedding, example.logits, example.capture
    )
    np.testing.assert_allclose(streamed.probability, whole.probability, rtol=0, atol=1e-12)
    np.testing.assert_allclose(streamed.score, whole.score, rtol=0, atol=1e-10)
    assert streamed.changed == whole.changed


def test_no_fusion_leaves_the_logits(example: Example):
    result = UCAPC(fusion=0, prior="none").calibrate(example.embedding, example.logits, example.capture)
    np.testing.assert_array_equal(result.score, example.logits)
    np.testing.assert_allclose(result.probability, softmax(example.logits, axis=1), rtol=0, atol=1e-12)
    assert result.changed == 0


def test_no_balance_in_the_assignment_is_the_softmax_prototype(example: Example):
    result = UCAPC(balance=0, passes=1).calibrate(example.embedding, example.logits)
    unit = example.embedding / np.linalg.norm(example.embedding, axis=1, keepdims=True)
    expected = softmax(example.logits, axis=1).T @ unit
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(result.prototypes[0], expected, rtol=0, atol=1e-12)


def test_a_constant_per_frame_and_a_length_per_embedding_change_nothing(example: Example):
    draw = generator(2, "test")
    constant, length = draw.normal(scale=20, size=(225, 1)), draw.uniform(0.1, 10, size=(225, 1))
    plain = UCAPC(top=9).calibrate(example.embedding, example.logits, example.capture)
    moved = UCAPC(top=9).calibrate(length * example.embedding, example.logits + constant, example.capture)
    np.testing.assert_allclose(moved.probability, plain.probability, rtol=0, atol=1e-10)


def test_renaming_classes_renames_the_result(example: Example):
    swapped = [2, 0, 3, 1]
    plain = UCAPC().calibrate(example.embedding, example.logits, example.capture)
    renamed = UCAPC().calibrate(example.embedding, example.logits[:, swapped], example.capture)
    np.testing.assert_allclose(renamed.probability, plain.probability[:, swapped], rtol=0, atol=1e-12)


def test_every_row_of_the_ablation_is_a_preset(example: Example):
    results = {name: preset.calibrate(*example[:3]) for name, preset in PRESETS.items()}
    np.testing.assert_array_equal(results["direct"].score, example.logits)
    np.testing.assert_array_equal(results["direct"].prediction, example.logits.argmax(1))
    without = UCAPC().calibrate(example.embedding, example.logits)
    np.testing.assert_allclose(results["without-grouping"].probability, without.probability, atol=1e-12)
    assert results["without-prior"].captures[0].mass_after.std() > results["paper"].captures[0].mass_after.std()
    assert UCAPC.preset("paper", top=3) == UCAPC(top=3)
    with pytest.raises(ConfigError, match="Did you mean 'without-prior'"):
        UCAPC.preset("withoutprior")


def test_calibration_helps_where_captures_are_shifted():
    example = shifted_captures((400, 400, 400), classes=6, features=8, noise=0.7)
    accuracy = {
        name: (preset.calibrate(*example[:3]).prediction == example.label).mean() for name, preset in PRESETS.items()
    }
    assert accuracy["paper"] > accuracy["direct"] + 0.02
    assert accuracy["paper"] > accuracy["without-grouping"]


def test_a_class_without_a_retained_frame_scores_zero():
    assignment = torch.tensor([[[0.9, 0.8], [0.1, 0.2]]], dtype=torch.float64)
    embedding = torch.eye(2, dtype=torch.float64).unsqueeze(0)
    prototypes = capture_prototypes(
        Blocks(lambda _: assignment, 1, True), Blocks(lambda _: embedding, 1, True), threshold=0.5
    )
    assert prototypes[0, 1].tolist() == [0.0, 0.0]
    assert prototypes[0, 0].norm() == pytest.approx(1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_torch_out(example: Example, dtype: torch.dtype):
    embedding, logits = (torch.from_numpy(a).to(dtype) for a in (example.embedding, example.logits))
    result = UCAPC().calibrate(embedding, logits, torch.from_numpy(example.capture))
    assert isinstance(result.probability, torch.Tensor)
    assert result.probability.dtype == dtype
    expected = UCAPC().calibrate(embedding.numpy(), logits.numpy(), example.capture)
    np.testing.assert_array_equal(result.probability.numpy(), expected.probability)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_cuda_equals_the_reference(example: Example, dtype: torch.dtype, tolerance: float):
    embedding, logits = (torch.from_numpy(a).to("cuda", dtype) for a in (example.embedding, example.logits))
    result = UCAPC(top=9).calibrate(embedding, logits, example.capture)
    probability, _ = reference.calibrate(embedding.cpu().numpy(), logits.cpu().numpy(), example.capture, top=9)
    assert result.probability.device.type == "cuda"
    np.testing.assert_allclose(result.probability.cpu().numpy(), probability, rtol=0, atol=tolerance)


def test_results_go_into_given_memory_mapped_arrays(example: Example, tmp_path):
    given = {
        name: np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", np.float32, example.logits.shape)
        for name in ("probability", "score")
    }
    result = UCAPC().calibrate(example.embedding, example.logits, example.capture, out=given)
    expected = UCAPC().calibrate(example.embedding, example.logits, example.capture)
    np.testing.assert_allclose(given["probability"], expected.probability, atol=1e-6)
    np.testing.assert_array_equal(result.score, given["score"])


def test_the_summary_counts_what_happened(example: Example):
    result = UCAPC().calibrate(example.embedding, example.logits, example.capture)
    direct = example.logits.argmax(1)
    assert result.changed == (result.prediction != direct).sum() > 0
    for key, summary in enumerate(result.captures):
        rows = example.capture == key
        assert summary.capture == key
        assert summary.frames == rows.sum()
        assert summary.changed == (result.prediction[rows] != direct[rows]).sum()
        np.testing.assert_allclose(summary.mass_before, softmax(example.logits[rows], axis=1).sum(0))
        np.testing.assert_allclose(summary.mass_after, result.probability[rows].sum(0))


def test_captures_of_one_frame_keep_the_decision_of_their_scores(example: Example):
    # Balancing one frame makes every class equally likely; what then decides must not be rounding.
    result = UCAPC().calibrate(example.embedding, example.logits, np.arange(len(example.logits)))
    np.testing.assert_array_equal(result.prediction, result.score.argmax(axis=1))
