"""The study of growth: how long a size is trained, what exponents are of, and which record it goes on with."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from studies.growth import Plan, exponents, record_of, recorded

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.training import TrainingConfig

PLAN = Plan("pisa", "cnn", epochs=2, fewest_steps=100, scale=0.1, device="cpu")


def size(devices: int, seconds: float) -> dict[str, Any]:
    return {"devices": devices, "stages": {"embed": {"seconds": seconds}}}


def test_a_small_size_is_trained_for_the_fewest_steps_and_a_large_one_for_the_epochs() -> None:
    frames = 10 * TrainingConfig.batch  # ten steps an epoch
    assert PLAN.epochs_of(frames) == 10
    assert PLAN.epochs_of(frames - 1) == 10  # the last batch may be a small one
    assert PLAN.epochs_of(100 * frames) == PLAN.epochs


def test_exponents_are_those_of_the_largest_sizes() -> None:
    sizes = [size(1, 1000.0), size(10, 1000.0), size(100, 1.0), size(1000, 100.0), size(10_000, 10_000.0)]
    assert exponents(sizes)["embed"]["seconds"] == pytest.approx(2.0)


def test_a_record_has_its_sizes_in_order_and_one_size_does_not_grow() -> None:
    record = record_of(PLAN, {30: size(30, 3.0), 10: size(10, 1.0)})
    assert [own["devices"] for own in record["sizes"]] == [10, 30]
    assert record["exponents"]["embed"]["seconds"] == pytest.approx(1.0)
    assert "exponents" not in record_of(PLAN, {10: size(10, 1.0)})


def test_a_study_goes_on_with_its_own_record_and_with_no_other(tmp_path: Path) -> None:
    path = tmp_path / "growth.json"
    assert recorded(path, PLAN) == {}
    path.write_text(json.dumps({"plan": asdict(PLAN), "sizes": [size(10, 1.0)]}), encoding="utf-8")
    assert recorded(path, PLAN) == {10: size(10, 1.0)}
    with pytest.raises(ConfigError, match="is of another plan"):
        recorded(path, replace(PLAN, epochs=3))
