"""Convolutions of eight bits decide as the model does, or are not written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from pisa_capc import Frames
from pisa_capc.core.errors import ModelError
from pisa_capc.data.protocol import Split, split
from pisa_capc.model.edge import Session, export_model, on_onnx
from pisa_capc.model.edge import eight_bits as parts
from pisa_capc.model.edge.export import FEW, to_onnx
from pisa_capc.model.inference import embed
from pisa_capc.model.inference.inputs import model_input
from tests.model.edge.test_export import DEVICES, model

SAMPLES = 64
TRAINED = model("single", samples=SAMPLES)


@pytest.fixture(scope="module")
def graph() -> onnx.ModelProto:
    return to_onnx(TRAINED, phases=False)


@pytest.fixture
def part(graph: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> Split:
    """Frames of noise. PyTorch's exporter takes five seconds, so it is asked once."""
    monkeypatch.setattr("pisa_capc.model.edge.export.to_onnx", lambda trained, phases: graph)
    random = np.random.default_rng(0)
    iq = random.standard_normal((360, 4, 2 * SAMPLES), dtype=np.float32).view(np.complex64)
    frames = Frames.from_arrays(
        iq, device=DEVICES * 120, environment=np.repeat(["E1", "E2", "E3"], 120), cfo_hz=random.normal(size=(360, 4))
    )
    return split(frames, ["E2", "E3"], "E1", seed=1)


def test_eight_bits_give_nearly_the_scores_of_the_model(
    part: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "COST", 1.0)
    made = export_model(TRAINED, tmp_path / "model.onnx", part)
    assert made.cost is not None
    assert made.cost.portable
    session = Session.open(tmp_path / "model.onnx")
    assert json.loads(session.metadata["eight_bits"]) == {"portable": True}
    assert json.loads(session.metadata["devices"]) == DEVICES
    expected = embed(TRAINED, part.target, "cpu").logits
    found = embed(
        on_onnx(TRAINED, tmp_path), part.target, "cpu"
    ).logits  # with what may be left out: antennas, descriptor
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    alone = session.run(model_input(part.target))[1]
    np.testing.assert_allclose(alone, found, rtol=1e-4, atol=1e-5)  # a Single takes no descriptor
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert "QuantizeLinear" in kinds
    assert made.bytes < len(to_onnx(TRAINED, phases=False).SerializeToString())


def test_cheap_weights_of_eight_bits_are_taken_where_seven_cost_too_much(
    part: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([0.9, 0.88, 0.899, 0.9, 0.88, 0.894])  # of the model, in seven bits, in eight; then again
    monkeypatch.setattr(parts, "held_out_f1", lambda trained, part: next(found))
    made = export_model(TRAINED, tmp_path / "model.onnx", part)
    assert made.cost is not None
    assert not made.cost.portable
    with pytest.raises(ModelError, match=r"cost 0.0060 of Macro-F1.*0.9000 to 0.8940"):
        export_model(TRAINED, tmp_path / "other.onnx", part)
    assert not (tmp_path / "other.onnx").exists()


def test_a_model_without_wide_convolutions_says_so(
    part: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "CHANNELS", 1000)
    with pytest.raises(ModelError, match="no convolution of 1000 or more channels"):
        export_model(TRAINED, tmp_path / "model.onnx", part)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["cnn", "cldnn"])
def test_antennas_and_descriptor_still_count_in_eight_bits(encoder: str) -> None:
    trained = model("pisa", encoder, samples=SAMPLES)
    graph, iq = to_onnx(trained, phases=False), np.random.default_rng(0).normal(size=(64, 4, SAMPLES, 2))
    iq = iq.astype(np.float32)
    plain, small = (Session(one.SerializeToString()) for one in (graph, parts.quantised(graph, iq, portable=True)))
    present, descriptor = np.array([[True, True, False, True]]), np.ones((1, 4), dtype=np.float32)
    alone = small.run(iq)[1]
    for given in ({"present": present}, {"descriptor": descriptor}):
        found, expected = small.run(iq, **given)[1], plain.run(iq, **given)[1]  # type: ignore[arg-type]
        assert np.abs(found - alone).max() > 3 * np.abs(found - expected).max()
    few = small.run(iq[:FEW])[1]
    np.testing.assert_allclose(few, alone[:FEW], atol=1e-5)
