"""What is trained, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pisa_capc.core.config import check_numbers, from_mapping
from pisa_capc.core.errors import ConfigError
from pisa_capc.data.frames import MODEL_SAMPLES
from pisa_capc.data.protocol import Split
from pisa_capc.model.inference.model import run_name


@dataclass(frozen=True)
class TrainingConfig:
    """The paper's optimisation: AdamW for 30 epochs, the checkpoint with the best source-validation Macro-F1."""

    epochs: int = 30  # passes over the training frames
    batch: int = 128  # frames of a step
    learning_rate: float = 1e-3  # of AdamW
    weight_decay: float = 1e-4  # of AdamW
    samples: int = MODEL_SAMPLES  # length of the segment the model sees; frames shorter than the paper's are used whole

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
    """One training: a split, and the seed of everything that training draws."""

    split: Split
    seed: int

    @property
    def split_seed(self) -> int:
        return self.split.recipe.seed

    @property
    def name(self) -> str:
        return run_name(self.split_seed, self.seed)


def training_config(given: TrainingConfig | Mapping[str, Any] | None, settings: Mapping[str, Any]) -> TrainingConfig:
    """The optimisation that was asked for: a configuration, or a mapping of its settings, with `settings` over it."""
    if given is not None and not isinstance(given, TrainingConfig | Mapping):
        raise ConfigError(
            f"training: expected a TrainingConfig or a mapping, as {{'epochs': 5}}, found {type(given).__name__}."
        )
    base = asdict(given) if isinstance(given, TrainingConfig) else dict(given or {})
    return from_mapping(TrainingConfig, {**base, **settings}, "training")
