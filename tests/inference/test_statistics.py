"""What is kept of the source: exact statistics, and frames taken evenly over each class."""

from __future__ import annotations

import numpy as np
import torch

from pisa_capc.inference.statistics import BANK, VALIDATION, openset_statistics


def statistics(label: np.ndarray, classes: int = 3) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    z = draw.normal(size=(len(label), 4)) + label[:, None]
    held = np.arange(len(label), dtype=np.float64)[:, None].repeat(4, 1)
    found = openset_statistics(z, label, held, draw.normal(size=(len(label), classes)), torch.from_numpy(label))
    return z, {name: value.numpy() for name, value in found.items()}


def test_moments_are_those_of_numpy():
    label = np.random.default_rng(1).integers(0, 3, 500)
    z, found = statistics(label)
    own = [z[label == k] for k in range(3)]
    np.testing.assert_allclose(found["class_mean"], [part.mean(0) for part in own], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["prior"], np.bincount(label) / 500, rtol=1e-6)
    within = sum(len(part) * np.cov(part.T, bias=True) for part in own) / 500
    np.testing.assert_allclose(found["covariance"], within, rtol=1e-4, atol=1e-6)


def test_frames_are_taken_evenly_over_each_class():
    label = np.repeat([0, 1, 2], [1000, 30, 101])
    z, found = statistics(label)
    assert len(found["bank"]) == BANK + 30 + BANK
    np.testing.assert_array_equal(found["bank"][:BANK], np.float32(z[:1000:20]))
    np.testing.assert_array_equal(np.bincount(found["validation_label"]), [VALIDATION, 30, VALIDATION])
    np.testing.assert_array_equal(found["validation"][:VALIDATION, 0], np.arange(0, 1000, 10))
    assert len(found["validation_logits"]) == len(found["validation"])


def test_a_class_without_frames_has_no_mass():
    _, found = statistics(np.repeat([0, 2], 50))
    np.testing.assert_array_equal(found["prior"], [0.5, 0, 0.5])
    np.testing.assert_array_equal(found["class_mean"][1], 0)
    assert set(found["validation_label"]) == {0, 2}
