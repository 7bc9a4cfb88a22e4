"""The recurrent layer of a file gives what the model's gives, whichever way it goes, and goes the quicker one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper

from pisa_capc.model.edge import Session
from pisa_capc.model.edge.engine import Given
from pisa_capc.model.edge.export import CHECKED, MOST, OPSET, compare, noise, to_onnx
from pisa_capc.model.edge.recurrence import DOMAIN, MANY, Call, Recurrent, function
from pisa_capc.model.inference import embed
from pisa_capc.model.stacked import GRU
from tests.model.edge.test_export import model

STEPS, INPUTS, HIDDEN = 12, 5, 3
ANTENNAS = 4


@pytest.fixture(scope="module")
def layer() -> GRU:
    torch.manual_seed(0)
    return GRU(INPUTS, HIDDEN).eval()


def file_of(layer: GRU, tokens: int) -> bytes:
    """A file of nothing but the layer."""
    parts = dict(Recurrent(layer).named_buffers())
    call = Call(STEPS, tokens, HIDDEN)
    node = helper.make_node(call.name, ["x", *parts], ["means"], domain=DOMAIN, **call.attributes())
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [STEPS, "sequences", INPUTS])],
        [helper.make_tensor_value_info("means", onnx.TensorProto.FLOAT, [tokens, "values"])],
        [onnx.numpy_helper.from_array(value.numpy(), name) for name, value in parts.items()],
    )
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_model(graph, functions=[function(call.name, OPSET)], opset_imports=versions, ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString()


def test_a_pass_takes_as_many_steps_as_a_span_is_a_multiple_of() -> None:
    assert [Call(320, tokens, HIDDEN).together for tokens in (1, 8, 64, 320)] == [20, 20, 5, 1]
    assert [Call(STEPS, tokens, HIDDEN).together for tokens in (1, 2, 4, STEPS)] == [12, 6, 3, 1]


@pytest.mark.parametrize("tokens", [1, 2, 4, STEPS])
@torch.no_grad()
def test_few_and_many_sequences_give_what_the_layer_gives(layer: GRU, tokens: int) -> None:
    session = onnxruntime.InferenceSession(file_of(layer, tokens))
    for count in (1, MANY - 1, MANY, MANY + 1, 3 * MANY):
        x = torch.randn(1, count, STEPS, INPUTS)
        found = session.run(None, {"x": x[0].transpose(0, 1).numpy()})[0]
        found = found.reshape(tokens, 2, count, HIDDEN).transpose(2, 0, 1, 3).reshape(count, tokens, 2 * HIDDEN)
        np.testing.assert_allclose(found, layer(x, tokens)[0], atol=1e-6)


def test_few_sequences_go_through_the_gru_and_many_step_by_step(layer: GRU, tmp_path: Path) -> None:
    content = file_of(layer, 1)
    assert "Scan" not in operators(content, [MANY - 1], tmp_path)
    assert "GRU" not in operators(content, [MANY], tmp_path)
    assert {"GRU", "Scan"} <= operators(content, [MANY - 1, MANY], tmp_path)


def operators(content: bytes, counts: Sequence[int], folder: Path) -> set[str]:
    """Those that were at work for so many sequences."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    session = onnxruntime.InferenceSession(content, options)
    for count in counts:
        session.run(None, {"x": np.ones((STEPS, count, INPUTS), dtype=np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return {event["args"]["op_name"] for event in events if "op_name" in event.get("args", {})}


@pytest.mark.parametrize("method", ["pisa", pytest.param("single", marks=pytest.mark.slow)])
def test_a_model_gives_the_same_for_any_number_of_frames(method: str) -> None:
    """Also where its encoders go different ways: one sees every antenna, the other one stream of a frame."""
    trained = model(method, "cldnn", samples=64)
    session, frames = Session(to_onnx(trained).SerializeToString()), noise(trained)
    iq = frames.iq.view(np.float32).reshape(*frames.iq.shape, 2)
    descriptor = np.abs(np.random.default_rng(0).normal(size=(CHECKED, 4))).astype(np.float32)
    expected = embed(trained, frames, "cpu", descriptor=descriptor).logits
    for count in (1, MANY // ANTENNAS - 1, MANY // ANTENNAS, MANY - 1, MANY, CHECKED):
        present = iq[:count].any(axis=(2, 3))
        found = session.run(iq[:count], present, descriptor[:count]).logits
        np.testing.assert_allclose(found, expected[:count], atol=MOST * np.abs(expected).max())


@pytest.mark.parametrize("wrong", ["few", "many"])
def test_a_file_that_is_wrong_for_few_frames_or_for_many_is_seen(wrong: str) -> None:
    trained = model("single", samples=64)
    frames = noise(trained)
    logits = dict(zip(map(bytes, frames.iq), embed(trained, frames, "cpu").logits, strict=True))

    class Wrong:
        """As the model, but for one of the two."""

        def run(self, iq: np.ndarray, descriptor: np.ndarray | None) -> Given:
            is_wrong = (len(iq) == CHECKED) == (wrong == "many")
            return Given(np.empty(0), np.stack([logits[bytes(frame)] for frame in iq]) + is_wrong)

    difference, _ = compare(trained, Wrong())  # type: ignore[arg-type]
    assert difference == pytest.approx(1)
