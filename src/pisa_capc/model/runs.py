"""What a run is: one description, which protocols plan, trainings and `model.json` keep, records name and reports show.

It works without torch, so that looking at finished work is quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any

from pisa_capc.core import revisions
from pisa_capc.core.config import check_numbers, from_mapping
from pisa_capc.core.errors import ConfigError
from pisa_capc.data.frames import MODEL_SAMPLES
from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.data.protocol import Split, SplitRecipe, SplitRule
from pisa_capc.data.store.dataset import TIME, Subcarriers

SCHEMA = 1  # of `model.json`
NO_ENCODER = "none"  # what stands in the place of an encoder's name, of methods that have none
# The keys of `model.json` in their order: what must be there, what is only there where it says something, what a
# finished training adds, and what is changed afterwards.
ALWAYS = (
    *("method", "variant", "settings", "encoder", "devices", "geometry", "samples", "sample_rate_hz", "carrier_hz"),
    *("source", "target", "split", "split_seed", "seed", "training", "precision", "dataset", "version", "code"),
)
SOMETIMES = ("threads", "domain", "subcarriers", "cfo", "plugins")
FINISHED = ("metrics", "history", "seconds", "machine")
CHANGED = ("changes",)
REQUIRED = {*ALWAYS, "metrics"} - {"carrier_hz", "split", "precision", "version", "code"}  # earlier versions lack these


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


def training_config(given: TrainingConfig | Mapping[str, Any] | None, settings: Mapping[str, Any]) -> TrainingConfig:
    """The optimisation that was asked for: a configuration, or a mapping of its settings, with `settings` over it."""
    if given is not None and not isinstance(given, TrainingConfig | Mapping):
        raise ConfigError(
            f"training: expected a TrainingConfig or a mapping, as {{'epochs': 5}}, found {type(given).__name__}."
        )
    base = asdict(given) if isinstance(given, TrainingConfig) else dict(given or {})
    return from_mapping(TrainingConfig, {**base, **settings}, "training")


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


def run_name(split_seed: int, seed: int) -> str:
    """What a run is called, in messages and as a folder."""
    return f"split{split_seed}-seed{seed}"


def direction_name(source: Sequence[str], target: Sequence[str]) -> str:
    return f"{','.join(source)} → {','.join(target)}"


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that determines a training besides its frames and the machine.

    source, target: names of environments. settings: all of the method's. code: versions of its parts. plugins: where
    method and encoder are from, with the digest of their code.
    """

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    split: SplitRule = field(default_factory=SplitRule)
    method: str
    variant: str = "full"
    settings: dict[str, Any] = field(default_factory=dict)
    encoder: str
    training: TrainingConfig = TrainingConfig()
    split_seed: int = 0
    seed: int = 0
    code: dict[str, int] = field(default_factory=lambda: dict(revisions.FIRST))
    plugins: tuple[dict[str, str], ...] = ()

    @property
    def name(self) -> str:
        return run_name(self.split_seed, self.seed)

    @property
    def direction(self) -> str:
        return direction_name(self.source, self.target)

    @property
    def cell(self) -> tuple[str, str, str, str]:
        """Direction, method, variant and encoder: what runs share that differ in their seeds."""
        return self.direction, self.method, self.variant, self.encoder

    @property
    def recipe(self) -> SplitRecipe:
        """How its frames are split."""
        return SplitRecipe(self.source, self.target, self.split_seed, *vars(self.split).values())


@dataclass(frozen=True)
class Metrics:
    """Macro-F1 of the source validation at the epoch that was chosen, and which that is."""

    validation_f1: float = 0.0
    best_epoch: int = 0  # counted from 1; 0 before the training


@dataclass(frozen=True)
class Epoch:
    """Mean of each term of the loss, and Macro-F1 of the source validation afterwards."""

    loss: dict[str, float]
    validation_f1: float


@dataclass(frozen=True, kw_only=True)
class ModelRun(RunSpec):
    """The run of a model, planned or finished: the content of `model.json`.

    samples: of a frame, that the model reads. domain, subcarriers, cfo: what its frames are when they have passed the
    front end, and whether they have frequency offsets. dataset: fingerprint. threads: of a CPU, None on a GPU. seconds:
    of the training, this run's share. changes: devices enrolled and removed since, see `enrolment`.
    """

    devices: tuple[str, ...]
    geometry: ArrayGeometry
    samples: int
    sample_rate_hz: float
    carrier_hz: float = 0.0
    precision: str = "float32"
    dataset: str = ""
    version: str = revisions.PACKAGE
    threads: int | None = None
    domain: str = TIME
    subcarriers: Subcarriers | None = None
    cfo: bool = True
    metrics: Metrics = Metrics()
    history: tuple[Epoch, ...] = ()
    seconds: float = 0.0
    machine: dict[str, Any] = field(default_factory=dict)
    changes: tuple[dict[str, Any], ...] = ()

    @property
    def is_solved(self) -> bool:
        """Whether its method has neither encoder nor epochs; the run's values of them then mean nothing."""
        return self.encoder == NO_ENCODER

    @property
    def title(self) -> str:
        """Method and encoder, for people."""
        return self.method if self.is_solved else f"{self.method} with {self.encoder}"

    @property
    def addresses(self) -> dict[str, str]:
        """The device of each address that was named when it was enrolled."""
        parts = [(change.get("enrolled"), part) for change in self.changes for part in change.get("from", ())]
        found = {str(part["address"]).lower(): str(name) for name, part in parts if part.get("address")}
        return {address: name for address, name in found.items() if name in self.devices}

    @property
    def planned(self) -> ModelRun:
        """The run as it was before its training."""
        return replace(self, metrics=Metrics(), history=(), seconds=0.0, machine={}, changes=())

    def to_json(self) -> dict[str, Any]:
        """The content of `model.json` in its order; fields added later are left out where they are empty."""
        unsaid = {
            "threads": None,
            "domain": TIME,
            "cfo": True,
            "plugins": (),
            "subcarriers": None,
            "changes": (),
        }
        names = (*ALWAYS, *SOMETIMES, *(FINISHED if self.metrics.best_epoch else ()), *CHANGED)
        values = {name: getattr(self, name) for name in names}
        return {"schema": SCHEMA} | {k: _plain(v) for k, v in values.items() if k not in unsaid or v != unsaid[k]}

    def shown(self) -> dict[str, Any]:
        """What reports list of it: all but the course of the training, and what a solved method does not use."""
        unused = {"encoder", "training", "precision"} if self.is_solved else set()
        return {k: v for k, v in self.to_json().items() if k not in {"schema", "metrics", "history", *unused}}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ModelRun:
        """The run that a `model.json` or a checkpoint describes; keys that are not known here are left out."""
        names = (*ALWAYS, *SOMETIMES, *FINISHED, *CHANGED)
        known = {name: values[name] for name in names if name in values}
        known["geometry"] = ArrayGeometry.from_json(values["geometry"])
        if "subcarriers" in known:
            known["subcarriers"] = Subcarriers.from_json(known["subcarriers"])
        return from_mapping(cls, known)


def _plain(value: Any) -> Any:
    """The value as JSON reads it back."""
    if isinstance(value, ArrayGeometry | SplitRule):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value
