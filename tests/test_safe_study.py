"""The study's guard learns from rehearsals and decides capture by capture."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from studies.rehearsals import (
    KINDS,
    PENALTY,
    REPEATS,
    SIZES,
    TOLERATED_LOSS,
    Rehearsals,
    learn_thresholds,
    rehearse,
)
from studies.safe import LEVEL_CALIBRATIONS, LEVELS, Guard, Safe, prices

from pisa_capc.core.errors import DataError
from pisa_capc.data.deployments import draw_capture, draw_shares
from pisa_capc.data.scores import macro_f1
from pisa_capc.decide.calibration import UCAPC, Calibration, FrozenCalibration
from tests.decide.calibration.examples import shifted_captures

EXAMPLE = shifted_captures(sizes=(400, 300, 300))
FRAMES = (EXAMPLE.embedding, EXAMPLE.logits, EXAMPLE.capture)
ARRAYS = ("probability", "score", "prediction")


def same(a: Calibration, b: Calibration, rows: np.ndarray) -> bool:
    pairs = [(np.asarray(getattr(a, name))[rows], np.asarray(getattr(b, name))[rows]) for name in ARRAYS]
    return all(np.allclose(x, y, rtol=0, atol=1e-10) for x, y in pairs)  # captures beside it change the rounding


class TestLevels:
    def test_every_capture_gets_the_calibration_of_its_level(self) -> None:
        own = prices(UCAPC().calibrate(*FRAMES))
        order = np.sort(own)
        low, middle = (order[0] + order[1]) / 2, (order[1] + order[2]) / 2
        result = Safe((low, middle, middle)).calibrate(*FRAMES)
        assert result.judged is not None
        expected = {order[0]: "full", order[1]: "part", order[2]: "off"}
        for r, judged in enumerate(result.judged):
            assert judged.level == expected[own[r]]
            alone = LEVEL_CALIBRATIONS[judged.level].calibrate(*FRAMES)
            assert same(result, alone, EXAMPLE.capture == r)
            assert result.captures[r].capture == r
            assert result.captures[r].changed == alone.captures[r].changed

    def test_a_bold_guard_is_the_published_calibration(self) -> None:
        every = np.ones(len(EXAMPLE.label), dtype=bool)
        assert same(Safe((math.inf,) * 3).calibrate(*FRAMES), UCAPC().calibrate(*FRAMES), every)

    def test_a_cautious_guard_leaves_every_decision(self) -> None:
        result = Safe().calibrate(*FRAMES)
        assert result.changed == 0
        np.testing.assert_array_equal(result.score, EXAMPLE.logits)
        assert {judged.level for judged in result.judged or ()} == {"off"}

    @pytest.mark.parametrize("thresholds", [(1.0, 0.5, 2.0), (1.0, 2.0), (math.nan, 1.0, 2.0)])
    def test_damaged_thresholds_are_refused(self, thresholds: tuple[float, ...]) -> None:
        with pytest.raises(DataError, match="expected three prices in rising order"):
            Safe(thresholds)

    @pytest.mark.parametrize("rows", [slice(0, 1), slice(0, 3)])
    def test_tiny_captures_are_finite(self, rows: slice) -> None:
        some = [values[rows] for values in FRAMES]
        result = Safe((0.1, 0.2, 0.3)).calibrate(*some)
        np.testing.assert_allclose(np.asarray(result.probability).sum(1), 1, atol=1e-9)

    def test_a_capture_of_one_device_costs_more_than_a_balanced_one(self) -> None:
        one = EXAMPLE.label == 0
        embedding = np.concatenate([EXAMPLE.embedding, EXAMPLE.embedding[one]])
        logits = np.concatenate([EXAMPLE.logits, EXAMPLE.logits[one]])
        group = np.repeat(["mixed", "one"], [len(one), one.sum()])
        found = dict(zip(["mixed", "one"], prices(UCAPC().calibrate(embedding, logits, group)), strict=True))
        assert found["one"] > 3 * found["mixed"]

    def test_what_the_guard_allowed_is_frozen(self, tmp_path: Path) -> None:
        own = np.sort(prices(UCAPC().calibrate(*FRAMES)))
        safe = Safe((own[0], own[1], own[1]))
        FrozenCalibration.fit(*FRAMES, settings=safe).save(tmp_path / "kept")
        applied = FrozenCalibration.load(tmp_path / "kept").apply(*FRAMES)
        np.testing.assert_allclose(applied.probability, safe.calibrate(*FRAMES).probability, rtol=0, atol=1e-9)


class TestLearning:
    def made_up(self, gain: list[list[float]], price: list[float], kind: list[int]) -> Rehearsals:
        return Rehearsals(np.array(price), np.array(gain), np.array(kind))

    def test_what_helps_is_allowed_up_to_where_it_harms(self) -> None:
        price = np.linspace(0, 1, 200)
        full = np.where(price < 0.5, 0.1, -0.3)
        gain = np.stack([full, full / 2, 0 * full, 0 * full], axis=1)
        guard = learn_thresholds(Rehearsals(price, gain, (price > 0.6).astype(int)))
        assert guard.level(0.3) == "full"
        assert guard.level(0.6) in ("mild", "off")
        assert guard.level(0.99) in ("mild", "off")

    def test_no_kind_may_lose_for_the_others(self) -> None:
        # One price for all: allowing "full" would gain on the average and lose in one kind.
        gain = [[0.10, 0.0, 0.0, 0.0]] * 9 + [[-0.2, 0.0, 0.0, 0.0]]
        guard = learn_thresholds(self.made_up(gain, [1.0] * 10, list(range(10))))
        assert 0.2 * PENALTY > 0.1
        assert guard.level(1.0) != "full"
        tolerated = [[0.10, 0.0, 0.0, 0.0]] * 9 + [[-TOLERATED_LOSS, 0.0, 0.0, 0.0]]
        assert learn_thresholds(self.made_up(tolerated, [1.0] * 10, list(range(10)))).level(1.0) == "full"

    def test_equally_good_is_decided_for_caution(self) -> None:
        guard = learn_thresholds(self.made_up([[0.0] * 4] * 6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0] * 6))
        assert guard.level(0.0) == "off"

    def test_search_agrees_with_trying_everything(self) -> None:
        rng = np.random.default_rng(3)
        part = Rehearsals(rng.random(60), np.c_[rng.normal(0, 0.1, (60, 3)), np.zeros(60)], np.arange(60) % 3)

        def value(guard: Guard) -> float:
            level = [LEVELS.index(guard.level(p)) for p in part.price]
            gain = part.gain[np.arange(60), level]
            means = np.array([gain[part.kind == k].mean() for k in range(3)])
            return float(means.mean() - PENALTY * np.maximum(0, -TOLERATED_LOSS - means).sum())

        learnt = value(learn_thresholds(part))
        cuts = [-math.inf, *np.quantile(part.price, np.linspace(0, 1, 24)).tolist(), math.inf]
        tried = [value(Guard((a, b, c))) for a in cuts for b in cuts for c in cuts if a <= b <= c]
        assert learnt == pytest.approx(max(tried), abs=1e-12)

    def test_parts_keep_their_kinds_apart(self) -> None:
        one = self.made_up([[0.0] * 4] * 2, [0.0, 1.0], [0, 1])
        assert Rehearsals.join([one, one]).kind.tolist() == [0, 1, 2, 3]


class TestRehearsals:
    def test_each_level_is_what_it_says(self) -> None:
        found = rehearse(EXAMPLE.embedding, EXAMPLE.logits, EXAMPLE.label, EXAMPLE.capture, seed=1)
        assert found.gain.shape == (len(KINDS) * 3 * len(SIZES) * REPEATS, len(LEVELS))
        assert (found.gain[:, -1] == 0).all()
        again = rehearse(EXAMPLE.embedding, EXAMPLE.logits, EXAMPLE.label, EXAMPLE.capture, seed=1)
        np.testing.assert_array_equal(found.gain, again.gain)
        balanced, skewed = found.gain[found.kind == 0, 0].mean(), found.gain[found.kind == 2, 0].mean()
        assert balanced > skewed
        assert found.price[found.kind == 0].mean() < found.price[found.kind == 2].mean()

    @pytest.mark.parametrize("kind", KINDS)
    def test_shares_are_shares(self, kind: str) -> None:
        shares = draw_shares(10, np.random.default_rng(0), **KINDS[kind])
        assert shares.sum() == pytest.approx(1)
        assert (shares == 0).sum() == (3 if kind == "missing" else 0)

    def test_a_capture_is_drawn_without_repeats(self) -> None:
        label = np.repeat(np.arange(4), 50)
        rows = draw_capture(label, 60, np.full(4, 0.25), np.random.default_rng(0))
        assert np.bincount(label[rows]).tolist() == [15] * 4
        skewed = draw_capture(label, 100, np.array([0.9, 0.1, 0.0, 0.0]), np.random.default_rng(0))
        assert len(np.unique(skewed)) == len(skewed)
        assert (label[skewed] == 0).sum() == 50  # all there are

    def test_macro_f1_counts_the_classes_that_are_there(self) -> None:
        label, prediction = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 1])
        assert macro_f1(label, prediction, 4, present=True) == pytest.approx((2 / 3 + 1) / 2)


def test_a_price_beyond_all_rehearsals_is_never_trusted() -> None:
    helps = Rehearsals(np.linspace(0, 1, 40), np.tile([0.2, 0.1, 0.05, 0.0], (40, 1)), np.zeros(40, dtype=int))
    guard = learn_thresholds(helps)
    assert guard.level(1.0) == "full"
    assert guard.level(1.001) == "off"


def test_a_kind_that_was_never_drawn_has_no_say() -> None:
    helps = Rehearsals(np.linspace(0, 1, 40), np.tile([0.2, 0.1, 0.05, 0.0], (40, 1)), np.repeat([0, 2], 20))
    assert learn_thresholds(helps).level(0.5) == "full"
