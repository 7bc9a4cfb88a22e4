"""Deployments are what they say, are drawn as they ever were, and are scored without a label getting out."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import pytest

from pisa_capc import Frames
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.deployments import Deployment, Drawn
from pisa_capc.data.protocol import Evaluator
from pisa_capc.decide.calibration import UCAPC, PriorUCAPC, SourceStatistics, calibrator
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.evaluation import deploy
from pisa_capc.evidence.evaluation.deployment import check_deployment
from pisa_capc.model.inference import Embedding
from tests.decide.calibration.examples import shifted_captures

STUDY = {deployment.name: deployment for deployment in read_protocol("calibration-study").deployments}
CAPTURES = np.array(["E1/L1", "E1/M"])
LABEL = np.repeat(np.arange(10), 160)
UNKNOWN = np.repeat(CAPTURES, 300)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    """Ten devices in two captures, 80 frames each, in the order of a dataset."""
    capture = np.tile(np.repeat(["L1", "M"], 80), 10)
    return Evaluator(Frames.from_arrays(np.ones((1600, 1, 1)), [f"D{d:02d}" for d in LABEL], "E1", capture))


def drawn(evaluator: Evaluator, name: str) -> Drawn:
    return evaluator.draw_deployment(STUDY[name], np.random.default_rng(0), UNKNOWN)


# Of the study's deployments one after the other, as the program drew them that made the first records: how many frames,
# how many of unknown devices, and checksums of their rows and groups.
FIRST_DRAWN = {
    "balanced": (1600, 2846587108, 0, 0, 4159496212),
    "dirichlet-1": (907, 2501270679, 0, 0, 42206759),
    "dirichlet-0.3": (572, 3894329868, 0, 0, 1368342374),
    "missing": (1023, 412924130, 0, 0, 139162663),
    "unknown-10": (1040, 2364171208, 116, 3285377398, 1617112265),
    "unknown-30": (1040, 1869521226, 446, 3447122997, 4048277270),
    "captures-32": (1280, 3572590287, 0, 0, 2560610553),
    "captures-128": (1040, 140817109, 0, 0, 1692239656),
    "captures-512": (1040, 72623192, 0, 0, 2528360930),
    "withheld": (1600, 3859960258, 0, 0, 3671087870),
    "two-devices": (320, 3621859916, 0, 0, 1638657179),
    "one-device": (160, 321745824, 0, 0, 4114879976),
}


def test_draws_are_those_of_the_first_records(evaluator: Evaluator) -> None:
    rng = np.random.default_rng([2026, 2027])
    found = {}
    for name, deployment in STUDY.items():
        if deployment.scored == "all":
            rows, strange, group = evaluator.draw_deployment(deployment, rng, UNKNOWN)
            number = np.unique(group, return_inverse=True)[1]
            sums = [zlib.crc32(np.asarray(values, dtype="<i8").tobytes()) for values in (rows, strange, number)]
            found[name] = (len(rows), sums[0], len(strange), *sums[1:])
    assert found == FIRST_DRAWN


@pytest.mark.parametrize("name", [name for name in STUDY if STUDY[name].scored == "all"])
def test_a_deployment_is_what_it_says(evaluator: Evaluator, name: str) -> None:
    deployment = STUDY[name]
    rows, strange, group = drawn(evaluator, name)
    assert len(group) == len(rows) + len(strange)
    assert len(np.unique(rows[group[: len(rows)] == group[0]])) == (group[: len(rows)] == group[0]).sum()  # none twice
    assert len(strange) / len(group) == pytest.approx(deployment.unknown, abs=0.01)
    own = [np.bincount(LABEL[rows][group[: len(rows)] == g], minlength=10) for g in np.unique(group)]
    assert len(own) == 2 * deployment.repeats
    if deployment.frames and deployment.is_balanced:
        assert {tuple(count) for count in own} == {(-(-deployment.frames // 10),) * 10}
    if deployment.missing:
        assert [(count == 0).sum() for count in own] == [3, 3]
        assert (np.flatnonzero(own[0] == 0) == np.flatnonzero(own[1] == 0)).all()  # the same in all captures
    if deployment.devices:
        assert [(count > 0).sum() for count in own] == [deployment.devices] * 2
    if not deployment.identifiers:
        assert sorted(rows) == list(range(1600))
        assert (np.diff((group == "E1/M").astype(int)) >= 0).all()  # one capture after the other
        assert LABEL[rows[:20]].tolist() == [*range(10)] * 2  # the devices in turn


def test_unknown_frames_are_of_the_same_capture(evaluator: Evaluator) -> None:
    rows, strange, group = drawn(evaluator, "unknown-30")
    capture = np.tile(np.repeat([0, 1], 80), 10)[rows]
    np.testing.assert_array_equal(group, np.concatenate([capture, np.repeat([0, 1], 300)[strange]]))


def test_the_first_half_is_that_of_each_device_and_capture(evaluator: Evaluator) -> None:
    assert evaluator.first_half().reshape(20, 2, 40).all(axis=(0, 2)).tolist() == [True, False]
    assert evaluator.first_half().sum() == 800


def test_scores_are_over_the_devices_that_are_there(evaluator: Evaluator) -> None:
    rows = np.flatnonzero(LABEL < 2)
    assert evaluator.macro_f1(rows, LABEL[rows]) == 1
    assert evaluator.macro_f1(rows, np.full(len(rows), 1)) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "a@b"}, "expected a name without @, found 'a@b'"),
        ({"dirichlet": 1.0}, "deployments.it: frames: missing. Say how many"),
        ({"unknown": 0.1}, "deployments.it: frames: missing"),
        ({"frames": 8, "dirichlet": 1.0, "missing": 0.3}, "dirichlet and missing: expected one of them"),
        ({"frames": 0}, "frames: expected a number from 1 to inf, found 0"),
        ({"frames": 8, "unknown": 1.0}, "unknown: expected a number from 0 to 0.99, found 1.0"),
        ({"frames": 8, "identifiers": False}, "expected one of frames, identifiers: false and scored: second-half"),
        ({"frozen": True}, "needs scored: second-half, as the first half is fitted"),
        ({"scored": "second"}, "scored: unknown part 'second'. Did you mean 'second-half'"),
        ({"calibration": ("paper",)}, "all stages are scored on the captures as received"),
    ],
)
def test_senseless_deployments_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Deployment(**{"name": "it", **settings})


def test_what_is_left_to_a_default_is_not_in_the_name() -> None:
    assert Deployment("balanced").to_json() == {"name": "balanced"}
    assert Deployment("few", frames=8, devices=2).to_json() == {"name": "few", "frames": 8, "devices": 2}
    assert [STUDY[name].stage("paper") for name in ("balanced", "missing")] == ["paper", "paper@missing"]


@pytest.fixture(scope="module")
def example() -> tuple[Embedding, Embedding, Evaluator]:
    """A run's outputs in two captures, frames of unknown devices, and who marks."""
    found = shifted_captures(sizes=(1200, 1200), classes=10, features=16)
    weight = found.weight
    source = SourceStatistics(weight=weight, class_mean=weight)
    frame = np.arange(2400)

    def outputs(rows: slice) -> Embedding:
        capture = CAPTURES[found.capture[rows]]
        return Embedding(
            found.embedding[rows], found.logits[rows], capture, np.full(len(capture), "E1"), frame[rows], source
        )

    names = np.array([f"D{d:02d}" for d in range(10)])[found.label]
    frames = Frames.from_arrays(np.ones((2400, 1, 1)), names, "E1", np.array(["L1", "M"])[found.capture], frame)
    return outputs(slice(None)), outputs(slice(None, None, 2)), Evaluator(frames)


