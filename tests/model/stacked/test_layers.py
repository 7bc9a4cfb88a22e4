"""Stacked layers against PyTorch's own, run by run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pisa_capc.model.encoders.transformer import Layer
from pisa_capc.model.stacked import GRU, ConvNorm, Dropout, LayerNorm, Linear, bind_noise, conv_chain
from tests.models import without_dropout

RUNS = 3
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def copied(module: nn.Module, **values: torch.Tensor) -> nn.Module:
    """A PyTorch module in float64 with these parameters."""
    module.double().load_state_dict(values, strict=False)
    return module


@pytest.mark.parametrize("runs", [1, RUNS])
def test_linear(runs: int) -> None:
    layer, x = Linear(5, 7, runs).double(), torch.randn(runs, 2, 4, 5, dtype=torch.float64)
    for r in range(runs):
        expected = copied(nn.Linear(5, 7), weight=layer.weight[r], bias=layer.bias[r])(x[r])
        torch.testing.assert_close(layer(x)[r], expected, **CLOSE)


@pytest.mark.parametrize("runs", [1, RUNS])
def test_layer_norm(runs: int) -> None:
    layer, x = LayerNorm(6, runs).double(), torch.randn(runs, 2, 4, 6, dtype=torch.float64)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    for r in range(runs):
        expected = copied(nn.LayerNorm(6), weight=layer.weight[r], bias=layer.bias[r])(x[r])
        torch.testing.assert_close(layer(x)[r], expected, **CLOSE)


@pytest.mark.parametrize("dilation", [1, 4])
def test_convolution_with_batch_norm_and_its_running_statistics(dilation: int) -> None:
    layer = ConvNorm(3, 8, 5, RUNS, dilation=dilation).double()
    nn.init.normal_(layer.norm.weight)
    nn.init.normal_(layer.norm.bias)
    theirs = []
    for r in range(RUNS):
        conv = nn.Conv1d(3, 8, 5, padding="same", dilation=dilation)
        copied(conv, weight=layer.weight[r], bias=layer.bias[r])
        norm = copied(nn.BatchNorm1d(8), weight=layer.norm.weight[r], bias=layer.norm.bias[r])
        theirs.append(nn.Sequential(conv, norm, nn.ReLU()))
    for _ in range(3):
        x = torch.randn(RUNS, 4, 30, 3, dtype=torch.float64)
        found = layer(x)
        for r in range(RUNS):
            torch.testing.assert_close(found[r], theirs[r](x[r].transpose(1, 2)).transpose(1, 2), **CLOSE)
            torch.testing.assert_close(layer.norm.running_mean[r], theirs[r][1].running_mean, **CLOSE)
            torch.testing.assert_close(layer.norm.running_var[r], theirs[r][1].running_var, **CLOSE)
    layer.eval()
    found = layer(x)
    for r in range(RUNS):
        torch.testing.assert_close(found[r], theirs[r].eval()(x[r].transpose(1, 2)).transpose(1, 2), **CLOSE)


def test_gradients_of_convolution_with_batch_norm() -> None:
    layer = ConvNorm(2, 4, 3, RUNS).double()
    x = torch.randn(RUNS, 3, 10, 2, dtype=torch.float64, requires_grad=True)
    skip = torch.randn(RUNS, 3, 10, 4, dtype=torch.float64, requires_grad=True)
    layer(x, skip).square().sum().backward()
    for r in range(RUNS):
        conv = copied(nn.Conv1d(2, 4, 3, padding=1), weight=layer.weight[r], bias=layer.bias[r])
        norm = copied(nn.BatchNorm1d(4))
        own, add = (t[r].detach().clone().requires_grad_() for t in (x, skip))
        (norm(conv(own.transpose(1, 2))).transpose(1, 2) + add).relu().square().sum().backward()
        assert x.grad is not None
        assert skip.grad is not None
        assert layer.weight.grad is not None
        torch.testing.assert_close(x.grad[r], own.grad, **CLOSE)
        torch.testing.assert_close(skip.grad[r], add.grad, **CLOSE)
        torch.testing.assert_close(layer.weight.grad[r], conv.weight.grad, **CLOSE)


def test_a_chain_with_one_norm_frozen_is_its_convolutions_one_by_one() -> None:
    torch.manual_seed(3)
    layers = [ConvNorm(2, 32, 3), ConvNorm(32, 32, 3)]
    layers[1].norm.eval()
    x = torch.randn(1, 3, 20, 2)
    chain = conv_chain(x, [c for layer in layers for c in layer.convolutions()])
    torch.testing.assert_close(chain, layers[1](layers[0](x)), **CLOSE)


def test_gru() -> None:
    layer, x = GRU(6, 4, RUNS).double(), torch.randn(RUNS, 3, 9, 6, dtype=torch.float64)
    names = {"ih": ("weight_input", "bias_input"), "hh": ("weight_hidden", "bias_hidden")}
    for r in range(RUNS):
        values = {}
        for short, (weight, bias) in names.items():
            for direction, end in enumerate(("", "_reverse")):
                values[f"weight_{short}_l0{end}"] = getattr(layer, weight)[r, direction]
                values[f"bias_{short}_l0{end}"] = getattr(layer, bias)[r, direction]
        theirs = copied(nn.GRU(6, 4, batch_first=True, bidirectional=True), **values)
        torch.testing.assert_close(layer(x)[r], theirs(x[r])[0], **CLOSE)


def test_transformer_layer() -> None:
    layer = Layer(RUNS)
    for norm in (layer.norm_attention, layer.norm_feed_forward):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    x = torch.randn(RUNS, 2, 11, 32)
    without_dropout(layer)
    parts = {
        "self_attn.in_proj_": layer.qkv, "self_attn.out_proj.": layer.out, "linear1.": layer.up, "linear2.": layer.down,
        "norm1.": layer.norm_attention, "norm2.": layer.norm_feed_forward,
    }  # fmt: skip
    for r in range(RUNS):
        theirs = nn.TransformerEncoderLayer(32, 4, 128, dropout=0.0, batch_first=True)
        values = {f"{name}weight": part.weight[r] for name, part in parts.items()}
        values |= {f"{name}bias": part.bias[r] for name, part in parts.items()}
        theirs.load_state_dict(values)
        torch.testing.assert_close(layer(x)[r], theirs(x[r]), rtol=1e-4, atol=1e-5)


def test_dropout_keeps_the_mean_and_is_off_in_eval() -> None:
    layer = Dropout(0.3)
    bind_noise(layer, torch.tensor([1, 2], dtype=torch.int32))
    x = torch.ones(2, 200, 500)
    y = layer(x)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert y.mean() == pytest.approx(1, abs=0.01)
    assert torch.equal(layer.eval()(x), x)
