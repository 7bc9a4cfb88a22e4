"""The guard learns from rehearsals, decides capture by capture, and explains itself."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pisa_capc.cli import app
from pisa_capc.cli import frozen as _registers  # noqa: F401
from pisa_capc.core.errors import DataError, ModelError
from pisa_capc.data.deployments import draw_capture, draw_shares
from pisa_capc.data.scores import macro_f1
from pisa_capc.data.store.seal import sealed
from pisa_capc.decide.calibration import (
    UCAPC,
    Calibration,
    FrozenCalibration,
    OpenSet,
    PriorUCAPC,
    Safe,
    SourceStatistics,
)
from pisa_capc.decide.calibration.safe import LEVEL_CALIBRATIONS, LEVELS, Guard, prices
from pisa_capc.decide.rehearsal.guard import (
    KINDS,
    PENALTY,
    REPEATS,
    SIZES,
    TOLERATED_LOSS,
    Rehearsals,
    learn_thresholds,
    rehearse,
)
from tests.decide.calibration.examples import shifted_captures

EXAMPLE = shifted_captures(sizes=(400, 300, 300))
FRAMES = (EXAMPLE.embedding, EXAMPLE.logits, EXAMPLE.capture)


def guarded(*thresholds: float) -> SourceStatistics:
    return SourceStatistics(guard=np.array(thresholds))


def same(a: Calibration, b: Calibration, rows: np.ndarray) -> bool:
    pairs = [(np.asarray(getattr(a, name))[rows], np.asarray(getattr(b, name))[rows]) for name in ARRAYS]
    return all(np.allclose(x, y, rtol=0, atol=1e-10) for x, y in pairs)  # captures beside it change the rounding


ARRAYS = ("probability", "score", "prediction")


class TestLevels:
    def test_every_capture_gets_the_calibration_of_its_level(self) -> None:
        own = prices(UCAPC().calibrate(*FRAMES))
        order = np.sort(own)
        low, middle = (order[0] + order[1]) / 2, (order[1] + order[2]) / 2
        result = Safe().calibrate(*FRAMES, source=guarded(low, middle, middle))
        assert result.guard is not None
        expected = {order[0]: "full", order[1]: "part", order[2]: "off"}
        for r, decision in enumerate(result.guard):
            assert decision.level == expected[own[r]]
            assert decision.price == own[r]
            assert decision.thresholds == (low, middle, middle)
            alone = LEVEL_CALIBRATIONS[decision.level].calibrate(*FRAMES)
            rows = EXAMPLE.capture == r
            assert same(result, alone, rows)
            assert result.captures[r].capture == r
            assert result.captures[r].changed == alone.captures[r].changed

    def test_a_bold_guard_is_the_published_calibration(self) -> None:
        every = np.ones(len(EXAMPLE.label), dtype=bool)
        assert same(Safe().calibrate(*FRAMES, source=guarded(*[math.inf] * 3)), UCAPC().calibrate(*FRAMES), every)

    def test_a_cautious_guard_leaves_every_decision(self) -> None:
        result = Safe().calibrate(*FRAMES, source=guarded(*[-math.inf] * 3))
        assert result.changed == 0
        np.testing.assert_array_equal(result.score, EXAMPLE.logits)

    def test_without_thresholds_it_says_so_and_changes_nothing(self) -> None:
        with pytest.warns(UserWarning, match="hold no guard thresholds.*pisa train --guard"):
            result = Safe().calibrate(*FRAMES)
        assert result.changed == 0
        assert {d.level for d in result.guard or ()} == {"off"}

    @pytest.mark.parametrize("thresholds", [(1.0, 0.5, 2.0), (1.0, 2.0), (math.nan, 1.0, 2.0)])
    def test_damaged_thresholds_are_refused(self, thresholds: tuple[float, ...]) -> None:
        with pytest.raises(DataError, match="expected three prices in rising order"):
            Safe().calibrate(*FRAMES, source=guarded(*thresholds))

    @pytest.mark.parametrize("rows", [slice(0, 1), slice(0, 3)])
    def test_tiny_captures_are_finite(self, rows: slice) -> None:
        some = [values[rows] for values in FRAMES]
        result = Safe().calibrate(*some, source=guarded(0.1, 0.2, 0.3))
        np.testing.assert_allclose(np.asarray(result.probability).sum(1), 1, atol=1e-9)

    def test_a_capture_of_one_device_costs_more_than_a_balanced_one(self) -> None:
        one = EXAMPLE.label == 0
        embedding = np.concatenate([EXAMPLE.embedding, EXAMPLE.embedding[one]])
        logits = np.concatenate([EXAMPLE.logits, EXAMPLE.logits[one]])
        group = np.repeat(["mixed", "one"], [len(one), one.sum()])
        found = dict(zip(["mixed", "one"], prices(UCAPC().calibrate(embedding, logits, group)), strict=True))
        assert found["one"] > 3 * found["mixed"]


class TestFrozen:
    def test_what_the_guard_allowed_is_frozen(self, tmp_path: Path) -> None:
        own = np.sort(prices(UCAPC().calibrate(*FRAMES)))
        source = guarded(own[0], own[1], own[1])
        result = Safe().calibrate(*FRAMES, source=source)
        FrozenCalibration.fit(*FRAMES, settings=Safe(), source=source).save(tmp_path / "kept")
        applied = FrozenCalibration.load(tmp_path / "kept").apply(*FRAMES)
        np.testing.assert_allclose(applied.probability, result.probability, rtol=0, atol=1e-9)
        assert applied.guard == result.guard

    def test_captures_that_were_not_fitted_get_the_decision_about_all_frames(self) -> None:
        own = np.sort(prices(UCAPC().calibrate(*FRAMES)))
        source = guarded(own[0], own[1], own[1])
        frozen = FrozenCalibration.fit(*FRAMES, settings=Safe(), source=source)
        everything = Safe(group="none").calibrate(*FRAMES[:2], source=source).guard
        assert everything is not None
        with pytest.warns(UserWarning, match="1 captures were not fitted"):
            applied = frozen.apply(*FRAMES[:2], np.where(EXAMPLE.capture == 0, 9, EXAMPLE.capture))
        assert frozen.guard is not None
        assert applied.guard == (*frozen.guard[1:], replace(everything[0], capture=9))
        assert frozen.apply(*FRAMES[:2]).guard == everything

    @pytest.mark.parametrize("thresholds", [(-math.inf, 0.1, math.inf), None], ids=str)
    def test_thresholds_without_bounds_are_kept(self, thresholds: tuple[float, ...] | None, tmp_path: Path) -> None:
        source = None if thresholds is None else guarded(*thresholds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no guard
            frozen = FrozenCalibration.fit(*FRAMES, settings=Safe(), source=source)
        frozen.save(tmp_path)
        json.loads((tmp_path / "calibration.json").read_text(), parse_constant=pytest.fail)
        again = FrozenCalibration.load(tmp_path)
        assert (again.guard, again.pooled_guard) == (frozen.guard, frozen.pooled_guard)
        assert frozen.pooled_guard is not None
        assert frozen.pooled_guard.thresholds == (thresholds or (-math.inf,) * 3)

    def test_what_earlier_versions_wrote_is_still_read(self, tmp_path: Path) -> None:
        frozen = FrozenCalibration.fit(*FRAMES, settings=Safe(), source=guarded(0.1, 0.2, 0.3))
        frozen.save(tmp_path)
        path = tmp_path / "calibration.json"
        about = json.loads(path.read_text())
        path.write_text(json.dumps({k: v for k, v in about.items() if k not in ("guard", "pooled_guard", "digest")}))
        again = FrozenCalibration.load(tmp_path).apply(*FRAMES)
        assert again.guard is None
        np.testing.assert_array_equal(again.probability, frozen.apply(*FRAMES).probability)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda about: about["guard"].pop(), "decided about other captures"),
            (lambda about: about["guard"][0].update(level="fulll"), "Did you mean 'full'"),
            (lambda about: about["guard"][0].update(price="cheap"), "cheap"),
            (lambda about: about["guard"][0].update(thresholds=[3, 2, 1]), "rising order"),
            (lambda about: about.pop("pooled_guard"), "pooled_guard"),
        ],
    )
    def test_damaged_decisions_are_refused(self, change: Any, message: str, tmp_path: Path) -> None:
        FrozenCalibration.fit(*FRAMES, settings=Safe(), source=guarded(0.1, 0.2, 0.3)).save(tmp_path)
        path = tmp_path / "calibration.json"
        about = json.loads(path.read_text())
        change(about)
        path.write_text(json.dumps(sealed(about)))
        with pytest.raises(ModelError, match=message):
            FrozenCalibration.load(tmp_path)

    def test_the_commands_show_what_was_decided(self, tmp_path: Path) -> None:
        scores, own = tmp_path / "scores.npz", np.sort(prices(UCAPC().calibrate(*FRAMES)))
        guard = np.array([own[0], own[1], own[1]])
        np.savez(scores, embedding=FRAMES[0], logits=FRAMES[1], capture=FRAMES[2], source_guard=guard)

        def run(*arguments: str | Path) -> str:
            ran = CliRunner().invoke(app, ["calibrate", *map(str, arguments)])
            assert ran.exit_code == 0, ran.output
            return ran.stdout

        safe = json.loads(run(scores, "--preset", "safe", "--out", tmp_path / "a.npz", "--json"))["guard"]
        levels = {d["level"] for d in safe}
        assert levels == {"full", "part", "off"}
        fitted = run("fit", scores, "--preset", "safe", "--out", tmp_path / "cal")
        assert all(f"{d['capture']} (guard: {d['level']})" in fitted for d in safe)
        again = run("fit", scores, "--preset", "safe", "--out", tmp_path / "cal", "--force", "--json")
        assert json.loads(again)["guard"] == safe
        applied = json.loads(run("apply", tmp_path / "cal", scores, "--out", tmp_path / "b.npz", "--json"))
        assert applied["method"] == "safe, frozen"
        assert applied["guard"] == safe
        table = run("apply", tmp_path / "cal", scores, "--out", tmp_path / "b.npz", "--force")
        assert all(f" {word} " in table for word in (*levels, "price", "thresholds", f"{own[0]:.3f}"))


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


def test_rejection_keeps_what_the_guard_decided() -> None:
    rng = np.random.default_rng(0)
    label = np.arange(200) % 4
    near = EXAMPLE.weight[label] + 0.3 * rng.normal(size=(200, 6))
    source = SourceStatistics(
        guard=np.array([math.inf] * 3),
        weight=EXAMPLE.weight,
        bias=np.zeros(4),
        bank=near,
        validation=near,
        validation_logits=near @ EXAMPLE.weight.T,
        validation_label=label,
    )
    away = np.linalg.svd(EXAMPLE.weight)[2][-1]  # at right angles to every class
    embedding = np.concatenate([EXAMPLE.embedding, np.tile(50 * away, (30, 1))])
    logits, group = embedding @ EXAMPLE.weight.T, np.append(EXAMPLE.capture, np.full(30, 9))
    result = OpenSet(Safe(), "knn", threshold=1.0).calibrate(embedding, logits, group, source)
    assert result.guard is not None
    assert [decision.capture for decision in result.guard] == [0, 1, 2, 9]
    assert not np.asarray(result.known)[-30:].any()
    assert np.asarray(result.known)[:-30].any()
    assert [decision.level for decision in result.guard] == ["full", "full", "full", "off"]


@pytest.mark.parametrize("settings", [PriorUCAPC(fusion=0.5, temperature=1.0, epsilon=2.0), PriorUCAPC(prior="none")])
def test_other_shares_are_frozen_as_they_were_fitted(settings: PriorUCAPC, tmp_path: Path) -> None:
    FrozenCalibration.fit(*FRAMES, settings=settings).save(tmp_path / "kept")
    applied = FrozenCalibration.load(tmp_path / "kept").apply(*FRAMES)
    np.testing.assert_allclose(applied.probability, settings.calibrate(*FRAMES).probability, rtol=0, atol=1e-9)
