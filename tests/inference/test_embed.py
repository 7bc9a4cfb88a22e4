"""Embeddings with products in bfloat16."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc import Frames
from pisa_capc.geometry import square
from pisa_capc.inference import SourceStatistics, TrainedModel, embed
from pisa_capc.inference.devices import has_bfloat16
from pisa_capc.methods import Setup, build_method

DEVICES = ["D1", "D2", "D3"]


@pytest.fixture
def frames() -> Frames:
    random = np.random.default_rng(7)
    iq = random.standard_normal((150, 4, 64)) + 1j * random.standard_normal((150, 4, 64))
    iq[5, 2] = 0  # an antenna that is absent
    return Frames.from_arrays(iq, device=DEVICES * 50, environment=["E1"] * 150, cfo_hz=random.normal(0, 1e3, (150, 4)))


def untrained(encoder: str, frames: Frames) -> TrainedModel:
    setup = Setup(len(DEVICES), encoder, square())
    about = {"geometry": square().to_json(), "samples": 64, "sample_rate_hz": frames.sample_rate_hz}
    return TrainedModel(build_method("pisa", setup).build(1).eval(), about | {"devices": DEVICES}, SourceStatistics())


@pytest.mark.skipif(not has_bfloat16(), reason="a processor without bfloat16")
@pytest.mark.parametrize("encoder", ["cnn", "cldnn", "transformer"])
def test_products_in_bfloat16_give_nearly_the_same(encoder: str, frames: Frames) -> None:
    model = untrained(encoder, frames)
    full, lower = (embed(model, frames, "cpu", precision=p) for p in ("float32", "bfloat16"))
    assert lower.embedding.dtype == np.float32
    error = np.linalg.norm(lower.embedding - full.embedding) / np.linalg.norm(full.embedding)
    assert 0 < error < 0.02
