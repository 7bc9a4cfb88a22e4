"""Encoders: what holds for every one, the sizes of the paper's seven, and what each of these is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.encoders import WIDTH, build_encoder, encoder_names, encoder_title
from pisa_capc.model.encoders import base as encoder_registry
from pisa_capc.model.encoders.convolutional import CVCNN, MSCNN
from pisa_capc.model.encoders.transformer import Transformer
from pisa_capc.model.networks import PISA
from pisa_capc.model.stacked import adaptive_tokens

# Parameters of one branch, and of the ten-class PISA model with two branches.
SIZES = {
    "cnn": (6_624, 39_551),
    "mscnn": (18_768, 63_839),
    "resnet": (13_216, 52_735),
    "tcn": (19_296, 64_895),
    "cvcnn": (4_608, 35_519),
    "cldnn": (10_560, 47_423),
    "transformer": (30_112, 86_527),
}


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_the_seven_encoders_of_the_paper_come_first_and_in_its_order() -> None:
    assert encoder_names()[:7] == list(SIZES)
    assert [encoder_title(name) for name in SIZES][:3] == ["CNN", "MSCNN", "ResNet"]
    assert encoder_title("somebody's") == "somebody's"


@pytest.mark.parametrize("name", SIZES)
def test_parameter_counts_are_those_of_the_paper(name: str) -> None:
    assert (size(build_encoder(name)), size(PISA(10, name))) == SIZES[name]


def test_parts_of_the_model_have_their_sizes() -> None:
    model = PISA(10)
    parts = {
        "topology": 4_288, "refinement": 97, "project_identity": 6_272, "project_context": 6_272, "gate": 8_321,
        "modulator": 403, "classifier": 650,
    }  # fmt: skip
    assert {name: size(getattr(model, name)) for name in parts} == parts
    assert sum(parts.values()) == 26_303


@pytest.mark.parametrize("name", encoder_names())
@pytest.mark.parametrize("streams", [1, 3])
def test_encoders_map_frames_to_features_of_one_width(name: str, streams: int) -> None:
    encoder = build_encoder(name, streams, runs=2).eval()
    x = torch.randn(2, 3, 64, 2 * streams)
    features = encoder(x)
    assert features.shape == (2, 3, features.shape[2], WIDTH)
    torch.testing.assert_close(encoder(x, tokens=4), adaptive_tokens(features, 4))


@pytest.mark.parametrize("name", SIZES)
def test_the_seven_encoders_take_frames_of_any_length(name: str) -> None:
    encoder = build_encoder(name).eval()
    for samples in (5, 64):
        length = max(samples // 8, 1) if name == "transformer" else samples
        assert encoder(torch.randn(1, 3, samples, 2)).shape == (1, 3, length, WIDTH)


@pytest.mark.parametrize("name", encoder_names())
def test_parameters_of_a_new_encoder_come_from_the_generator_and_from_nothing_else(name: str) -> None:
    """Also the first time, when it is looked at whether they have their axis of runs."""
    encoder_registry._checked.clear()
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(build_encoder(name).state_dict())
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def settle(encoder: nn.Module) -> nn.Module:
    """Running statistics of random inputs, so that eval mode has live channels."""
    encoder.train()
    with torch.no_grad():
        for _ in range(30):
            encoder(torch.randn(1, 8, 64, 2))
    return encoder.eval()


def test_cvcnn_is_a_complex_network() -> None:
    encoder = CVCNN()
    settle(encoder)
    x = torch.randn(1, 2, 20, 2)
    expected = torch.complex(x[0, :, :, 0], x[0, :, :, 1])[:, None]  # (N, 1, T)
    for block in (*encoder.blocks, encoder.last):
        kernel = torch.complex(block.weight_real[0], block.weight_imag[0])
        u, v = block.bias_real[0], block.bias_imag[0]
        y = F.conv1d(expected, kernel, torch.complex(u - v, u + v), padding=kernel.shape[2] // 2)
        norm = block.norm
        parts = F.batch_norm(
            torch.cat([y.real, y.imag], 1), norm.running_mean[0], norm.running_var[0], norm.weight[0], norm.bias[0]
        ).relu()
        expected = torch.complex(*parts.chunk(2, dim=1))
    found = encoder(x)[0].transpose(1, 2)
    torch.testing.assert_close(found, torch.cat([expected.real, expected.imag], 1), rtol=1e-4, atol=1e-5)


def influenced(encoder: nn.Module, samples: int, position: int) -> list[int]:
    """Which output samples change with the input sample at `position`."""
    x = torch.randn(1, 1, samples, 2, requires_grad=True)
    y = encoder(x)[0, 0].abs().sum(1)
    return [t for t in range(samples) if torch.autograd.grad(y[t], x, retain_graph=True)[0][0, 0, position].any()]


@pytest.mark.parametrize(("name", "reach"), [("cnn", 3), ("resnet", 7), ("tcn", 15), ("mscnn", 21), ("cvcnn", 6)])
def test_convolutional_encoders_look_both_ways_as_far_as_their_kernels(name: str, reach: int) -> None:
    torch.manual_seed(1)
    reached = influenced(settle(build_encoder(name)), 61, 30)
    assert min(reached) == 30 - reach  # earlier outputs see a later sample: not causal
    assert max(reached) == 30 + reach


def test_cldnn_sees_the_whole_frame() -> None:
    torch.manual_seed(2)
    assert influenced(settle(build_encoder("cldnn")), 40, 20) == list(range(40))


def test_mscnn_joins_three_kernel_sizes() -> None:
    block = MSCNN().blocks[1]
    assert [tuple(w.shape) for w in block.weights] == [(1, 10, 32, 3), (1, 10, 32, 7), (1, 12, 32, 15)]
    block.eval()
    x = torch.randn(1, 2, 30, 32)
    branches = [
        F.conv1d(x[0].transpose(1, 2), w[0], b[0], padding=w.shape[3] // 2)
        for w, b in zip(block.weights, block.biases, strict=True)
    ]
    expected = (torch.cat(branches, 1) / (1 + 1e-5) ** 0.5).relu()
    torch.testing.assert_close(block(x)[0].transpose(1, 2), expected, rtol=1e-4, atol=1e-5)


def test_transformer_patches_are_a_convolution_of_stride_eight() -> None:
    encoder = Transformer()
    x = torch.randn(1, 2, 40, 2)
    kernel = encoder.patch.weight[0].view(WIDTH, 8, 2).transpose(1, 2)
    expected = F.conv1d(x[0].transpose(1, 2), kernel, encoder.patch.bias[0], stride=8).transpose(1, 2)
    encoder.layers, encoder.norm = nn.Sequential(), nn.Identity()
    with torch.no_grad():
        encoder.position.zero_()
    torch.testing.assert_close(encoder(x)[0], expected, rtol=1e-4, atol=1e-5)


def test_transformer_stretches_its_positions_over_long_frames() -> None:
    encoder = Transformer()
    encoder.layers, encoder.norm = nn.Sequential(), nn.Identity()
    with torch.no_grad():
        encoder.patch.weight.zero_()
        encoder.patch.bias.zero_()
    table = encoder.position[0]
    for samples, expected in ((320, table[:40]), (1024, table)):
        torch.testing.assert_close(encoder(torch.zeros(1, 1, samples, 2))[0, 0], expected)
    stretched = encoder(torch.zeros(1, 1, 8 * 255, 2))[0, 0]  # 255 patches: every second one is a stored position
    torch.testing.assert_close(stretched[::2], table)
    torch.testing.assert_close(stretched[1::2], (table[1:] + table[:-1]) / 2)


def test_unknown_encoder_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown encoder 'transfomer'\. Did you mean 'transformer'"):
        PISA(10, "transfomer")
