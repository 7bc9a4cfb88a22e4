"""What is trained, and how."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pisa_capc.config import check_numbers
from pisa_capc.errors import ConfigError
from pisa_capc.frames import MODEL_SAMPLES
from pisa_capc.protocol import Split


@dataclass(frozen=True)
class TrainingConfig:
    """The paper's optimisation: AdamW for 30 epochs, the checkpoint with the best source-validation Macro-F1.

    samples: length of the segment the model sees; frames that are shorter than the paper's are used whole.
    """

    epochs: int = 30
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    samples: int = MODEL_SAMPLES

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"training.{name}: expected at least 1, found {getattr(self, name)}.")
        if self.learning_rate <= 0 or self.weight_decay < 0:
            raise ConfigError(
                "training: expected learning_rate > 0 and weight_decay ≥ 0, "
                f"found {self.learning_rate} and {self.weight_decay}."
            )
        check_numbers(self, "training.")


@dataclass(frozen=True)
class Run:
    """One training: a split, the seed that made it, and the seed of everything that training draws."""

    split: Split
    split_seed: int
    seed: int

    @property
    def name(self) -> str:
        return run_name(self.split_seed, self.seed)


def run_name(split_seed: int, seed: int) -> str:
    """What a run is called, in messages and as a folder."""
    return f"split{split_seed}-seed{seed}"


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
