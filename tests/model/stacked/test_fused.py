"""The fused kernels against plain PyTorch: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("triton")
torch.backends.cudnn.allow_tf32 = False  # the comparison is in full float32

from pisa_capc.model.encoders import build_encoder  # noqa: E402
from pisa_capc.model.encoders.transformer import Layer  # noqa: E402
from pisa_capc.model.stacked import (  # noqa: E402
    GRU,
    ConvChain,
    ConvNorm,
    Convolution,
    Counts,
    Dropout,
    LayerNorm,
    Linear,
    bind_noise,
    fused,
)
from pisa_capc.model.stacked import layers as stacked_layers  # noqa: E402
from pisa_capc.model.stacked.fused import chains, launching  # noqa: E402
from pisa_capc.model.stacked.layers import plain_layers  # noqa: E402

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


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("tokens", [0, 5])
def test_fused_convolution_of_frames_that_stand_for_several(tokens: int) -> None:
    torch.manual_seed(16)
    counts = some_counts(RUNS, 6)
    plain = ConvNorm(32, 32, 3, RUNS).to(DEVICE)
    quick = copy.deepcopy(plain)
    results = []
    for module in (plain, quick):
        torch.manual_seed(17)
        x, s = (torch.randn(RUNS, 6, SAMPLES, 32, device=DEVICE, requires_grad=True) for _ in range(2))
        weight = those_used(torch.randn(RUNS, 6, tokens or SAMPLES, 32, device=DEVICE), counts)
        [c] = module.convolutions()
        if module is plain:
            with plain_layers():
                out = stacked_layers.conv_norm(
                    x, c.weights, c.biases, c.norm, skip=s, tokens=tokens or None, counts=counts
                )
        else:
            biases = [b.detach() for b in c.biases]
            out = fused.conv_norm(x, c.weights, biases, c.norm, 1, s, True, tokens, counts)
        out = those_used(out, counts)
        out.backward(weight)
        results.append([out, *gradients(module, x, s), *module.buffers()])
    for expected, found in zip(*results, strict=True):
        assert relative(found, expected) < 1e-5


def some_counts(runs: int, frames: int) -> Counts:
    """Most frames count once, some twice, one often, and the last of each run not at all."""
    each = torch.ones(runs, frames)
    used = torch.tensor([frames - 1, frames - 2][:runs], dtype=torch.int32)
    for run, last in enumerate(used.tolist()):
        each[run, last:] = 0
        each[run, last - 2] = 2
    total = int(each.sum(1).max()) + 3
    for run, last in enumerate(used.tolist()):
        each[run, last - 1] += total - each[run].sum()
    return Counts(each.to(DEVICE), used.to(DEVICE), total)


def those_used(values: torch.Tensor, counts: Counts | None) -> torch.Tensor:
    """Values (R, N, …), with zeros where nothing need be computed."""
    if counts is None:
        return values
    there = torch.arange(values.shape[1], device=values.device) < counts.used[:, None]
    return torch.where(there.view(*there.shape, *(1 for _ in values.shape[2:])), values, 0)


def compare_chain(
    plain: ConvChain, x: torch.Tensor, tokens: int, width: int = 32, counts: Counts | None = None
) -> None:
    """Results, gradients and running statistics, then the same without batch statistics.

    On a GPU in bfloat16, in which alone chains go there: then they may be as far from float32 as plain layers are.
    """
    mixed = DEVICE != "cpu"
    torch.manual_seed(11)
    for parameter in plain.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    rough, quick = copy.deepcopy(plain), copy.deepcopy(plain)
    weight = those_used(torch.randn(*x.shape[:2], tokens or x.shape[2], width, device=DEVICE), counts)

    def at_once() -> torch.Tensor:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=mixed):
            assert chains.takes(x, quick.convolutions())
            return those_used(chains.conv_chain(x, quick.convolutions(), tokens, counts), counts)

    def one_by_one(module: ConvChain, mixed: bool) -> torch.Tensor:
        with plain_layers(), torch.autocast(DEVICE, torch.bfloat16, enabled=mixed):
            return those_used(module(x, tokens or None, counts), counts)

    def compare(expected: torch.Tensor, peer: torch.Tensor, found: torch.Tensor) -> None:
        assert relative(found, expected) < (1e-5 if not mixed else 0.01 + 2 * relative(peer, expected))

    ways = ((plain, lambda: one_by_one(plain, False)), (rough, lambda: one_by_one(rough, mixed)), (quick, at_once))
    results = []
    for module, forward in ways:
        forward()
        out = forward()  # the second time with running statistics that are not those of the beginning
        out.backward(weight.to(out.dtype))
        results.append([out, *gradients(module), *module.buffers()])
    assert len({len(found) for found in results}) == 1
    for each in zip(*results, strict=True):
        compare(*each)
    for module, _ in ways:
        module.eval()
    with torch.no_grad():
        compare(*(forward() for _, forward in ways))


# The interpreter takes a fifth of a second for a convolution: each kind of encoder once, and each end of a chain twice.
@pytest.mark.parametrize(
    ("name", "tokens"), [("cnn", 0), ("cnn", 5), ("mscnn", 5), ("cvcnn", 5), ("resnet", 0), ("tcn", 5)]
)
def test_fused_chain_equals_plain_pytorch(name: str, tokens: int) -> None:
    torch.manual_seed(10)
    encoder = build_encoder(name, 1, RUNS).to(DEVICE)
    compare_chain(encoder, torch.randn(RUNS, 2, 45, 2, device=DEVICE), tokens)


@pytest.mark.parametrize(("name", "streams", "written"), [("cnn", 2, False), ("cnn", 4, True), ("resnet", 2, True)])
def test_the_first_convolution_is_written_where_it_reads_many_channels(
    name: str, streams: int, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, own = [], chains.convolve
    monkeypatch.setattr(chains, "convolve", lambda *given: found.append(given) or own(*given))
    torch.manual_seed(16)
    encoder = build_encoder(name, streams, RUNS).to(DEVICE)
    compare_chain(encoder, torch.randn(RUNS, 2, 45, 2 * streams, device=DEVICE), 5)
    assert bool(found) == written


def test_fused_chain_of_whole_tiles_several_to_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "MULTIPROCESSORS", 1)
    torch.manual_seed(12)
    encoder = build_encoder("tcn", 1, RUNS).to(DEVICE)
    compare_chain(encoder, torch.randn(RUNS, 8, 64, 2, device=DEVICE), 4)


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that nobody has written is NaN, so that whoever reads it shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3, device=DEVICE).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("name", ["mscnn", "tcn"])
def test_fused_chain_of_frames_that_stand_for_several(name: str) -> None:
    torch.manual_seed(14)
    encoder = build_encoder(name, 1, RUNS).to(DEVICE)
    compare_chain(encoder, torch.randn(RUNS, 4, 45, 2, device=DEVICE), 5, counts=some_counts(RUNS, 4))


def test_fused_chain_of_whole_tiles_that_stand_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "MULTIPROCESSORS", 1)
    torch.manual_seed(15)
    encoder = build_encoder("resnet", 1, RUNS).to(DEVICE)
    counts = some_counts(RUNS, 16)
    counts = counts._replace(used=(counts.used + 7) // 8 * 8, grain=8)
    compare_chain(encoder, torch.randn(RUNS, 16, 64, 2, device=DEVICE), 0, counts=counts)


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


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("tokens", [0, 3])
def test_fused_gru_equals_pytorch_gru(tokens: int, counted: bool) -> None:
    torch.manual_seed(3)
    frames = 19 if counted else 5
    counts = some_counts(RUNS, frames) if counted else None
    if counts is not None:
        counts = counts._replace(used=counts.used - 4)  # of two blocks of frames the second is not used at all
    plain = GRU(32, 16, RUNS).to(DEVICE)
    quick = copy.deepcopy(plain)
    results = []
    for module in (plain, quick):
        torch.manual_seed(4)
        x = those_used(torch.randn(RUNS, frames, 9, 32, device=DEVICE), counts).requires_grad_()
        weight = those_used(torch.randn(RUNS, frames, tokens or 9, 32, device=DEVICE), counts)
        if module is plain:
            with plain_layers():
                out = those_used(module(x, tokens or None), counts)
        else:
            parameters = (module.weight_input, module.weight_hidden, module.bias_input, module.bias_hidden)
            out = those_used(fused.gru(x, *parameters, tokens, counts), counts)
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
