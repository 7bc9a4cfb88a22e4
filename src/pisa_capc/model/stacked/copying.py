"""Models into a stack and out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError
from pisa_capc.model.stacked.ordinary import PerRun

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
    for name in _ordinary(target):
        theirs, ours = (model.get_submodule(name) for model in (source, target))
        ours[target_run].load_state_dict(theirs[source_run].state_dict())  # type: ignore[index]
    values = _stacked_tensors(source)
    for name, value in _stacked_tensors(target).items():
        value[target_run] = values[name][source_run]


@torch.no_grad()
def copy_runs(source: nn.Module, target: nn.Module, runs: Sequence[int]) -> None:
    """`copy_run` of several, each into its own place: on a GPU two launches a tensor, however many they are."""
    for name in _ordinary(target):
        theirs, ours = (model.get_submodule(name) for model in (source, target))
        for run in runs:
            ours[run].load_state_dict(theirs[run].state_dict())  # type: ignore[index]
    values, which = _stacked_tensors(source), torch.tensor(runs, device=next(target.parameters()).device)
    for name, value in _stacked_tensors(target).items():
        value.index_copy_(0, which, values[name].index_select(0, which))


def check_run_axis(build: Callable[[int], nn.Module], what: str) -> None:
    """Refuse a model with a parameter or persistent buffer that has no axis of runs in front.

    Runs are copied along it, so such a tensor would be mixed up with those of other runs, or cut to its first row.
    build: makes the model for a number of runs. It is made for one and for two: by shapes that are the same in both,
    the axis is missed even where it happens to have the right length. Nobody's random numbers change by that.
    """
    with torch.random.fork_rng(devices=[]):
        one, two = ({k: tuple(v.shape) for k, v in _stacked_tensors(build(runs)).items()} for runs in (1, 2))
    for name in dict.fromkeys([*one, *two]):
        own, both = one.get(name), two.get(name)
        if own is None or both is None:
            where = "one run and not with two" if both is None else "two runs and not with one"
            found = f"{name} {own or both} is there with {where}; expected it in both, with an axis of runs in front."
        elif own[:1] == (1,) and both == (2, *own[1:]):
            continue
        else:
            found = (
                f"{name} is {own} with one run and {both} with two; expected an axis of runs in front, "
                f"({', '.join(['runs', *map(str, own[1:] if own[:1] == (1,) else own)])})."
            )
        raise ConfigError(
            f"{what}: {found} Register a plain module with ordinary=True, or make the model of the layers in "
            "pisa_capc.model.stacked: PerRun holds a plain one. What is not trained and the same for all runs is a "
            "buffer with persistent=False."
        )


def _ordinary(model: nn.Module) -> list[str]:
    """Where the copies of ordinary modules are."""
    return [f"{name}.copies".lstrip(".") for name, module in model.named_modules() if isinstance(module, PerRun)]


def _stacked_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, apart from those of ordinary modules."""
    ordinary = tuple(f"{name}." for name in _ordinary(model))
    return {name: value for name, value in model.state_dict().items() if not name.startswith(ordinary)}
