"""The closed form as a graph of real numbers gives what the model gives, whatever the offset and the antennas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pisa_capc.data.frames import Frames, load
from pisa_capc.data.protocol import split
from pisa_capc.model.edge import export_model
from pisa_capc.model.edge.closed_form import RealClosedForm
from pisa_capc.model.edge.engine import Session
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.methods.closed_form import ClosedForm
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.simulation.generate import generate

NEAR = 1e-3  # of the largest logit


def problem(folder: Path, scene: str, samples: int | None = None) -> tuple[TrainedModel, Frames]:
    generate(scene, folder, scale=0.01 if samples else 0.02, samples=samples, workers=1, show_progress=False)
    frames = load(folder)
    run = Run(split(frames.select(np.flatnonzero(frames.device != 4)), ["E2", "E3"], "E1", seed=1), seed=1)
    [trained] = fit(run, method="closed-form", device="cpu", show=False)
    return trained, frames.where(environment="E1")


def turned(iq: np.ndarray, turns: float) -> np.ndarray:
    return np.asarray(iq * np.exp(2j * np.pi * turns * np.arange(iq.shape[-1]))).astype(np.complex64)


@pytest.mark.parametrize(("scene", "samples"), [("wifi", None), ("lora", None), ("lora", 2048)])
def test_real_numbers_give_the_same_scores(scene: str, samples: int | None, tmp_path: Path) -> None:
    """Frames as they are, turned by much, and without an antenna; a device that the source does not have among them.

    The channel moves while the longest frames last.
    """
    trained, frames = problem(tmp_path, scene, samples)
    model = trained.model
    assert isinstance(model, ClosedForm)
    silent = frames.iq.copy()
    silent[:, 1] = 0
    for iq in (frames.iq, turned(frames.iq, 0.002), turned(frames.iq, 0.02), silent):
        real = torch.view_as_real(torch.from_numpy(iq))
        with torch.no_grad():
            there = real.square().sum((2, 3)) > 0
            expected, found = model(real, None, there), RealClosedForm(model).infer(real[None], None, there[None])
        largest = expected.logits.abs().max()
        assert (found.logits[0] - expected.logits).abs().max() < NEAR * largest
        assert (found.embedding[0] - expected.embedding).abs().max() < 0.01
        assert torch.equal(found.logits[0].argmax(1), expected.logits.argmax(1))
        assert found.error is not None
        assert expected.error is not None
        assert torch.allclose(found.error[0], expected.error, rtol=0.02, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["wifi", "lora"])
def test_the_file_alone_decides_as_the_model_does(scene: str, tmp_path: Path) -> None:
    trained, frames = problem(tmp_path / "set", scene)
    written = export_model(trained, tmp_path / "model.onnx")
    assert written.difference < NEAR * written.largest
    session = Session((tmp_path / "model.onnx").read_bytes())
    some = frames.select(np.arange(0, len(frames), 5))
    scores = embed(trained, some, "cpu")
    expected, given = scores.logits, session.run(some.iq.view(np.float32).reshape(*some.iq.shape, 2))
    found = given.logits
    assert scores.error is not None
    assert given.error is not None
    np.testing.assert_allclose(given.error, scores.error, rtol=0.02, atol=1e-3)
    assert np.abs(found - expected).max() < NEAR * np.abs(expected).max()
    np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))
