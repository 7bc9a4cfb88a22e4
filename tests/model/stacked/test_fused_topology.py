"""The fused propagation over the array against the equations: on a GPU where there is one, else in the interpreter."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("triton")

from pisa_capc.model.networks.topology import Propagated, TopologyBlock
from pisa_capc.model.stacked import bind_noise, fused
from pisa_capc.model.stacked.fused import launching
from pisa_capc.model.stacked.layers import plain_layers
from tests.model.stacked.test_fused import DEVICE, RUNS, relative

FRAMES, WIDTH, HEADS = 5, 32, 4


def prepared(drop: float) -> TopologyBlock:
    torch.manual_seed(1)
    block = TopologyBlock(WIDTH, HEADS, 0.5, drop, RUNS)
    block.norm.weight.data.uniform_(0.5, 1.5)
    block.norm.bias.data.normal_()
    bind_noise(block, torch.tensor([12345, -999], dtype=torch.int32, device=DEVICE))
    return block.to(DEVICE)


def inputs(antennas: int, tokens: int, all_there: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    place = torch.rand(antennas, 2)
    there = torch.rand(RUNS, FRAMES, antennas) < (2 if all_there else 0.6)
    there[..., 0] = True
    given = {
        "x": torch.randn(RUNS, FRAMES, antennas * tokens, WIDTH),
        "tau_t": 0.5 + 3 * torch.rand(RUNS, FRAMES),
        "beta": 2 * torch.rand(RUNS, FRAMES),
        "available": there.repeat_interleave(tokens, dim=-1),
        "distances": torch.cdist(place, place),
    }
    return {name: value.to(DEVICE) for name, value in given.items()}


def quickly(block: TopologyBlock, given: dict[str, torch.Tensor]) -> Propagated:
    layers = block.query, block.key, block.value, block.out
    return Propagated(
        *fused.topology(
            **given, tau_s=0.7, norm=block.norm, layers=layers, heads=HEADS, scale=block.scale, dropout=block.dropout
        )
    )


def plainly(block: TopologyBlock, given: dict[str, torch.Tensor]) -> Propagated:
    with plain_layers():
        return block.propagate(**given, tau_s=0.7)


def compare(drop: float, antennas: int, tokens: int, all_there: bool = False, mixed: bool = False) -> None:
    """Tokens, loss and every gradient, then tokens and loss without gradients and dropout.

    mixed: the kernels have x, and compute, in bfloat16; the equations do not.
    """
    most = 0.1 if mixed else 1e-5
    block, results = prepared(drop), []
    blocks = block, copy.deepcopy(block)
    weight = torch.randn(RUNS, FRAMES, antennas * tokens, WIDTH, device=DEVICE)
    loss_weight = torch.randn(RUNS, FRAMES, device=DEVICE)
    for module, way in zip(blocks, (plainly, quickly), strict=True):
        given = inputs(antennas, tokens, all_there)
        learnt = [given[name].requires_grad_() for name in ("x", "tau_t", "beta")]
        if mixed and way is quickly:
            given["x"] = given["x"].bfloat16()
        found = way(module, given)
        assert found.graph_loss is not None
        ((found.nodes * weight).sum() + 100 * (found.graph_loss * loss_weight).sum()).backward()
        # what adds the same to all keys changes no attention: of the gradient of their bias, rounding is all there is
        biases = torch.cat([layer.bias.grad for layer in (module.query, module.key, module.value)])
        others = [p.grad for name, p in module.named_parameters() if name not in ("query.bias", "key.bias")]
        results.append([found.nodes, found.graph_loss, *(part.grad for part in learnt), biases, *others])
    assert len(results[0]) == 5 + 1 + 8
    for expected, got in zip(*results, strict=True):
        assert relative(got, expected) < most
    given = inputs(antennas, tokens, all_there)
    with torch.no_grad():
        expected, got = (way(module.eval(), given) for module, way in zip(blocks, (plainly, quickly), strict=True))
    assert relative(got.nodes, expected.nodes) < 1e-5
    assert relative(got.graph_loss, expected.graph_loss) < 1e-5


@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_fused_topology_equals_the_equations_with_the_same_masks(drop: float) -> None:
    compare(drop, antennas=4, tokens=8)


def test_fused_topology_with_every_antenna() -> None:
    compare(0.3, antennas=4, tokens=4, all_there=True)


@pytest.mark.parametrize(("antennas", "tokens"), [(3, 7), (1, 5), (5, 8)])
def test_fused_topology_of_other_arrays(antennas: int, tokens: int) -> None:
    compare(0.3, antennas, tokens)


def test_fused_topology_of_several_frames_to_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "MULTIPROCESSORS", 1)
    compare(0.3, antennas=4, tokens=7)


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter has no products in bfloat16")
def test_fused_topology_in_bfloat16_is_near() -> None:
    compare(0.3, antennas=4, tokens=8, mixed=True)
