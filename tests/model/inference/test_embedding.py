"""Embeddings with products in bfloat16, by any number of threads, and by a record of the network."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from pisa_capc import Frames
from pisa_capc.core.threads import cpu_threads
from pisa_capc.data.geometry import square
from pisa_capc.model.inference import SourceStatistics, TrainedModel, embed
from pisa_capc.model.inference import embedding as module
from pisa_capc.model.inference.devices import has_bfloat16
from pisa_capc.model.inference.recorded import RecordedNetwork
from pisa_capc.model.methods import Setup, build_method
from pisa_capc.model.runs import ModelRun

DEVICES = ["D1", "D2", "D3"]


@pytest.fixture
def frames() -> Frames:
    random = np.random.default_rng(7)
    iq = random.standard_normal((150, 4, 64)) + 1j * random.standard_normal((150, 4, 64))
    iq[5, 2] = 0  # an antenna that is absent
    return Frames.from_arrays(iq, device=DEVICES * 50, environment=["E1"] * 150, cfo_hz=random.normal(0, 1e3, (150, 4)))


def untrained(encoder: str, frames: Frames) -> TrainedModel:
    setup = Setup(len(DEVICES), encoder, square())
    of = {"devices": tuple(DEVICES), "geometry": square(), "samples": 64, "sample_rate_hz": frames.sample_rate_hz}
    about = ModelRun(method="pisa", encoder=encoder, **of)
    return TrainedModel(build_method("pisa", setup).build(1).eval(), about, SourceStatistics())


PRECISIONS = ["float32", *(["bfloat16"] if has_bfloat16() else [])]


@pytest.mark.parametrize("recorded_from", [0, 10**6])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("encoder", ["cnn", "cldnn", "transformer"])
def test_the_bits_do_not_depend_on_the_number_of_threads(
    encoder: str, precision: str, recorded_from: int, frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECORDED_FROM", recorded_from)
    model = untrained(encoder, frames)
    for some in (frames, frames.select(np.arange(5))):  # several blocks, and one
        found = []
        for threads in (1, 2):
            with cpu_threads(threads):
                found.append(embed(model, some, "cpu", precision=precision))
        np.testing.assert_array_equal(found[1].logits, found[0].logits)
        np.testing.assert_array_equal(found[1].embedding, found[0].embedding)


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize("encoder", ["cnn", "cldnn", "transformer"])
def test_a_record_gives_what_the_network_gives(
    encoder: str, described: bool, frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not described:
        frames = replace(frames, source=replace(frames.source, cfo_hz=None))  # type: ignore[type-var]
    model = untrained(encoder, frames)
    plain = embed(model, frames, "cpu")
    monkeypatch.setattr(module, "RECORDED_FROM", 0)
    used = []
    forward = RecordedNetwork.forward
    monkeypatch.setattr(RecordedNetwork, "forward", lambda self, *given: used.append(1) or forward(self, *given))
    by_record = embed(model, frames, "cpu")
    assert used
    copied = replace(model, model=pickle.loads(pickle.dumps(deepcopy(model.model))))  # a record cannot be copied
    np.testing.assert_array_equal(embed(copied, frames, "cpu").logits, by_record.logits)
    np.testing.assert_allclose(by_record.logits, plain.logits, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        model.model.classifier.weight.add_(1.0)  # type: ignore[union-attr,operator]
    assert not np.allclose(embed(model, frames, "cpu").logits, by_record.logits)


def test_progress_counts_every_frame(frames: Frames) -> None:
    counts: list[int] = []
    embed(untrained("cnn", frames), frames, "cpu", batch=70, after_batch=counts.append)
    assert sum(counts) == len(frames)
    assert max(counts) <= module.BLOCK


@pytest.mark.skipif(not has_bfloat16(), reason="a processor without bfloat16")
@pytest.mark.parametrize("encoder", ["cnn", "cldnn", "transformer"])
def test_products_in_bfloat16_give_nearly_the_same(encoder: str, frames: Frames) -> None:
    model = untrained(encoder, frames)
    full, lower = (embed(model, frames, "cpu", precision=p) for p in ("float32", "bfloat16"))
    assert lower.embedding.dtype == np.float32
    error = np.linalg.norm(lower.embedding - full.embedding) / np.linalg.norm(full.embedding)
    assert 0 < error < 0.02
