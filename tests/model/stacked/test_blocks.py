"""Training on a CPU in blocks against the plain layers."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from pisa_capc.core.threads import cpu_threads, undivided
from pisa_capc.model.encoders import build_encoder, encoder_names
from pisa_capc.model.encoders.transformer import Layer, Transformer
from pisa_capc.model.networks.topology import TopologyBlock
from pisa_capc.model.stacked import bind_noise, blocks, gru, sequences, unstack
from pisa_capc.model.stacked.layers import plain_layers

RUNS, FRAMES, SAMPLES = 2, 7, 40
IN_HOUSE = ("cnn", "mscnn", "resnet", "tcn", "cvcnn", "cldnn", "transformer")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven frames in blocks of one, two or four, by their type."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", SAMPLES * 32 * 8)
    monkeypatch.setattr(gru, "BLOCK", 2)
    monkeypatch.setattr(sequences, "BLOCK", 2 * 4 * (SAMPLES // 8) ** 2)


def prepared(name: str, dtype: torch.dtype = torch.float64, runs: int = RUNS) -> nn.Module:
    torch.manual_seed(1)
    model = build_encoder(name, 1, runs).to(dtype).train()
    for parameter in model.parameters():  # scales that are not 1, some of them negative
        nn.init.normal_(parameter, std=0.5)
    bind_noise(model, torch.tensor([3, 2026][:runs], dtype=torch.int32))
    return model


def gradients(
    model: nn.Module, x: Tensor, tokens: int | None, precision: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """What the model gives, the gradients of what it was given, and its running statistics."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16, cache_enabled=False):
        y = model(x, tokens)
    (y * torch.linspace(-1, 1, y[0].numel(), dtype=y.dtype).view_as(y[0])).sum().backward()
    found = {"y": y.detach(), "x": x.grad} | {name: p.grad for name, p in model.named_parameters()}
    return {name: value for name, value in found.items() if value is not None} | dict(model.named_buffers())


def test_these_are_all_encoders() -> None:
    assert set(IN_HOUSE) <= set(encoder_names())


@pytest.mark.parametrize("tokens", [8, 5, 3, 1, None])
@pytest.mark.parametrize("name", IN_HOUSE)
def test_blocks_give_what_plain_layers_give(name: str, tokens: int | None) -> None:
    ours, plain = prepared(name), prepared(name)
    x = torch.randn(RUNS, FRAMES, SAMPLES, 2, dtype=torch.float64)
    found = gradients(ours, x, tokens)
    with plain_layers():
        expected = gradients(plain, x, tokens)
    if name == "transformer":  # plain attention takes its softmax in float32
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    else:
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", IN_HOUSE)
def test_a_run_is_the_same_every_time(name: str) -> None:
    x = torch.randn(RUNS, FRAMES, SAMPLES, 2)
    first, second = (gradients(prepared(name, torch.float32), x, 8) for _ in range(2))
    assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.mark.parametrize("name", [name for name in IN_HOUSE if name not in ("cldnn", "transformer")])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_convolutions_are_the_same_with_any_number_of_threads(name: str, precision: torch.dtype) -> None:
    x = torch.randn(RUNS, FRAMES, SAMPLES, 2)
    found = []
    for threads in (1, 2):
        with cpu_threads(threads):
            found.append(gradients(prepared(name, torch.float32), x, 8, precision))
    assert all(torch.equal(value, found[1][key]) for key, value in found[0].items())


