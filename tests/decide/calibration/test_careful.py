"""Careful: a panel for each capture, by how evenly its devices seem to send."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ConfigError
from pisa_capc.decide.calibration import UCAPC, Careful, OnlineCalibrator, OpenSet, SourceStatistics, usual
from pisa_capc.decide.calibration.careful import distilled, evenness
from tests.decide.calibration.test_joint import CLASSES, EQUAL, SIZE, SKEWED, SOURCE, frames, logits, right

FEW = np.array([0.5, 0.5, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(("shares", "level"), [(EQUAL, "even"), (SKEWED, "few"), (FEW, "few")], ids=str)
def test_shares_tell_the_level_and_nothing_is_lost(shares: np.ndarray, level: str) -> None:
    z, label = frames(shares, shift=0.3)
    found = Careful().calibrate(z, logits(z), source=SOURCE)
    assert found.judged is not None
    assert found.judged[0].level == level
    direct = (logits(z).argmax(1) == label).mean()
    assert right(found, label) >= direct - 0.01
    if level != "even":
        assert right(UCAPC().calibrate(z, logits(z)), label) < direct - 0.05  # which would have been the price


def test_every_capture_has_its_own_level_and_rejected_ones_have_none() -> None:
    parts = [frames(shares, shift=0.1, seed=s)[0] for s, shares in enumerate((EQUAL, FEW))]
    parts.append(100 * parts[0])  # like nothing in the source
    z, capture = np.concatenate(parts), np.repeat(["a", "b", "c"], [len(part) for part in parts])
    levels = [judged.level for judged in Careful().calibrate(z, logits(z), capture, SOURCE).judged or ()]
    assert levels[:2] == ["even", "few"]
    far = OpenSet(Careful(), "mahalanobis", threshold=1e4).calibrate(z, logits(z), capture, SOURCE)
    assert [judged.level for judged in far.judged or ()] == ["even", "few", "off"]


def test_evenness_is_one_for_equal_shares_and_falls_with_the_devices() -> None:
    found = [evenness(torch.eye(8).repeat(50, 1)[:, :8][torch.arange(400) % k].double()) for k in (8, 4, 2, 1)]
    assert found[0] == pytest.approx(1.0, abs=0.01)
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.01
    with pytest.raises(ConfigError, match=r"even is 0\.5"):
        Careful(even=0.5)


def test_what_is_kept_for_later_frames_has_the_shares_that_were_decided() -> None:
    z, _ = frames(SKEWED, shift=0.3)
    result = Careful().calibrate(z, logits(z), source=SOURCE)
    probability = torch.as_tensor(result.probability)
    prototypes, potential = distilled(probability, torch.as_tensor(z), torch.as_tensor(logits(z)))
    unit = torch.as_tensor(z / np.linalg.norm(z, axis=1, keepdims=True))
    held = torch.softmax(torch.as_tensor(logits(z)) + 10 * unit @ prototypes.T + potential, dim=1).mean(dim=0)
    np.testing.assert_allclose(held, probability.mean(dim=0), atol=1e-3)
    later, truth = frames(SKEWED, shift=0.3, seed=5)
    kept = Careful().fit(z, logits(z), source=SOURCE)
    assert (kept.predict(later, logits(later)) == truth).mean() >= (logits(later).argmax(1) == truth).mean() - 0.01
    assert (kept.predict(z, logits(z)) == result.prediction).mean() > 0.95


def test_the_usual_calibration_needs_to_know_its_source() -> None:
    assert usual(SOURCE).calibration == Careful()
    assert usual(SourceStatistics()).calibration == UCAPC(prior="none")


class TestStreams:
    def test_a_stream_that_stops_goes_on_as_if_it_had_not(self, tmp_path: Path) -> None:
        z, _ = frames(EQUAL, shift=0.3)
        z = z[np.random.default_rng(0).permutation(len(z))]
        whole, first = (OnlineCalibrator(CLASSES, SIZE, source=SOURCE) for _ in range(2))
        first.push(z[:300], logits(z[:300]))
        first.save(tmp_path)
        later = OnlineCalibrator.load(tmp_path).push(z[300:], logits(z[300:]))
        together = whole.push(z, logits(z))
        np.testing.assert_array_equal(later.probability, together.probability[300:])
        assert not together.alarm.any()

    def test_frames_that_become_unsure_raise_the_alarm_and_the_group_is_learnt_anew(self) -> None:
        rng = np.random.default_rng(0)
        z = frames(EQUAL, shift=0.1, n=1200)[0]
        z = z[rng.permutation(len(z))]
        stream = OnlineCalibrator(CLASSES, SIZE, source=SOURCE)
        scores = logits(z)
        assert not stream.push(z, scores).alarm.any()
        between = np.tile(z.mean(axis=0), (100, 1))
        first = next(t for t in range(100) if stream.push(between[t], np.zeros(CLASSES)).alarm[0])
        assert first < 60
        anew = stream.push(between[0], np.zeros(CLASSES))
        np.testing.assert_allclose(anew.probability, 1 / CLASSES)  # by its logits alone
