"""Models into a stack and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

from pisa_capc.stacked.layers import PerRun

M = TypeVar("M", bound=nn.Module)


def stack(models: Sequence[nn.Module], into: M) -> M:
    """Copy R models of one run each into `into`, a model of the same make with R runs."""
    for r, model in enumerate(models):
        copy_run(model, 0, into, r)
    return into


def unstack(model: nn.Module, run: int, into: M) -> M:
    """Copy run `run` of a stacked model into `into`, a model of the same make with one run."""
    copy_run(model, run, into, 0)
    return into


@torch.no_grad()
def copy_run(source: nn.Module, source_run: int, target: nn.Module, target_run: int) -> None:
    """Copy one run of a model into one run of another of the same make: parameters and running statistics."""
    ordinary = [name for name, module in target.named_modules() if isinstance(module, PerRun)]
    for name in ordinary:
        theirs, ours = (model.get_submodule(f"{name}.copies") for model in (source, target))
        ours[target_run].load_state_dict(theirs[source_run].state_dict())  # type: ignore[index]
    values = source.state_dict()
    for name, value in target.state_dict().items():
        if not any(name.startswith(f"{of}.copies.") for of in ordinary):
            value[target_run] = values[name][source_run]
