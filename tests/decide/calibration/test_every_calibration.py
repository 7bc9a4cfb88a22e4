"""What holds for every calibration of the registry, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.randomness import generator
from pisa_capc.core.registry import PartOrigin, loading
from pisa_capc.decide.calibration import (
    CALIBRATIONS,
    PRESETS,
    UCAPC,
    Calibrator,
    Careful,
    FrozenCalibration,
    Online,
    OnlineCalibrator,
    OpenSet,
    Peer,
    PriorUCAPC,
    SourceStatistics,
    Transduced,
    calibrator,
    calibrators,
    register_calibration,
)
from pisa_capc.decide.calibration.openset.scores import Energy
from tests.decide.calibration.examples import shifted_captures

# What the published calibration says of the examples.
pytestmark = pytest.mark.filterwarnings("ignore:devices seem to send unevenly")

EXAMPLE = shifted_captures()
SOURCE = SourceStatistics(
    weight=EXAMPLE.weight,
    class_mean=EXAMPLE.weight,
    covariance=0.25 * np.eye(6),
    confusion=np.full((4, 4), 2.0) + np.diag([50.0, 40.0, 60.0, 50.0]),
)
every = pytest.mark.parametrize("kind", calibrators().values(), ids=calibrators())


@every
@pytest.mark.parametrize("group", ["none", "capture"])
def test_probabilities_are_given_in_the_kind_of_the_logits(kind: type[Calibrator], group: str):
    embedding, logits = EXAMPLE.embedding.astype(np.float32), EXAMPLE.logits.astype(np.float32)
    method = kind().set_params(group=group)
    result = method.calibrate(embedding, logits, EXAMPLE.capture, SOURCE)
    assert result.probability.dtype == np.float32
    np.testing.assert_allclose(result.probability.sum(1), 1, atol=1e-6)
    np.testing.assert_array_equal(result.prediction, result.probability.argmax(1))
    assert np.isfinite(result.score).all()
    assert len(result.captures) == (1 if method.counted == "none" else 3)
    assert sum(summary.frames for summary in result.captures) == len(logits)
    in_torch = method.calibrate(torch.from_numpy(embedding), torch.from_numpy(logits), EXAMPLE.capture, SOURCE)
    assert isinstance(in_torch.probability, torch.Tensor)
    np.testing.assert_array_equal(in_torch.probability.numpy(), result.probability)


@every
def test_the_order_of_frames_does_not_matter(kind: type[Calibrator]):
    shuffled = generator(5, "test").permutation(len(EXAMPLE.logits))
    straight = kind().calibrate(EXAMPLE.embedding, EXAMPLE.logits, EXAMPLE.capture, SOURCE)
    mixed = kind().calibrate(*(values[shuffled] for values in EXAMPLE[:3]), SOURCE)
    np.testing.assert_allclose(mixed.probability, straight.probability[shuffled], rtol=0, atol=1e-7)


@every
def test_extreme_logits_and_zero_embeddings_stay_finite(kind: type[Calibrator]):
    logits = generator(6, "test").choice([-1e4, 0.0, 1e4], size=(30, 4))
    result = kind().calibrate(np.zeros((30, 6)), logits, source=SOURCE)
    assert np.isfinite(result.probability).all()
    np.testing.assert_allclose(result.probability.sum(1), 1, atol=1e-9)


@every
def test_a_single_frame_is_calibrated(kind: type[Calibrator]):
    result = kind().calibrate(EXAMPLE.embedding[:1], EXAMPLE.logits[:1], source=SOURCE)
    np.testing.assert_allclose(result.probability.sum(), 1)


@every
def test_results_are_written_into_given_arrays(kind: type[Calibrator]):
    out = {name: np.zeros_like(EXAMPLE.logits) for name in ("probability", "score")}
    result = kind().calibrate(EXAMPLE.embedding, EXAMPLE.logits, EXAMPLE.capture, SOURCE, out)
    expected = kind().calibrate(EXAMPLE.embedding, EXAMPLE.logits, EXAMPLE.capture, SOURCE)
    for name, values in out.items():
        assert np.shares_memory(values, getattr(result, name))
        np.testing.assert_array_equal(values, getattr(expected, name))


@every
def test_what_is_missing_of_the_source_is_named_if_it_is_needed(kind: type[Calibrator]):
    refusal, shares = "", np.ones(1)
    try:
        shares = kind().calibrate(EXAMPLE.embedding, EXAMPLE.logits).probability.sum(1)
    except DataError as error:
        refusal = str(error)
    assert refusal.startswith(f"{kind.title} needs source_" if refusal else "")
    np.testing.assert_allclose(shares, 1)


def test_titles_tell_calibrations_apart():
    titles = [kind.title for kind in (*calibrators().values(), PriorUCAPC, OpenSet)]
    assert all(titles)
    assert len(set(titles)) == len(titles)


@every
def test_scikit_learn_can_clone_it_and_set_its_parameters(kind: type[Calibrator]):
    method = kind()
    copy = clone(method)
    assert copy == method == kind(**method.get_params(deep=False))
    assert copy is not method
    changed = copy.set_params(group="auto")
    assert (changed.group, changed.get_params()["group"]) == ("auto", "auto")
    assert copy == method == kind()  # what it was made from is as it was
    with pytest.raises(ConfigError, match=r"unknown grouping 'captures'\. Did you mean 'capture'"):
        copy.set_params(group="captures")
    with pytest.raises(ConfigError, match=r"unknown setting 'grup'\. Did you mean 'group'"):
        copy.set_params(grup="capture")
    with pytest.raises(ConfigError, match=r"group is '\w+', which has no settings of its own; found name"):
        copy.set_params(group__name="capture")
    assert changed == clone(method).set_params(group="auto")
    assert hash(changed) == hash(clone(changed))


@every
def test_parts_of_a_rejection_are_cloned_and_set_with_it(kind: type[Calibrator]):
    method = OpenSet(kind(), Energy(3.0), alpha=0.1)
    copy = clone(method)
    assert copy == method
    assert copy.calibrator is not method.calibrator
    assert copy.get_params()["score__temperature"] == 3.0
    assert copy.get_params()["calibrator__group"] == kind().group
    changed = copy.set_params(calibrator__group="auto", score__temperature=2.0, alpha=0.2)
    assert changed == OpenSet(kind().set_params(group="auto"), Energy(2.0), alpha=0.2)
    assert copy == method == OpenSet(kind(), Energy(3.0), alpha=0.1)
    with pytest.raises(ConfigError, match="temperature is -1"):
        copy.set_params(alpha=0.3, score__temperature=-1)


def test_settings_can_be_set_together_with_the_part_that_has_them():
    method = OpenSet(UCAPC(), "knn").set_params(score=Energy(), score__temperature=4.0, calibrator__top=9)
    assert (method.score, method.calibrator) == (Energy(4.0), UCAPC(top=9))
    shares = PriorUCAPC(prior="given", shares=(0.5, 0.3, 0.2))
    assert clone(shares) == shares
    assert PRESETS["paper"].set_params(top=3) == UCAPC(top=3)
    assert PRESETS["paper"] == UCAPC()


@every
def test_a_fit_serves_later_frames_or_is_refused_in_words(kind: type[Calibrator]):
    method = kind().set_params(group="capture")
    if not kind.freezes:
        with pytest.raises(ConfigError, match=rf"{kind.title} decides the frames of a call together"):
            method.fit(*EXAMPLE[:3], source=SOURCE)
        return
    expected = method.calibrate(*EXAMPLE[:3], source=SOURCE)
    kept = method.fit(*EXAMPLE[:3], source=SOURCE)
    assert isinstance(kept, FrozenCalibration)
    if kind is Careful:  # whose panels are kept as prototypes and potentials, which is close to them
        assert (kept.predict(*EXAMPLE[:3]) == expected.prediction).mean() > 0.85
        return
    np.testing.assert_allclose(kept.predict_proba(*EXAMPLE[:3]), expected.probability, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(kept.predict(*EXAMPLE[:3]), expected.prediction)
    alone = kept.predict_proba(EXAMPLE.embedding[:1], EXAMPLE.logits[:1], EXAMPLE.capture[:1])
    np.testing.assert_allclose(alone[0], expected.probability[0], rtol=0, atol=1e-10)


@every
def test_a_result_is_short_in_print_and_a_table_in_a_notebook(kind: type[Calibrator]):
    names = np.array(["E1/<b>", "E1/M & L", "E2"])[EXAMPLE.capture]
    result = kind().set_params(group="capture").calibrate(*EXAMPLE[:2], names, SOURCE)
    assert repr(result) == f"Calibration(225 frames, 4 classes, 3 captures: {result.changed} decisions changed)"
    page = result._repr_html_()
    for summary, name in zip(result.captures, ("E1/&lt;b&gt;", "E1/M &amp; L", "E2"), strict=True):
        assert f"<tr><td>{name}</td><td>{summary.frames}</td><td>{summary.changed}</td>" in page
    assert (">level<" in page) == (result.judged is not None)
    assert "<b>" not in page


@every
def test_it_decides_a_stream_and_goes_on_from_what_was_kept_of_it(kind: type[Calibrator], tmp_path: Path):
    frames = np.tile(EXAMPLE.embedding, (3, 1)), np.tile(EXAMPLE.logits, (3, 1))
    settings = Online(kind(), sample=64, memory=128, warmup=16, refresh=64)
    stream = OnlineCalibrator(4, 6, settings=settings, source=SOURCE)
    first = stream.push(*(part[:400] for part in frames))
    assert stream.by == kind.title
    np.testing.assert_allclose(first.probability.sum(axis=1), 1)
    stream.save(tmp_path)
    again = OnlineCalibrator.load(tmp_path)
    assert again.settings == stream.settings
    rest = [each.push(*(part[400:] for part in frames)) for each in (stream, again)]
    np.testing.assert_array_equal(rest[0].probability, rest[1].probability)
    direct = rest[0].prediction == frames[1][400:].argmax(axis=1)
    assert kind.title != "direct" or direct.mean() > 0.9  # it is approximated by prototypes


@pytest.fixture
def sharper() -> Iterator[type[Calibrator]]:
    origin = PartOrigin("test", "1.0", "0" * 64)

    with loading(origin):

        @register_calibration("sharper")
        class Sharper(Peer):
            title = "twice as sure"

            def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
                return Transduced(2 * logits, torch.softmax(2 * logits, dim=1))

    yield Sharper
    CALIBRATIONS.forget(origin)


def test_one_class_adds_a_calibration(sharper: type[Calibrator], tmp_path: Path):
    kind = calibrator("sharper")
    assert kind is sharper
    assert list(calibrators())[-1] == "sharper"
    result = kind().calibrate(*EXAMPLE[:3])
    torch.testing.assert_close(
        torch.from_numpy(result.probability), torch.softmax(2 * torch.from_numpy(EXAMPLE.logits), 1)
    )
    assert result.changed == 0
    for holds in (
        test_the_order_of_frames_does_not_matter,
        test_scikit_learn_can_clone_it_and_set_its_parameters,
        test_parts_of_a_rejection_are_cloned_and_set_with_it,
        test_a_fit_serves_later_frames_or_is_refused_in_words,
        test_a_result_is_short_in_print_and_a_table_in_a_notebook,
    ):
        holds(kind)
    test_it_decides_a_stream_and_goes_on_from_what_was_kept_of_it(kind, tmp_path)
    with pytest.raises(ConfigError, match="'lame': the name is taken"):
        register_calibration("lame")(sharper)


def test_a_calibration_that_is_gone_is_answered_with_advice():
    with pytest.raises(ConfigError, match=r"the calibration safe of earlier versions is gone\. Use careful"):
        calibrator("safe")


def test_a_calibration_that_was_taken_back_is_not_known():
    assert "sharper" not in calibrators()
    with pytest.raises(ConfigError, match=r"unknown calibration 'lamee'\. Did you mean 'lame'"):
        calibrator("lamee")


def test_a_class_without_a_title_is_called_by_its_name():
    class Mine(UCAPC):
        pass

    assert (Mine.title, UCAPC.title) == ("Mine", "U-CAPC")


def test_a_fitted_calibration_is_short_in_print_and_a_table_in_a_notebook():
    names = np.array(["E1/<b>", "E1/M", "E2"])[EXAMPLE.capture]
    plain = UCAPC().fit(*EXAMPLE[:2], names, SOURCE)
    assert repr(plain) == "FrozenCalibration(3 captures, 4 classes, 6 features)"
    assert "<td>E1/&lt;b&gt;</td></tr>" in plain._repr_html_()
    many = UCAPC().calibrate(*EXAMPLE[:2], np.arange(225))._repr_html_()
    assert (many.count("<tr>"), "and 175 more" in many) == (52, True)
    applied = plain.apply(*EXAMPLE[:2], names)
    assert repr(applied).startswith("Applied(225 frames, 4 classes, 3 captures: ")
    rejecting = OpenSet(UCAPC(), "energy", threshold=0.0).calibrate(*EXAMPLE[:2], names)
    assert repr(rejecting).endswith(f", {(~rejecting.known).sum()} rejected)")
