"""The runs of a protocol, and which of them are trained together."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from pisa_capc.core import plugins, revisions
from pisa_capc.core.config import from_mapping, merged
from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import DIRECT, DROPPED, SplitRule
from pisa_capc.evidence.benchmark.protocols import Protocol, is_guarded
from pisa_capc.model.runs import RunSpec, TrainingConfig

KEYS = ("target", "method", "variant", "encoder", "split_seed", "seed")  # what `--only` can choose by


@dataclass(frozen=True, kw_only=True)
class PlannedRun(RunSpec):
    """All that determines a run of a protocol, apart from the data and the machine.

    calibration: method and settings by stage. deployments: `Deployment.to_json`, in their order, which decides what is
    drawn. strangers: how the set of unknown devices is made, where a deployment has some. calibration_plugins: those
    that its calibrations are from.
    """

    calibration: dict[str, dict[str, Any]]
    deployments: tuple[dict[str, Any], ...] = ()
    strangers: dict[str, Any] | None = None
    calibration_plugins: tuple[dict[str, str], ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that a record of this run has scores of: on the captures as received, and in each deployment."""
        found = [DIRECT, *self.calibration]
        for deployment in self.deployments[1:]:
            own = (DIRECT, *(deployment.get("calibration") or self.calibration))
            there = from_mapping(Deployment, deployment)
            found += [there.stage(stage) for stage in own]
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """For a record, whose name is the hash of this; fields added later are left out where they are empty."""
        return dict(self._described)

    @cached_property
    def _described(self) -> dict[str, Any]:
        described = {part.name: getattr(self, part.name) for part in fields(self)}
        described |= {"split": self.split.to_json(), "training": asdict(self.training)}
        described["calibration"] = {stage: as_first_named(own) for stage, own in self.calibration.items()}
        later = ("deployments", "strangers", "plugins", "calibration_plugins")
        return {name: plain(value) for name, value in described.items() if value or name not in later}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PlannedRun:
        """The run of a record."""
        lists = ("source", "target", "deployments", "plugins", "calibration_plugins")
        typed = {"split": SplitRule(**values["split"]), "training": TrainingConfig(**values["training"])}
        return cls(**{**values, **typed, **{name: tuple(values[name]) for name in lists if name in values}})

    @cached_property
    def today(self) -> PlannedRun:
        """The run without the stages of calibrations that are gone, which is how it is made now."""
        gone = {stage for stage, own in self.calibration.items() if own.get("method") in DROPPED}
        if not gone:
            return self
        deployments = []
        for one in self.deployments:
            named = [stage for stage in one.get("calibration", ()) if stage not in gone]
            if named or "calibration" not in one:
                deployments.append({**one, "calibration": tuple(named)} if named else one)
        return replace(
            self,
            calibration={stage: own for stage, own in self.calibration.items() if stage not in gone},
            deployments=tuple(deployments),
            code={part: version for part, version in self.code.items() if part != "guard"},
        )

    def training_json(self) -> dict[str, Any]:
        """What the training depends on: everything but calibration and deployments."""
        left_out = ("calibration", "deployments", "strangers", "calibration_plugins")
        described = {name: value for name, value in self._described.items() if name not in left_out}
        parts = ("calibration", "guard", "deployments")
        return described | {"code": {part: version for part, version in self.code.items() if part not in parts}}