def test_every_stage_is_scored_in_every_deployment(example: tuple[Embedding, Embedding, Evaluator]) -> None:
    outputs, unknown, evaluator = example
    calibrations = {"paper": UCAPC(), "safe": PriorUCAPC(prior="balanced"), "lame": calibrator("lame")(group="capture")}
    chosen = [STUDY[name] for name in ("balanced", "captures-32", "unknown-10", "withheld", "frozen", "not-frozen")]
    found = deploy(outputs, evaluator, calibrations, chosen, np.random.default_rng(0), unknown)
    assert list(found) == [
        *(f"{s}@{d}" for d in ("captures-32", "unknown-10", "withheld") for s in ("direct", "paper", "safe", "lame")),
        *(f"{s}@{d}" for d in ("frozen", "not-frozen") for s in ("direct", "paper", "safe")),
    ]
    assert all(0 <= value <= 1 for value in found.values())
    assert found["direct@frozen"] == found["direct@not-frozen"]
    assert found["paper@frozen"] == pytest.approx(found["paper@not-frozen"], abs=0.05)
    again = deploy(outputs, evaluator, calibrations, chosen, np.random.default_rng(0), unknown)
    assert again == found
    with pytest.raises(DataError, match=r"deployments\.unknown-10: there are no frames of unknown devices"):
        deploy(outputs, evaluator, calibrations, chosen, np.random.default_rng(0))


def test_a_stage_that_knows_no_captures_cares_for_no_identifiers(
    example: tuple[Embedding, Embedding, Evaluator],
) -> None:
    outputs, _, evaluator = example
    plain = evaluator.macro_f1(np.arange(2400), UCAPC(group="none").calibrate(*arrays(outputs)).prediction)
    found = deploy(outputs, evaluator, {"pooled": UCAPC(group="none")}, [STUDY["withheld"]], np.random.default_rng(0))
    assert found["pooled@withheld"] == pytest.approx(plain, abs=1e-3)


def arrays(outputs: Embedding) -> tuple[np.ndarray, ...]:
    return outputs.embedding, outputs.logits, outputs.capture


def test_what_cannot_be_frozen_is_refused() -> None:
    check_deployment(
        STUDY["frozen"], {"paper": UCAPC(), "safe": PriorUCAPC(prior="balanced"), "lame": calibrator("lame")()}
    )
    everything = Deployment("all", scored="second-half", frozen=True)
    with pytest.raises(ConfigError, match=r"deployments\.all: lame cannot be frozen; expected ucapc or careful"):
        check_deployment(everything, {"lame": calibrator("lame")()})


def test_streams_of_bursts_and_devices_that_come_and_go_have_shares_of_their_own() -> None:
    rng = np.random.default_rng(0)
    bursts = Deployment("bursts", frames=128, bursts=3)
    shares = np.array([bursts.shares(10, rng) for _ in range(50)])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert ((shares > 0).sum(axis=1) <= 3).all()
    stays = np.array([Deployment("stays", frames=128, stays=True).shares(10, rng) for _ in range(50)])
    np.testing.assert_allclose(stays.sum(axis=1), 1)
    assert (stays > 0).all()
    assert not bursts.is_balanced
    with pytest.raises(ConfigError, match="bursts and stays"):
        Deployment("both", frames=128, bursts=3, stays=True)


def test_joined_captures_are_taken_for_one(evaluator: Evaluator) -> None:
    joined = Deployment("joined", frames=100, joined=2)
    drawn = evaluator.draw_deployment(joined, np.random.default_rng(0))
    place = np.tile(np.repeat([0, 1], 80), 10)[drawn.rows]
    assert all(set(place[drawn.group == g]) == {0, 1} for g in np.unique(drawn.group))
    assert not joined.is_balanced
    with pytest.raises(ConfigError, match="frames: missing"):
        Deployment("joined", joined=2)