@pytest.mark.parametrize("name", ["cldnn", "transformer"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_sequences_are_the_same_with_any_number_of_threads(name: str, precision: torch.dtype) -> None:
    x = torch.randn(RUNS, FRAMES, SAMPLES, 2)
    found = []
    for threads in (1, 2, 3):
        with cpu_threads(threads), undivided():  # as a training has it: what is not in blocks is undivided
            found.append(gradients(prepared(name, torch.float32), x, 8, precision))
    assert all(torch.equal(value, other[key]) for other in found for key, value in found[0].items())


@pytest.mark.parametrize("name", IN_HOUSE)
def test_mixed_precision_follows_full_precision(name: str) -> None:
    x = torch.randn(RUNS, FRAMES, SAMPLES, 2)
    full = gradients(prepared(name, torch.float32), x, 8)
    half = gradients(prepared(name, torch.float32), x, 8, torch.bfloat16)
    for key, value in full.items():
        error = (half[key].float() - value).norm() / value.norm()
        assert error < (0.01 if key == "y" or "running" in key else 0.3), key  # a ReLU's sign may turn
        assert half[key].dtype == torch.float32 or key == "y"


@pytest.mark.parametrize("name", IN_HOUSE[:-1])
def test_a_run_is_the_same_alone_and_in_a_stack(name: str) -> None:
    together = prepared(name, torch.float32)
    alone = unstack(together, 1, build_encoder(name, 1, 1).train())
    x = torch.randn(RUNS, FRAMES, SAMPLES, 2)
    of_stack, of_one = gradients(together, x, 8), gradients(alone, x[1:], 8)
    assert all(torch.equal(of_stack[key][1], value[0]) for key, value in of_one.items())


def test_attention_over_the_array_in_blocks_is_the_plain_one() -> None:
    antennas, tokens, found = 3, 2, []
    random = torch.Generator().manual_seed(4)
    x = torch.randn(RUNS, FRAMES, antennas * tokens, 32, generator=random, dtype=torch.float64)
    tau_t, beta = 0.5 + 2 * torch.rand(2, RUNS, FRAMES, generator=random, dtype=torch.float64)
    place = torch.rand(antennas, 2, generator=random, dtype=torch.float64)
    there = torch.rand(RUNS, FRAMES, antennas, generator=random) < 0.7
    there[..., 0] = True
    for plain in (False, True):
        torch.manual_seed(2)
        block = TopologyBlock(32, 4, 0.5, 0.1, RUNS).double().train()
        bind_noise(block, torch.tensor([3, 2026], dtype=torch.int32))
        given = [part.clone().requires_grad_() for part in (x, tau_t, beta)]
        available = there.repeat_interleave(tokens, dim=-1)
        with plain_layers() if plain else nullcontext():
            nodes, loss, *_ = block.propagate(given[0], torch.cdist(place, place), 0.7, *given[1:], available)
        assert loss is not None
        (nodes.sin().sum() + (loss * torch.linspace(-1, 1, FRAMES)).sum()).backward()
        found.append([nodes, loss, *(part.grad for part in (*given, *block.parameters()))])
    assert not torch.equal(found[0][0], found[1][0])  # they are two ways
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-9)


def test_streams_that_are_left_out_change_nothing_for_the_others() -> None:
    x = torch.randn(RUNS, FRAMES, SAMPLES, 2, dtype=torch.float64)
    present = torch.tensor(
        [[True, False, True, True, False, False, True], [False, True, True, True, True, True, False]]
    )
    found = []
    for known in ({}, {"present": present}):
        model = prepared("transformer")
        y = model(x, 5, **known)
        (y * present[..., None, None]).sin().sum().backward()
        found.append([y[present], *(p.grad for p in model.parameters())])
        silent = y[~present]
    assert torch.equal(silent, torch.zeros_like(silent))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-10)


def test_a_run_of_which_all_streams_are_left_out_learns_nothing() -> None:
    model, x = prepared("transformer"), torch.randn(RUNS, FRAMES, SAMPLES, 2, dtype=torch.float64)
    present = torch.ones(RUNS, FRAMES, dtype=torch.bool)
    present[1] = False
    model(x, 5, present=present).sin().sum().backward()
    for parameter in model.layers.parameters():
        assert parameter.grad[0].any()
        assert not parameter.grad[1].any()


@pytest.mark.parametrize(("scale", "shift"), [(1e2, 0.0), (1e3, 0.0), (1.0, 8.0)])  # some are lost, all are infinite
def test_attention_whose_powers_leave_float32_is_the_plain_one(scale: float, shift: float) -> None:
    x, found = torch.randn(RUNS, FRAMES, SAMPLES, 2), []
    for plain in (False, True):
        model = prepared("transformer", torch.float32)
        with torch.no_grad():
            for layer in model.layers:
                layer.qkv.weight[:, :32] *= scale
                layer.qkv.bias[:, :64] += shift  # of queries and keys
        with plain_layers() if plain else nullcontext():
            found.append(gradients(model, x, 5))
    ours, expected = found
    for key, value in expected.items():
        assert (ours[key] - value).norm() < 0.02 * value.norm(), key  # scores of a thousand have four digits behind


class _Doubling(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class _Summing(Transformer):
    def finish(self, x: Tensor, tokens: int | None) -> Tensor:
        return super().finish(x, tokens).cumsum(-1)


@pytest.mark.parametrize("change", ["layer", "norm", "layers", "finish"])
def test_what_somebody_put_into_a_transformer_is_used_in_training_too(change: str) -> None:
    x, found = torch.randn(RUNS, FRAMES, SAMPLES, 2, dtype=torch.float64), []
    for plain in (False, True):
        torch.manual_seed(1)
        model = (_Summing if change == "finish" else Transformer)(1, RUNS)
        if change == "layer":
            model.layers[1] = _Doubling(RUNS)
        elif change == "norm":
            model.norm = nn.Identity()
        elif change == "layers":
            model.layers = nn.Identity()
        model = model.double().train()
        bind_noise(model, torch.tensor([3, 2026], dtype=torch.int32))
        with plain_layers() if plain else nullcontext():
            found.append(gradients(model, x, 5))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_the_graph_block_can_be_asked_twice_for_its_gradients() -> None:
    torch.manual_seed(2)
    block = TopologyBlock(32, 4, 0.5, 0.1, 1).double().train()
    bind_noise(block, torch.tensor([3], dtype=torch.int32))
    x = torch.randn(1, FRAMES, 6, 32, dtype=torch.float64, requires_grad=True)
    one, there = torch.ones(1, FRAMES, dtype=torch.float64), torch.ones(1, FRAMES, 6, dtype=torch.bool)
    nodes, *_ = block.propagate(x, torch.rand(3, 3, dtype=torch.float64), 0.7, one, one, there)
    first, second = (torch.autograd.grad(nodes.sin().sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
