"""Streams that are computed once and stand for several."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pisa_capc.model.encoders import build_encoder
from pisa_capc.model.encoders.convolutional import CNN
from pisa_capc.model.encoders.transformer import Transformer
from pisa_capc.model.networks import PISA, PisaConfig
from pisa_capc.model.networks.streams import distinct
from pisa_capc.model.objective import drop_spans
from pisa_capc.model.stacked import bind_noise
from pisa_capc.model.stacked.layers import plain_layers

RUNS, FRAMES, ANTENNAS, SAMPLES = 2, 6, 4, 48


def two_views(
    antenna_drop: float, span_drop: float, runs: int = RUNS
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Frames (R, 2B, A, T, 2), their mask and which of them lost no span, in double precision."""
    torch.manual_seed(1)
    iq = torch.randn(runs, FRAMES, ANTENNAS, SAMPLES, 2, dtype=torch.float64)
    span_keep = torch.rand(runs, FRAMES, 8) >= span_drop
    keep = torch.rand(runs, FRAMES, ANTENNAS) >= antenna_drop
    keep[..., 1] |= ~keep.any(-1)
    mask = torch.cat([torch.ones_like(keep), keep], 1)
    both = torch.cat([iq, drop_spans(iq, span_keep)], 1)
    return torch.where(mask[..., None, None], both, 0), mask, span_keep.all(-1)


@pytest.mark.parametrize("of_one_size", [False, True])
@pytest.mark.parametrize(("antenna_drop", "span_drop"), [(0.25, 0.15), (0.0, 0.0), (0.6, 0.5), (0.0, 0.15)])
def test_what_differs_is_there_once_and_stands_for_all(
    antenna_drop: float, span_drop: float, of_one_size: bool
) -> None:
    iq, mask, unchanged = two_views(antenna_drop, span_drop)
    streams = iq.flatten(1, 2)
    found = distinct(mask, unchanged, of_one_size)
    chosen = found.of(streams)
    assert torch.equal(found.spread(chosen), streams)
    for run in range(RUNS):
        used = int(found.counts.used[run])
        own = found.counts.each[run]
        assert own.sum() == found.counts.total == streams.shape[1]
        assert not own[used:].any()
        counted = chosen[run][own > 0]
        assert len(torch.unique(counted, dim=0)) == len(counted) == len(torch.unique(streams[run], dim=0))
        assert torch.equal(own, torch.bincount(found.place[run], minlength=len(own)).float())


def test_gradients_of_the_same_stream_are_added_in_both_views() -> None:
    _, mask, unchanged = two_views(0.25, 0.15)
    found = distinct(mask, unchanged, of_one_size=True)
    features = torch.randn(*found.first.shape, 3, dtype=torch.float64, requires_grad=True)
    there = mask.flatten(1)[..., None]  # nobody learns from silence
    gradient = torch.randn(*found.place.shape, 3, dtype=torch.float64) * there
    found.spread(features).backward(gradient)
    expected = torch.zeros_like(features).scatter_add(1, found.place[..., None].expand(-1, -1, 3), gradient)
    assert torch.allclose(features.grad, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("encoder", ["cnn", "mscnn", "resnet", "tcn", "cvcnn", "cldnn"])
def test_pisa_learns_the_same_from_streams_that_are_computed_once(encoder: str) -> None:
    iq, mask, unchanged = two_views(0.25, 0.05)
    assert unchanged.any()
    assert not unchanged.all()
    results = []
    for given in (None, unchanged):
        torch.manual_seed(2)
        model = PISA(5, encoder, config=PisaConfig(graph_dropout=0.0), runs=RUNS).double()
        for name, parameter in model.named_parameters():
            if "norm" in name:  # at first the mean of silence is zero up to rounding, and a ReLU may take it or not
                parameter.data += 0.2 * torch.randn_like(parameter)
        descriptor = torch.randn(RUNS, 2 * FRAMES, 4, dtype=torch.float64)
        output = model(iq, descriptor, mask, unchanged=given)
        loss = output.logits.square().sum() + output.embedding.square().sum() + output.graph_loss.sum()
        loss.backward()
        learnt = [p.grad for p in model.parameters() if p.grad is not None]
        results.append([output.embedding, output.logits, *learnt, *model.buffers()])
    assert len(results[0]) == len(results[1])
    for expected, found in zip(*results, strict=True):
        assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["resnet", "cldnn"])