def as_first_named(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A calibration's settings as records have them.

    The first records had U-CAPC only, without a name, and wrote the safe one, which is gone, as `guard: true`. Both are
    still written that way, so that all records keep their names.
    """
    rest = {key: value for key, value in settings.items() if key != "method"}
    forms = {"ucapc": rest, "safe": {"guard": True, **rest}}
    return forms.get(settings.get("method", ""), dict(settings))


@dataclass(frozen=True)
class Conditions:
    """Where the numbers of a run come from: fingerprint of the dataset, kind of device, precision of training."""

    dataset: str
    device: str
    precision: str


def plan(protocol: Protocol) -> list[PlannedRun]:
    """Every run, in the order of the protocol."""
    used, calibrating = _plugins(protocol), _calibration_plugins(protocol)
    return [
        PlannedRun(
            source=direction.source,
            target=direction.target,
            split=protocol.split,
            method=row.method,
            variant=variant,
            settings=merged(row.settings, changes),
            encoder=encoder,
            training=protocol.training,
            calibration={stage: protocol.calibration[stage] for stage in row.calibration},
            split_seed=split_seed,
            seed=seed,
            code=revisions.of_run(
                row.method,
                encoder,
                bool(row.calibration),
                any(is_guarded(protocol.calibration[c]) for c in row.calibration),
                bool(protocol.deployments),
            ),
            deployments=tuple(deployment.to_json() for deployment in protocol.deployments),
            strangers=None if protocol.strangers is None else asdict(protocol.strangers),
            plugins=tuple(used.get((row.method, encoder), ())),
            calibration_plugins=tuple(calibrating.get(row.calibration, ())),
        )
        for direction in protocol.directions
        for row in protocol.methods
        for variant, changes in row.variants.items()
        for encoder in protocol.encoders
        for split_seed in protocol.split_seeds
        for seed in protocol.seeds
    ]


def _plugins(protocol: Protocol) -> dict[tuple[str, str], list[dict[str, str]]]:
    """The plugins that a method and an encoder are from; without any plugin this needs no torch."""
    if not plugins.is_any():
        return {}
    from pisa_capc.model.methods import plugins_used

    pairs = itertools.product((row.method for row in protocol.methods), protocol.encoders)
    return {pair: plugins_used(*pair) for pair in pairs}


def _calibration_plugins(protocol: Protocol) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """The plugins that the calibrations of a row are from."""
    if not plugins.is_any():
        return {}
    from pisa_capc.decide.calibration.base import CALIBRATIONS

    named = {stage: str(own.get("method")) for stage, own in protocol.calibration.items()}
    stages = {row.calibration for row in protocol.methods}
    return {own: plugins.described(*(CALIBRATIONS.origin(named[stage]) for stage in own)) for own in stages}


def select(runs: Sequence[PlannedRun], only: Sequence[str]) -> list[PlannedRun]:
    """The runs that fit every KEY=VALUE[,VALUE…] of `only`."""
    chosen = list(runs)
    for text in only:
        key, equals, values = text.partition("=")
        if not equals:
            raise ConfigError(f"--only {text!r}: expected KEY=VALUE[,VALUE…], as encoder=cnn,tcn.")
        if key not in KEYS:
            raise ConfigError(f"--only {text!r}: " + unknown_name("key", key, KEYS))
        known = {_value(run, key) for run in runs}
        wanted = [value.strip() for value in values.split(",")]
        for value in wanted:
            if value not in known:
                raise ConfigError(f"--only {text!r}: " + unknown_name(key, value, known))
        chosen = [run for run in chosen if _value(run, key) in wanted]
    if not chosen:
        raise ConfigError(f"--only {' '.join(only)}: no run fits all of them.")
    return chosen


def _value(run: PlannedRun, key: str) -> str:
    return "+".join(run.target) if key == "target" else str(getattr(run, key))


def jobs_of(runs: Iterable[PlannedRun], stacked: bool) -> list[list[PlannedRun]]:
    """Groups of runs that are trained together: all of a cell if the trainer stacks them, else each alone."""
    if not stacked:
        return [[run] for run in runs]
    cells: dict[tuple[str, ...], list[PlannedRun]] = {}
    for run in runs:
        cells.setdefault(run.cell, []).append(run)
    return list(cells.values())


def plain(value: Any) -> Any:
    """The value as JSON reads it back, whole numbers without a point: 1 and 1.0 are the same setting."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return value


def digest(value: Any) -> str:
    """16 hexadecimal digits that name a value."""
    return digest_of_plain(plain(value))


def digest_of_plain(value: Any) -> str:
    """The same of one that is as `plain` makes it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
