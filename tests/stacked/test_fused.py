"""The fused kernels against plain PyTorch: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("triton")
torch.backends.cudnn.allow_tf32 = False  # the comparison is in full float32

from pisa_capc.encoders import build_encoder  # noqa: E402
from pisa_capc.encoders.transformer import Layer  # noqa: E402
from pisa_capc.stacked import (  # noqa: E402
    GRU,
    ConvChain,
    ConvNorm,
    Convolution,
    Dropout,
    LayerNorm,
    Linear,
    bind_noise,
    fused,
)
from pisa_capc.stacked import layers as stacked_layers  # noqa: E402
from pisa_capc.stacked.fused import chains, launching  # noqa: E402
from pisa_capc.stacked.layers import plain_layers  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RUNS, STREAMS, SAMPLES = 2, 3, 50


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.detach(), b.detach()
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12))


def gradients(module: torch.nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    tensors = [t for t in (*inputs, *module.parameters()) if t.grad is not None]
    return [t.grad for t in tensors if t.grad is not None]


@pytest.mark.parametrize(
    ("channels", "kernel", "dilation", "skip"),
    [(2, 7, 1, False), (8, 3, 1, False), (32, 3, 1, True), (32, 5, 2, False), (32, 15, 1, False)],
)
def test_fused_convolution_with_norm_equals_plain_pytorch(
    channels: int, kernel: int, dilation: int, skip: bool
) -> None:
    torch.manual_seed(1)
    plain = ConvNorm(channels, 32, kernel, RUNS, dilation=dilation).to(DEVICE)
    plain.norm.weight.data.uniform_(0.5, 1.5)
    plain.norm.bias.data.normal_()
    quick = copy.deepcopy(plain)
    results = []
    for module in (plain, quick):
        torch.manual_seed(2)
        x = torch.randn(RUNS, STREAMS, SAMPLES, channels, device=DEVICE, requires_grad=True)
        s = torch.randn(RUNS, STREAMS, SAMPLES, 32, device=DEVICE, requires_grad=True) if skip else None
        weight = torch.randn(RUNS, STREAMS, SAMPLES, 32, device=DEVICE)
        if module is plain:
            with plain_layers():
                out = module(x, s)
        else:
            out = fused.conv_norm(x, [module.weight], [module.bias.detach()], module.norm, dilation, s, True)
        out.backward(weight)
        grads = gradients(module, x, *([s] if s is not None else []))
        results.append([out, *grads, module.norm.running_mean, module.norm.running_var])
    assert len(results[0]) == len(results[1])
    for expected, found in zip(*results, strict=True):
        assert relative(found, expected) < 1e-5
    # and without batch statistics
    plain.eval()
    quick.eval()
    with torch.no_grad(), plain_layers():
        expected = plain(x, s)
    found = fused.conv_norm(x, [quick.weight], [quick.bias], quick.norm, dilation, s, True)
    assert relative(found, expected) < 1e-5


def compare_chain(plain: ConvChain, x: torch.Tensor, tokens: int, width: int = 32) -> None:
    """Results, gradients and running statistics, then the same without batch statistics.

    On a GPU in bfloat16, in which alone chains go there.
    """
    most, mixed = (1e-5, False) if DEVICE == "cpu" else (0.1, True)
    torch.manual_seed(11)
    for parameter in plain.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    quick = copy.deepcopy(plain)
    weight = torch.randn(*x.shape[:2], tokens or x.shape[2], width, device=DEVICE)

    def at_once() -> torch.Tensor:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=mixed):
            assert chains.takes(x, quick.convolutions())
            return chains.conv_chain(x, quick.convolutions(), tokens)

    def one_by_one() -> torch.Tensor:
        with plain_layers():
            return plain(x, tokens or None)

    results = []
    for module, forward in ((plain, one_by_one), (quick, at_once)):
        forward()
        out = forward()  # the second time with running statistics that are not those of the beginning
        out.backward(weight.to(out.dtype))
        results.append([out, *gradients(module), *module.buffers()])
    assert len(results[0]) == len(results[1])
    for expected, found in zip(*results, strict=True):
        assert relative(found, expected) < most
    plain.eval()
    quick.eval()
    with torch.no_grad():
        assert relative(at_once(), one_by_one()) < most


@pytest.mark.parametrize("tokens", [0, 5])
@pytest.mark.parametrize("name", ["cnn", "mscnn", "cvcnn", "resnet", "tcn"])
def test_fused_chain_equals_plain_pytorch(name: str, tokens: int) -> None:
    torch.manual_seed(10)
    encoder = build_encoder(name, 1, RUNS).to(DEVICE)
    compare_chain(encoder, torch.randn(RUNS, STREAMS, 45, 2, device=DEVICE), tokens)


def test_fused_chain_of_whole_tiles_several_to_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "MULTIPROCESSORS", 1)
    torch.manual_seed(12)
    encoder = build_encoder("tcn", 1, RUNS).to(DEVICE)
    compare_chain(encoder, torch.randn(RUNS, 12, 64, 2, device=DEVICE), 4)


class Chain(ConvChain):
    """A convolution of 16 channels, then one of each of these kernels."""

    def __init__(self, *taps: int) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList([ConvNorm(2, 16, 3, RUNS), *(ConvNorm(16, 16, k, RUNS) for k in taps)])

    def convolutions(self) -> list[Convolution]:
        return [c for part in self.parts for c in part.convolutions()]


def test_fused_chain_of_other_widths_and_kernels() -> None:
    torch.manual_seed(13)
    compare_chain(Chain(7, 3, 9).to(DEVICE), torch.randn(RUNS, STREAMS, 21, 2, device=DEVICE), 3, width=16)


@pytest.mark.parametrize("tokens", [0, 3])
def test_fused_gru_equals_pytorch_gru(tokens: int) -> None:
    torch.manual_seed(3)
    plain = GRU(32, 16, RUNS).to(DEVICE)
    quick = copy.deepcopy(plain)
    results = []
    for module in (plain, quick):
        torch.manual_seed(4)
        x = torch.randn(RUNS, 5, 9, 32, device=DEVICE, requires_grad=True)
        weight = torch.randn(RUNS, 5, tokens or 9, 32, device=DEVICE)
        if module is plain:
            with plain_layers():
                out = module(x, tokens or None)
        else:
            parameters = (module.weight_input, module.weight_hidden, module.bias_input, module.bias_hidden)
            out = fused.gru(x, *parameters, tokens)
        out.backward(weight)
        results.append([out, *gradients(module, x)])
    for expected, found in zip(*results, strict=True):
        assert relative(found, expected) < 1e-5


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("with_skip", [False, True])
def test_fused_pooling_equals_pooling_afterwards(tokens: int, with_skip: bool) -> None:
    torch.manual_seed(5)
    plain = ConvNorm(32, 32, 3, RUNS).to(DEVICE)
    quick = copy.deepcopy(plain)
    results = []
    for module in (plain, quick):
        torch.manual_seed(6)
        x = torch.randn(RUNS, STREAMS, SAMPLES, 32, device=DEVICE, requires_grad=True)
        skip = torch.randn(RUNS, STREAMS, SAMPLES, 32, device=DEVICE, requires_grad=True) if with_skip else None
        weight = torch.randn(RUNS, STREAMS, tokens, 32, device=DEVICE)
        if module is plain:
            with plain_layers():
                out = module(x, skip, tokens)
        else:
            bias = module.bias.detach()
            out = fused.conv_norm(x, [module.weight], [bias], module.norm, 1, skip, True, tokens)
        out.backward(weight)
        results.append([out, *gradients(module, x, *([skip] if skip is not None else []))])
    for expected, found in zip(*results, strict=True):
        assert relative(found, expected) < 1e-5


@pytest.mark.parametrize("drop", [0.0, 0.3])
@pytest.mark.parametrize("half", ["attention", "feed forward"])
def test_fused_halves_of_a_transformer_layer_equal_plain_ones_with_the_same_masks(half: str, drop: float) -> None:
    torch.manual_seed(7)
    norm, inner, outer = LayerNorm(32, RUNS), Dropout(drop), Dropout(drop)
    norm.weight.data.uniform_(0.5, 1.5)
    norm.bias.data.normal_()
    if half == "attention":
        layers = [Linear(32, 96, RUNS), Linear(32, 32, RUNS), norm]
    else:
        layers = [Linear(32, 128, RUNS), Linear(128, 32, RUNS), norm]
    plain = torch.nn.ModuleList([*layers, inner, outer]).to(DEVICE)
    bind_noise(plain, torch.tensor([12345, -999], dtype=torch.int32, device=DEVICE))
    results = []
    for module, where in ((plain, stacked_layers), (copy.deepcopy(plain), fused)):
        torch.manual_seed(8)
        x = torch.randn(RUNS, STREAMS, 21, 32, device=DEVICE, requires_grad=True)
        weight = torch.randn(RUNS, STREAMS, 21, 32, device=DEVICE)
        first, second, norm, inner, outer = module
        with plain_layers():
            if half == "attention":
                out = where.attention(x, first, second, norm, 4, inner, outer)
            else:
                out = where.feed_forward(x, first, second, norm, inner, outer)
        out.backward(weight)
        results.append([out, *gradients(module, x)])
    assert len(results[0]) == 8
    for expected, found in zip(*results, strict=True):
        assert relative(found, expected) < 1e-5


def test_fused_layer_without_gradients_gives_the_same() -> None:
    torch.manual_seed(9)
    layer = Layer(RUNS).to(DEVICE).eval()
    x = torch.randn(RUNS, STREAMS, 40, 32, device=DEVICE)
    with torch.no_grad(), plain_layers():
        expected = layer(x)
        found = fused.attention(x, layer.qkv, layer.out, layer.norm_attention, 4, layer.drop_weights, layer.drop_hidden)
        found = fused.feed_forward(
            found, layer.up, layer.down, layer.norm_feed_forward, layer.drop_weights, layer.drop_hidden
        )
    assert relative(found, expected) < 1e-5
