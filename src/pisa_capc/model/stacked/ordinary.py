"""Ordinary modules in a stack: one copy a run, and random numbers that are the run's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.model.stacked.layers import Dropout
from pisa_capc.model.stacked.noise import site_key

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)  # all but the first drop whole channels


class PerRun(nn.Module):
    """Any ordinary module on (N, …) tensors as a stacked layer: one copy a run, computed one after the other.

    The way in for an encoder that uses layers which have no stacked form; it trains, but it does not get faster.

    In training a copy draws what it draws from its run's seed, the step and its place, once `bind_noise` has given the
    key: a run draws the same alone and in a stack, and a killed training goes on as if it had not been. For that
    `nn.Dropout` and its kin become `RunDropout`. Whatever else draws from PyTorch's generator (attention with dropout,
    `F.dropout`, noise) finds it seeded on a CPU; a captured step on a GPU cannot do that, so there such draws are
    PyTorch's own.
    """

    key: Tensor | None = None
    site: int = 0

    def __init__(self, build: Callable[[], nn.Module], runs: int = 1) -> None:
        super().__init__()
        self.copies = nn.ModuleList(with_run_dropout(build()) for _ in range(runs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(self.each(x))

    def each(self, x: Tensor) -> list[Any]:
        """What each run's copy gives for its part of x (R, …)."""
        return [self._of_run(run, copy, part) for run, (copy, part) in enumerate(zip(self.copies, x, strict=True))]

    def _of_run(self, run: int, copy: nn.Module, x: Tensor) -> Any:
        if self.key is None or not self.training or self.key.is_cuda:
            return copy(x)
        with _drawing_from(int(site_key(self.key[run : run + 1], self.site))):
            return copy(x)


@contextmanager
def _drawing_from(seed: int) -> Iterator[None]:
    """Seed PyTorch's generator for a while; others find it as they left it."""
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)


class RunDropout(Dropout):
    """Dropout in the copy of one run: (N, …) without an axis of runs. channels: drop those of (N, C, …) whole."""

    def __init__(self, probability: float, channels: bool = False) -> None:
        super().__init__(probability)
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        if self.probability == 1:
            return torch.zeros_like(x)
        if not self.channels:
            return super().forward(x[None])[0]
        factor = x.new_ones(*x.shape[:2], *[1] * (x.ndim - 2))
        return x * super().forward(factor[None])[0]


def with_run_dropout(module: nn.Module) -> nn.Module:
    """The module with every dropout layer of PyTorch replaced, itself if it is one; one that is shared stays shared."""
    replaced: dict[nn.Module, nn.Module] = {}

    def replace(layer: nn.Module) -> nn.Module:
        if layer not in replaced:
            replaced[layer] = layer
            if type(layer) in DROPOUTS:  # not a class derived from them, which may compute something else
                p: Any = layer.p
                replaced[layer] = RunDropout(p, channels=type(layer) is not nn.Dropout).train(layer.training)
            for name, child in layer._modules.items():
                if child is not None:
                    layer._modules[name] = replace(child)
        return replaced[layer]

    return replace(module)


def bind_noise(model: nn.Module, key: Tensor) -> None:
    """Make whatever drops or draws in `model` do so from `key` (R,), each at a place of its own.

    Copies of an ordinary module have the same places, each with the key of its run.
    """
    seen: set[nn.Module] = set()

    def bind(module: nn.Module, key: Tensor, site: int) -> int:
        """Number the places in `module` from `site` on; returns the next number."""
        if module in seen:
            return site
        seen.add(module)
        if isinstance(module, Dropout | PerRun):
            module.key, module.site = key, site
            site += 1
        if isinstance(module, PerRun):
            return max(bind(copy, key[run : run + 1], site) for run, copy in enumerate(module.copies))
        for child in module.children():
            site = bind(child, key, site)
        return site

    bind(model, key, 0)
