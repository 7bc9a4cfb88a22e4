"""Where a model computes, and in which precision it trains."""

from __future__ import annotations

import torch

from pisa_capc.errors import ConfigError


def choose_device(device: str = "auto") -> torch.device:
    """The named device; 'auto' is the GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device {device!r}: expected auto, cpu or cuda.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {device!r}: no CUDA device is available here. Use cpu or auto.")
    if chosen.index is not None and chosen.type == "cuda":
        torch.cuda.set_device(chosen)  # kernels and captures go to the device that is current
    return chosen


def choose_precision(precision: str, device: torch.device) -> str:
    """The named precision; 'auto' is bfloat16 on a GPU. Few CPUs compute in bfloat16, and some only crash."""
    if precision not in ("auto", "float32", "bfloat16"):
        raise ConfigError(f"precision: expected auto, float32 or bfloat16, found {precision!r}.")
    if precision == "bfloat16" and device.type == "cpu":
        raise ConfigError("precision bfloat16: needs a GPU; this training is on a CPU. Use float32 or auto.")
    if precision == "auto":
        return "float32" if device.type == "cpu" else "bfloat16"
    return precision
