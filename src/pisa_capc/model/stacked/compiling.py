"""Parts of a model that torch.compile fuses for training on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, ClassVar

from torch import nn

from pisa_capc.model.stacked.compilers import nothing_compiled

# One way to compute a kernel, by rule: what is timed on the spot takes longer to compile than it saves here, and a
# reduction whose shape depends on the timing gives other bits from start to start.
BY_RULE = {"deterministic": True, "triton.autotune_pointwise": False}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile for the shapes at hand, never for sizes as symbols: a training has one shape of batch."""
    import torch._inductor

    known = torch._inductor.list_options()  # earlier versions do not have all
    return torch.compile(function, dynamic=False, options={k: v for k, v in BY_RULE.items() if k in known})


class Fusable(nn.Module):
    """A module that names methods which torch.compile fuses for training on a GPU."""

    fusable: ClassVar[tuple[str, ...]] = ()

    def fuse(self) -> None:
        self._fused_parts = {name: compiled(getattr(self, name)) for name in self.fusable}

    def part(self, name: str) -> Callable[..., Any]:
        """The method `name`, compiled if this module was fused and trains."""
        parts: dict[str, Any] = getattr(self, "_fused_parts", {})
        method: Callable[..., Any] = parts[name] if self.training and name in parts else getattr(self, name)
        return method


@functools.cache
def load_compiler() -> Thread:
    """Load PyTorch's compiler in a thread: seconds in which other things can be done.

    Its processes are started too if nothing was compiled yet; else it starts them when it needs them.
    """
    thread = Thread(target=_load, name="compiler", daemon=True)
    thread.start()
    return thread


def _load() -> None:
    if nothing_compiled():
        with suppress(ImportError):  # how its processes are started is its own affair, and may move
            from torch._inductor.async_compile import maybe_warm_pool

            maybe_warm_pool()
    import torch._inductor.compile_fx  # noqa: F401  (and all that it loads)
