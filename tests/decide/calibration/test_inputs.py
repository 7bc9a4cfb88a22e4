"""Bad input gives a finite result or an error that says what was found, what was expected and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration import UCAPC

DRAW = generator(0, "inputs")
EMBEDDING, LOGITS = DRAW.normal(size=(12, 5)), DRAW.normal(size=(12, 3))


def assert_sound(result) -> None:
    probability = np.asarray(result.probability)
    assert np.isfinite(probability).all()
    assert np.isfinite(np.asarray(result.score)).all()
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("embedding", "logits", "capture", "message"),
    [
        (EMBEDDING[:11], LOGITS, None, r"embedding \(11, 5\) and logits \(12, 3\) disagree"),
        (EMBEDDING, LOGITS[:, 0], None, r"logits has shape \(12,\); expected \(N frames, C classes\)"),
        (EMBEDDING[:, :0], LOGITS, None, r"embedding has shape \(12, 0\)"),
        (EMBEDDING[:0], LOGITS[:0], None, "no frames to calibrate"),
        (EMBEDDING, LOGITS, np.zeros(11, int), r"capture has shape \(11,\); expected one identifier per frame"),
        (EMBEDDING, LOGITS, np.linspace(0, 1, 12), "neither strings nor integers"),
        (EMBEDDING.astype(complex), LOGITS, None, "expected float32 or float64"),
        (EMBEDDING.astype(str), LOGITS, None, "expected float32 or float64"),
    ],
)
def test_unusable_input_is_explained(embedding, logits, capture, message: str):
    with pytest.raises(DataError, match=message):
        UCAPC().calibrate(embedding, logits, capture)


@pytest.mark.parametrize("name", ["embedding", "logits"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_what_is_not_finite_is_located(name: str, value: float, kind):
    arrays = {"embedding": EMBEDDING.copy(), "logits": LOGITS.copy()}
    arrays[name][7, 1] = value
    with pytest.raises(DataError, match=f"{name} holds NaN or infinity in 1 of 12 frames, first in frame 7"):
        UCAPC().calibrate(kind(arrays["embedding"]), kind(arrays["logits"]))


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 0.0},
        {"temperature": -0.2},
        {"temperature": float("nan")},
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"balance": 1.5},
        {"threshold": -0.1},
        {"top": 0},
        {"passes": -1},
        {"sinkhorn_iterations": 0},
        {"fusion": float("inf")},
        {"prior": "uniform"},
        {"group": "captures"},
    ],
    ids=str,
)
def test_parameters_out_of_range_are_named(parameters: dict):
    with pytest.raises(ConfigError, match=next(iter(parameters)) if "group" not in parameters else "grouping"):
        UCAPC(**parameters)


@pytest.mark.parametrize("prior", ["balanced", "none"])
@pytest.mark.parametrize(
    ("embedding", "logits", "capture"),
    [
        (EMBEDDING[:1], LOGITS[:1], None),
        (EMBEDDING, LOGITS, [0] * 11 + [1]),
        (EMBEDDING[:2], LOGITS[:2], None),
        (np.zeros((12, 5)), LOGITS, None),
        (EMBEDDING, np.tile([9.0, 0.0, -1e4], (12, 1)), None),
        (EMBEDDING, 1e4 * np.sign(LOGITS), None),
        (EMBEDDING, 1e4 * np.sign(LOGITS), np.arange(12) % 2),
        (1e30 * EMBEDDING, 1e30 * LOGITS, None),
        (EMBEDDING, LOGITS[:, :1], None),
        (EMBEDDING, np.zeros((12, 3)), None),
        (EMBEDDING, (10 * LOGITS).astype(int), None),
    ],
    ids=[
        "one frame",
        "single-frame capture",
        "fewer frames than classes",
        "zero embeddings",
        "a class nobody wants",
        "extreme logits",
        "extreme logits in captures",
        "huge numbers",
        "one class",
        "no evidence",
        "integer logits",
    ],
)
def test_odd_input_gives_a_sound_result(embedding, logits, capture, prior: str):
    assert_sound(UCAPC(prior=prior).calibrate(embedding, logits, capture))
    assert_sound(UCAPC(prior=prior, threshold=0.9, top=2).calibrate(embedding, logits, capture))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_every_floating_type_is_understood(dtype):
    result = UCAPC().calibrate(EMBEDDING.astype(dtype), LOGITS.astype(dtype))
    np.testing.assert_allclose(np.asarray(result.probability, np.float64).sum(1), 1, atol=1e-2)


@pytest.mark.parametrize(
    ("capture", "keys"),
    [
        (["b", "a", "b"] * 4, ("a", "b")),
        (np.array([b"b", b"a", b"b"] * 4), ("a", "b")),
        ([30, -1, 30] * 4, (-1, 30)),
        (torch.tensor([30, -1, 30] * 4), (-1, 30)),
    ],
    ids=["strings", "bytes", "integers", "tensor"],
)
def test_captures_may_be_strings_or_integers(capture, keys: tuple):
    result = UCAPC().calibrate(EMBEDDING, LOGITS, capture)
    assert tuple(summary.capture for summary in result.captures) == keys
    assert [summary.frames for summary in result.captures] == [4, 8]
    expected = UCAPC().calibrate(EMBEDDING, LOGITS, np.array([1, 0, 1] * 4))
    np.testing.assert_array_equal(result.probability, expected.probability)


def test_input_is_never_written_to():
    embedding, logits = EMBEDDING.copy(), LOGITS.copy()
    embedding.flags.writeable = logits.flags.writeable = False
    UCAPC(passes=0).calibrate(embedding, logits)
    UCAPC().calibrate(embedding, logits)
    np.testing.assert_array_equal(logits, LOGITS)


def test_an_output_array_of_the_wrong_shape_is_explained():
    with pytest.raises(DataError, match=r"out\['score'\] is \(3, 12\)"):
        UCAPC().calibrate(EMBEDDING, LOGITS, out={"score": np.empty((3, 12))})


class Column:
    """A column of a table, as pandas has them: an array of objects when it is asked for one."""

    def __init__(self, values: list[object]) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array(self.values, dtype=object)


@pytest.mark.parametrize(
    ("capture", "keys"),
    [
        (np.array(["b", "a"] * 6, dtype=object), ["a", "b"]),
        (Column(["b", "a"] * 6), ["a", "b"]),
        (np.array([3, 1] * 6, dtype=object), [1, 3]),
        (np.array(["2026-11-19", "2026-11-20"] * 6, dtype="datetime64[D]"), ["2026-11-19", "2026-11-20"]),
    ],
)
def test_captures_may_be_columns_of_a_table(capture: np.ndarray, keys: list[object]):
    found = UCAPC().calibrate(EMBEDDING, LOGITS, capture)
    assert [summary.capture for summary in found.captures] == keys
    plain = UCAPC().calibrate(EMBEDDING, LOGITS, np.array(["a", "b"] * 6))
    if keys == ["a", "b"]:
        assert [one.frames for one in found.captures] == [one.frames for one in plain.captures]
    with pytest.raises(DataError, match="neither strings nor integers"):
        UCAPC().calibrate(EMBEDDING, LOGITS, np.array(["a", 1] * 6, dtype=object))


def test_probabilities_in_the_place_of_logits_are_noticed():
    probability = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    with pytest.warns(UserWarning, match="logits look like probabilities"):
        UCAPC(prior="none").calibrate(EMBEDDING, probability)
    UCAPC(prior="none").calibrate(EMBEDDING, np.log(probability))  # a warning would be an error
