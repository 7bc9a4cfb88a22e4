"""An ONNX file gives what the model gives, knows what it is, and is refused where it is another's."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ModelError
from pisa_capc.data.geometry import square
from pisa_capc.model.edge import Session, export_model, on_onnx
from pisa_capc.model.edge.export import noise
from pisa_capc.model.encoders import encoder_names
from pisa_capc.model.inference import SourceStatistics, TrainedModel, embed
from pisa_capc.model.inference.model import method_of
from pisa_capc.model.runs import ModelRun

DEVICES = ["D01", "D02", "D03"]


def model(method: str = "pisa", encoder: str = "cnn", samples: int = 320) -> TrainedModel:
    """A model that nobody has trained; every parameter counts."""
    about = ModelRun(
        devices=tuple(DEVICES), geometry=square(), samples=samples, sample_rate_hz=20e6, method=method,
        encoder=encoder, source=("E2", "E3"), target=("E1",), split_seed=1, seed=2, dataset="0",
    )  # fmt: skip
    torch.manual_seed(0)
    network = method_of(about).build(1).eval()
    for name, value in network.state_dict().items():
        if "running_var" in name:
            value.uniform_(0.05, 0.2)
        elif "running_mean" in name or name.startswith("modulator.last"):
            value.normal_(0, 0.2)
    return TrainedModel(network, about, SourceStatistics())


@pytest.fixture(scope="module", params=["single", pytest.param("pisa", marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainedModel, Path]:
    """With an encoder that is written in another way than it computes here.

    PyTorch's exporter takes five seconds, and twice that for PISA.
    """
    folder = tmp_path_factory.mktemp("run")
    trained = model(request.param, "mscnn", samples=64)
    export_model(trained, folder / "model.onnx")
    return trained, folder


def test_the_engine_gives_the_scores_of_the_model(run: tuple[TrainedModel, Path]) -> None:
    trained, folder = run
    engine, frames = on_onnx(trained, folder), noise(trained)
    complete = frames.select(np.arange(20))
    descriptor = np.abs(np.random.default_rng(0).normal(size=(len(frames), 4))).astype(np.float32)
    for some, given in ((frames, {}), (frames, {"descriptor": descriptor}), (complete, {"missing": [2]})):
        expected = embed(trained, some, "cpu", **given)  # type: ignore[arg-type]
        found = embed(engine, some, "cpu", batch=27, **given)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.embedding, expected.embedding, rtol=1e-4, atol=1e-5)


def test_power_does_not_matter_and_a_frame_without_antennas_is_nan(run: tuple[TrainedModel, Path]) -> None:
    session = Session.open(run[1] / "model.onnx")
    iq = np.random.default_rng(0).normal(size=(1, 4, 64, 2)).astype(np.float32)
    expected = session.run(iq).logits
    for scale in (1e-25, 1e25):
        np.testing.assert_allclose(session.run(iq * np.float32(scale)).logits, expected, rtol=1e-4)
    assert not np.allclose(session.run(iq, present=np.array([[True, True, True, False]])).logits, expected, rtol=1e-3)
    broken = iq.copy()
    broken[0, 1, 3, 0] = np.nan
    for unusable in (0 * iq, broken, np.inf * iq):
        assert np.isnan(session.run(unusable)[1]).all()


def test_of_no_frames_there_are_no_scores(run: tuple[TrainedModel, Path]) -> None:
    trained, folder = run
    embedding, logits, _ = Session.open(folder / "model.onnx").run(np.empty((0, 4, 64, 2), np.float32))
    assert embedding.shape == (0, 64)
    assert logits.shape == (0, len(trained.devices))


def test_the_file_says_what_it_is(run: tuple[TrainedModel, Path]) -> None:
    said = {key: json.loads(value) for key, value in Session.open(run[1] / "model.onnx").metadata.items()}
    assert said["devices"] == DEVICES
    assert said["geometry"] == run[0].geometry.to_json()
    assert (said["samples"], said["method"], said["source"]) == (64, run[0].run.method, ["E2", "E3"])


def test_a_file_of_other_weights_is_refused_and_what_is_none(run: tuple[TrainedModel, Path], tmp_path: Path) -> None:
    trained, folder = run
    with pytest.raises(ModelError, match="other weights"):
        on_onnx(replace(trained, model=method_of(trained.run).build(1)), folder)
    with pytest.raises(ModelError, match="export-model"):
        on_onnx(trained, tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError, match="not an ONNX model"):
        on_onnx(trained, tmp_path)


def test_the_example_stands_alone(run: tuple[TrainedModel, Path], tmp_path: Path) -> None:
    trained, folder = run
    frames = noise(trained)
    np.save(tmp_path / "frames.npy", frames.iq)
    program = Path(__file__).parents[3] / "examples" / "edge.py"
    assert "import pisa_capc" not in program.read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program, folder / "model.onnx", tmp_path / "frames.npy"],
        capture_output=True,
        text=True,
        check=True,
    )
    said = [line.split()[1] for line in done.stdout.splitlines()]
    assert said == trained.predict(frames, "cpu").tolist()


def test_a_graph_that_is_off_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisa_capc.model.edge.export.to_onnx", lambda trained: _Nothing())
    monkeypatch.setattr("pisa_capc.model.edge.export.Session", lambda content: None)
    for difference in (1e-3, float("nan")):
        monkeypatch.setattr("pisa_capc.model.edge.export.compare", lambda *_, found=difference: (found, 1.0))
        with pytest.raises(ModelError, match="not written"):
            export_model(model(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


class _Nothing:
    def SerializeToString(self) -> bytes:
        return b""


@pytest.mark.slow  # quickly: mscnn above, and cldnn in test_recurrence, which have every change
@pytest.mark.parametrize("encoder", encoder_names())
def test_every_encoder_is_exported(encoder: str, tmp_path: Path) -> None:
    made = export_model(model("pisa", encoder), tmp_path / "model.onnx")
    assert made.difference <= 1e-4 * made.largest


@pytest.mark.slow
@pytest.mark.parametrize("method", ["single", "equalised", "aligned", "pisa-equalised", "pisa-aligned", "eada"])
def test_methods_are_exported_with_what_stands_before_their_network(method: str, tmp_path: Path) -> None:
    made = export_model(model(method), tmp_path / "model.onnx")
    assert made.difference <= 1e-4 * made.largest