def test_plain_layers_count_too(name: str) -> None:
    iq, mask, unchanged = two_views(0.25, 0.05)
    streams, found = iq.flatten(1, 2), distinct(mask, unchanged, of_one_size=False)
    weight = torch.randn(*streams.shape[:2], 4, 32, dtype=torch.float64) * mask.flatten(1)[..., None, None]
    results = []
    for once in (False, True):
        torch.manual_seed(4)
        encoder = build_encoder(name, 1, RUNS).double()
        for parameter in encoder.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
        with plain_layers():
            features = encoder(found.of(streams), 4, counts=found.counts) if once else encoder(streams, 4)
        features = found.spread(features) if once else features
        features.backward(weight)
        results.append([features * mask.flatten(1)[..., None, None], *(p.grad for p in encoder.parameters())])
        results[-1] = [*(found for found in results[-1] if found is not None), *encoder.buffers()]
    for expected, got in zip(*results, strict=True):
        assert torch.allclose(got, expected, rtol=1e-9, atol=1e-9)


class Rectified(CNN):
    """A `forward` that knows nothing of counts."""

    def forward(self, x: torch.Tensor, tokens: int | None = None) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x.relu(), tokens)


class Module(torch.nn.Module):
    """An encoder that is no `Encoder`."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build_encoder("cnn", 1, RUNS)

    def forward(self, x: torch.Tensor, tokens: int) -> torch.Tensor:
        found: torch.Tensor = self.inner(x, tokens)
        return found


@pytest.mark.parametrize("make", [lambda: Rectified(1, RUNS), Module])
def test_encoders_of_ones_own_need_not_count(make: Callable[[], torch.nn.Module]) -> None:
    iq, mask, unchanged = two_views(0.25, 0.05)
    model = PISA(5, "cnn", runs=RUNS)
    model.identity_encoder = make()  # type: ignore[assignment]
    model = model.double()
    torch.manual_seed(5)
    expected = model(iq, None, mask).logits
    torch.manual_seed(5)
    assert torch.equal(model(iq, None, mask, unchanged=unchanged).logits, expected)


def test_transformers_draw_for_each_stream_so_that_none_stands_for_another() -> None:
    iq, mask, unchanged = two_views(0.25, 0.05)
    results = []
    for given in (None, unchanged):
        torch.manual_seed(3)
        model = PISA(5, "transformer", runs=RUNS).double()
        results.append(model(iq, None, mask, unchanged=given).logits)
    assert torch.equal(*results)


def test_pisa_learns_the_same_where_a_transformer_leaves_out_silent_antennas() -> None:
    iq, mask, unchanged = two_views(0.25, 0.05)
    assert not mask.all()
    results = []
    for skipping in (False, True):
        torch.manual_seed(3)
        model = PISA(5, "transformer", runs=RUNS).double()
        bind_noise(model, torch.tensor([3, 2026], dtype=torch.int32))
        model.identity_encoder.skipping = skipping  # type: ignore[misc]
        output = model(iq, None, mask, unchanged=unchanged)
        (output.logits.square().sum() + output.embedding.square().sum() + output.graph_loss.sum()).backward()
        results.append([*output[:3], *(p.grad for p in model.parameters() if p.grad is not None)])
    assert all(torch.equal(*pair) for pair in zip(*(found[:3] for found in results), strict=True))
    assert len(results[0]) == len(results[1])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-10)


class Clipped(Transformer):
    """A `forward` that knows nothing of streams that are left out."""

    def forward(self, x: torch.Tensor, tokens: int | None = None) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x.clamp(-1, 1), tokens)


def test_transformers_of_ones_own_need_not_leave_out_any() -> None:
    iq, mask, _ = two_views(0.25, 0.05)
    model = PISA(5, "transformer", runs=RUNS)
    model.identity_encoder = Clipped(1, RUNS)
    assert model.double()(iq, None, mask).logits.isfinite().all()


@pytest.mark.parametrize("frames", [FRAMES, 64])
@pytest.mark.parametrize(("antenna_drop", "span_drop"), [(0.25, 0.15), (0.0, 0.0), (0.6, 0.5), (0.0, 0.15)])
def test_a_kernel_finds_what_differs_just_so(antenna_drop: float, span_drop: float, frames: int) -> None:
    pytest.importorskip("triton")
    from pisa_capc.model.stacked import fused

    torch.manual_seed(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mask = torch.rand(RUNS, 2 * frames, ANTENNAS, device=device) >= antenna_drop
    mask[0, :frames] = True  # as in training; antennas may be missing from the beginning
    unchanged = torch.rand(RUNS, frames, device=device) >= span_drop
    with plain_layers():
        expected = distinct(mask, unchanged, of_one_size=True)
    size = expected.first.shape[1]
    first, kind, place, each, used = fused.distinct_streams(mask, unchanged, size, expected.counts.grain)
    assert torch.equal(place, expected.place)
    assert torch.equal(first, expected.first)
    assert torch.equal(kind, expected.kind)
    assert torch.equal(each, expected.counts.each)
    assert torch.equal(used, expected.counts.used)
