"""Where a model computes, and in which precision it trains."""

from __future__ import annotations

import torch

from pisa_capc.core.errors import ConfigError

BATCH = 512  # frames of a run that are computed at a time: on a CPU their activations are near enough to its cache
GPU_SAMPLES = 9 * BATCH * 320  # of an antenna, all runs together: with fewer a GPU waits for launches


def frames_at_a_time(device: torch.device, samples: int, runs: int = 1) -> int:
    """Frames of each run in one call of a frozen network; on a GPU fewer, the longer they are.

    >>> frames_at_a_time(torch.device("cuda"), 320), frames_at_a_time(torch.device("cuda"), 320, runs=9)
    (4608, 512)
    """
    return BATCH if device.type != "cuda" else max(BATCH, GPU_SAMPLES // (runs * samples))


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
    """The named precision; 'auto' is bfloat16 on a GPU and float32 on a CPU: only some have bfloat16."""
    if precision not in ("auto", "float32", "bfloat16"):
        raise ConfigError(f"precision: expected auto, float32 or bfloat16, found {precision!r}.")
    if precision == "auto":
        return "float32" if device.type == "cpu" else "bfloat16"
    if precision == "bfloat16" and device.type == "cpu" and not has_bfloat16():
        raise ConfigError(
            "precision bfloat16: needs a GPU, or a processor with instructions for it (AVX-512 BF16 or AMX), which "
            "this one lacks. Use float32 or auto."
        )
    return precision


def has_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16; where others only imitate it, that is slower than float32."""
    return bool(torch.cpu._is_avx512_bf16_supported()) and torch.backends.mkldnn.is_available()
