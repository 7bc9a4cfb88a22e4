"""What a model knows of its devices stays consistent when one comes or goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pisa_capc.core.errors import ModelError
from pisa_capc.decide.enrolment import recognised, remove
from pisa_capc.decide.enrolment.statistics import FOLDS, checked, left_out_logits
from pisa_capc.model.inference import TrainedModel, embed
from tests.decide.enrolment.conftest import FRAMES, heard


def test_every_statistic_has_the_new_device(trained: TrainedModel, larger: TrainedModel) -> None:
    before, after = trained.statistics, larger.statistics
    own = embed(trained, heard("D4", "E2", 30), "cpu").embedding
    np.testing.assert_allclose(after.class_mean[3], own.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.prior, [*(0.75 * before.prior), 0.25], rtol=1e-6)
    np.testing.assert_allclose(after.mean, after.prior @ after.class_mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.bincount(after.bank_label), [50, 50, 50, 30])
    np.testing.assert_allclose(after.bank[after.bank_label == 3], own, atol=1e-5)
    np.testing.assert_array_equal(np.bincount(after.validation_label), [32, 32, 32, 30])
    np.testing.assert_allclose(after.confusion.sum(axis=0), [32, 32, 32, 32], rtol=1e-6)
    logits = after.validation @ after.weight.T + after.bias
    theirs = after.validation_label < 3
    np.testing.assert_allclose(after.validation_logits[theirs], logits[theirs], rtol=1e-3, atol=1e-3)
    for name in ("covariance", "temperature"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    for name, value in before.known().items():
        assert after.known()[name].dtype == value.dtype, name


def test_a_frame_has_no_part_in_the_row_that_it_validates(trained: TrainedModel) -> None:
    own = np.random.default_rng(0).normal(size=(20, 64))
    given: list[np.ndarray] = []

    def row(source: object, frames: np.ndarray) -> tuple[np.ndarray, float]:
        given.append(frames)
        return np.ones(64), float(len(given))

    logits = left_out_logits(trained.statistics, own, row)
    for fold, frames in enumerate(given):
        held = np.arange(20) % FOLDS == fold
        np.testing.assert_array_equal(frames, own[~held])
        np.testing.assert_allclose(logits[held], own[held].sum(axis=1) + fold + 1)
    assert len(given) == FOLDS


def test_what_was_enrolled_and_removed_is_as_if_it_had_never_been(trained: TrainedModel, larger: TrainedModel) -> None:
    again = remove(larger, "D4")
    for name, value in trained.statistics.known().items():
        np.testing.assert_allclose(again.statistics.known()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    frames = FRAMES.unlabelled()
    np.testing.assert_array_equal(embed(again, frames, "cpu").logits, embed(trained, frames, "cpu").logits)


def test_nothing_of_a_removed_device_is_left_in_what_is_kept_of_each(larger: TrainedModel) -> None:
    before, after = larger.statistics, remove(larger, "D2").statistics
    kept = [0, 2, 3]
    np.testing.assert_array_equal(after.class_mean, before.class_mean[kept])
    np.testing.assert_array_equal(after.bank, before.bank[before.bank_label != 1])
    np.testing.assert_array_equal(np.bincount(after.bank_label), [50, 50, 30])
    np.testing.assert_array_equal(after.validation, before.validation[before.validation_label != 1])
    np.testing.assert_array_equal(np.unique(after.validation_label), [0, 1, 2])
    np.testing.assert_allclose(after.prior.sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(after.mean, after.prior @ after.class_mean, rtol=1e-4, atol=1e-5)
    assert after.confusion.shape == (3, 3)


def test_recognised_is_the_share_of_each_device(trained: TrainedModel) -> None:
    source = trained.statistics
    label = source.validation_label
    wrong = np.eye(3)[(label + (np.arange(len(label)) % 2)) % 3]  # every other frame is given to the next device
    np.testing.assert_allclose(recognised(replace(source, validation_logits=wrong)), [0.5, 0.5, 0.5])


def test_models_of_earlier_versions_are_taken_where_it_is_sure_whose_the_bank_is(trained: TrainedModel) -> None:
    source = replace(trained.statistics, bank_label=None)
    np.testing.assert_array_equal(checked(source).bank_label, trained.statistics.bank_label)
    with pytest.raises(ModelError, match="does not say whose"):
        checked(replace(source, bank=source.bank[:-1]))
    with pytest.raises(ModelError, match="keeps no covariance"):
        checked(replace(source, covariance=None))
