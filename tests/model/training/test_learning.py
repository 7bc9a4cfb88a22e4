"""Training learns: devices that differ in IQ imbalance and DC offset are told apart in an unseen environment."""

from __future__ import annotations

import pytest

from pisa_capc.model.inference import embed
from pisa_capc.model.training import TrainingConfig, fit
from tests.problems import runs, small_frames


@pytest.mark.parametrize("method", ["pisa", "single"])
def test_devices_are_told_apart_in_an_unseen_environment(method: str) -> None:
    [run] = runs(small_frames(frames=40), (1, 1))
    training = TrainingConfig(epochs=12, batch=32, learning_rate=3e-3)
    [trained] = fit([run], method=method, encoder="cnn", device="cpu", training=training, show=False)
    history = [sum(epoch.loss.values()) for epoch in trained.run.history]
    assert history[-1] < 0.6 * history[0]
    assert trained.run.metrics.validation_f1 > 0.9
    scores = run.split.evaluator.score(embed(trained, run.split.target).logits)
    assert scores.macro_f1 > 0.8  # chance is 0.33
