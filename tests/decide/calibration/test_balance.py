"""U-CAPC as published says where captures do not look balanced; nothing else does."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.decide.calibration import UCAPC, Calibrator, Careful, OnlineCalibrator, OpenSet, SourceStatistics
from pisa_capc.decide.calibration.careful import LOOKED_AT, uneven, warn_of
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (a fixture)
from tests.decide.calibration.test_joint import CLASSES, EQUAL, SIZE, SKEWED, SOURCE, frames, logits

BOTH = [frames(shares, shift=0.3, n=n, seed=n)[0] for shares, n in ((EQUAL, 600), (SKEWED, 4 * LOOKED_AT))]
Z, CAPTURE = np.concatenate(BOTH), np.repeat(["even", "skewed"], [len(part) for part in BOTH])
SAYS = "devices seem to send unevenly in skewed (0."


@pytest.mark.parametrize("source", [SOURCE, SourceStatistics()], ids=["known", "unknown"])
@pytest.mark.parametrize("calibrator", [UCAPC(), UCAPC(top=64)], ids=str)
def test_captures_that_are_balanced_and_do_not_look_so_are_named(calibrator: UCAPC, source: SourceStatistics) -> None:
    assert list(uneven(calibrator, calibrator.calibrate(Z, logits(Z), CAPTURE), source)) == ["skewed"]


@pytest.mark.parametrize("calibrator", [UCAPC(prior="none"), Careful()], ids=str)
def test_what_balances_nothing_has_nothing_to_say(calibrator: Calibrator) -> None:
    assert not uneven(calibrator, calibrator.calibrate(Z, logits(Z), CAPTURE, SOURCE), SOURCE)


def test_frames_that_were_set_aside_do_not_count() -> None:
    strangers = 100 * Z[:300]
    z, capture = np.concatenate([Z, strangers]), np.concatenate([CAPTURE, np.full(300, "even")])
    rejecting = OpenSet(UCAPC(), "mahalanobis", threshold=1e4)
    assert list(uneven(UCAPC(), rejecting.calibrate(z, logits(z), capture, SOURCE), SOURCE)) == ["skewed"]


def test_of_many_captures_some_are_named() -> None:
    with pytest.warns(UserWarning, match=r"in 0 \(0\.50\), .* and 3 more: .* expected at least 0\.98"):
        warn_of(dict.fromkeys(range(8), 0.5))


def test_a_fit_and_a_stream_say_it_too() -> None:
    with pytest.warns(UserWarning, match="unevenly in skewed"):
        UCAPC().fit(Z, logits(Z), CAPTURE, SOURCE)
    order = np.random.default_rng(0).permutation(len(BOTH[1]))
    with pytest.warns(UserWarning, match="unevenly in this stream") as said:
        OnlineCalibrator(CLASSES, SIZE).push(BOTH[1][order], logits(BOTH[1][order]))
    assert len({str(one.message) for one in said}) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        order = np.random.default_rng(0).permutation(len(BOTH[0]))
        OnlineCalibrator(CLASSES, SIZE).push(BOTH[0][order], logits(BOTH[0][order]))


def test_commands_say_it_where_the_published_one_is_asked_for_alone(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    scores = tmp_path / "scores.npz"
    known = {f"source_{name}": values for name, values in SOURCE.known().items()}
    np.savez(scores, embedding=Z, logits=logits(Z), capture=CAPTURE, **known)  # type: ignore[arg-type]
    usual = pisa("calibrate", scores, "--out", tmp_path / "usual.npz", "--json")
    assert SAYS not in usual.err
    assert [one["level"] for one in json.loads(usual.out)["captures"]] == ["even", "few"]
    for options in (("--calibration", "ucapc"), ("--set", "top=9"), ("--prior", "balanced")):
        told = pisa("calibrate", scores, "--out", tmp_path / "out.npz", "--force", *options)
        assert SAYS in told.err, told.err
    assert SAYS not in pisa("calibrate", "fit", scores, "--out", tmp_path / "careful").err
    assert SAYS in pisa("calibrate", "fit", scores, "--out", tmp_path / "paper", "--calibration", "ucapc").err
    order = np.random.default_rng(0).permutation(len(BOTH[1]))
    np.savez(scores, embedding=BOTH[1][order], logits=logits(BOTH[1][order]), **known)  # type: ignore[arg-type]
    assert "unevenly" not in pisa("calibrate", "stream", scores).err
    assert "unevenly in this stream" in pisa("calibrate", "stream", scores, "--calibration", "ucapc").err
