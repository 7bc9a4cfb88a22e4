"""What a protocol says: dataset, directions, methods, encoders, seeds and every setting, in one YAML file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pisa_capc.core.config import from_mapping, merged, read_yaml, refuse
from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import CAREFUL, DIRECT, DROPPED, PAPER, SAFE, SplitRule, check_unseen
from pisa_capc.model.runs import TrainingConfig, direction_name
from pisa_capc.signal.simulation.scene import check_scale, load_scene, scene_file

if TYPE_CHECKING:
    from pisa_capc.decide.calibration import Calibrator

PACKAGE = Path(__file__).resolve().parents[2]
# Here, beside the source, or inside the package where it is installed.
FOLDERS = (Path("protocols"), PACKAGE.parents[1] / "protocols", PACKAGE / "protocols")
PRECISIONS = ("auto", "float32", "bfloat16")  # of training


@dataclass(frozen=True)
class Simulated:
    """A set that `pisa simulate` makes. scene: a built-in one by its name, or a YAML file."""

    scene: str
    scale: float  # part of the frames of each capture, above 0 and up to 1
    seed: int  # names devices, places and noise

    def __post_init__(self) -> None:
        try:
            scene_file(self.scene)
        except ConfigError as error:
            raise ConfigError(f"dataset.simulate.scene: {error}") from error
        check_scale(self.scale)
        _check_seeds("dataset.simulate.seed", (self.seed,))


@dataclass(frozen=True)
class Strangers:
    """Radios beside those of a simulated set: how many, and what part of a capture's frames each sends."""

    devices: int  # how many more than the scene has
    scale: float  # part of the frames of each of their captures

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ConfigError(f"dataset.strangers.devices: expected at least 1, found {self.devices}.")
        check_scale(self.scale)


@dataclass(frozen=True)
class DataSource:
    """The dataset. Without `simulate` its folder must be given. strangers: for deployments with unknown devices."""

    name: str  # what records and tables call it
    simulate: Simulated | None  # how it is made; null: `--data FOLDER` must give it
    strangers: Strangers | None = None


@dataclass(frozen=True)
class Direction:
    source: tuple[str, ...]  # environments that are trained in
    target: tuple[str, ...]  # environments that are scored in; never read in training

    def __post_init__(self) -> None:
        for kind, names in (("source", self.source), ("target", self.target)):
            if not names or len(set(names)) != len(names):
                raise ConfigError(f"directions: {kind}: expected one environment or more, each once, found {names}.")
        check_unseen(self.source, self.target)

    @property
    def name(self) -> str:
        return direction_name(self.source, self.target)


@dataclass(frozen=True)
class MethodPlan:
    """A method, its settings, the variants that differ from them, and the calibrations its runs are scored after."""

    method: str  # its name, see `pisa methods`
    settings: dict[str, Any] = field(default_factory=dict)  # every setting of it, see below; none takes the defaults
    variants: dict[str, dict[str, Any]] = field(default_factory=lambda: {"full": {}})  # by name, what differs
    calibration: tuple[str, ...] = ()  # names of the stages below, scored beside direct inference


@dataclass(frozen=True)
class Search:
    """How hyperparameters are chosen: training of a point, and by method the values of the settings that are tried.

    A method's points are all combinations of its values. Every method in the grid has the same number of points: a
    method with more of them would have more chances.
    """

    epochs: int  # of the training of a point
    split_seed: int  # of the split that points are tried on
    seeds: tuple[int, ...]  # of their training; a point's score is the mean
    grid: dict[str, dict[str, tuple[Any, ...]]]  # by method and setting, the values that are tried

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ConfigError(f"search.epochs: expected at least 1, found {self.epochs}.")
        _check_seeds("search", (self.split_seed, *self.seeds))
        if len(set(self.seeds)) != max(1, len(self.seeds)):
            raise ConfigError(f"search.seeds: expected one or more different seeds, found {list(self.seeds)}.")
        counts = {method: len(self.points(method)) for method in self.grid}
        if not counts or min(counts.values()) < 1:
            raise ConfigError("search.grid: expected methods, each with one or more values of its settings.")
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{method} {count}" for method, count in counts.items())
            raise ConfigError(f"search.grid: every method gets the same number of points; found {found}.")

    def points(self, method: str) -> list[dict[str, Any]]:
        values = self.grid[method]
        return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


@dataclass(frozen=True)
class Protocol:
    """One experiment.

    calibration: by the name of the stage its `method`, a calibrator's name, and that one's settings. deployments: what
    the runs are scored in, the captures as they are first, see `Deployment`; an empty list is these alone. search: see
    `evidence.benchmark.search`. given: the file or name that it was asked for by, which messages repeat.
    """

    title: str  # over tables and figures
    dataset: DataSource  # what is trained and scored on
    directions: tuple[Direction, ...]  # source and target environments; each is scored by itself
    methods: tuple[MethodPlan, ...]  # what is trained, in the order of the tables
    encoders: tuple[str, ...] = ("transformer",)  # names, see `pisa encoders`
    split: SplitRule = field(default_factory=SplitRule)  # what is held out
    split_seeds: tuple[int, ...] = (2026, 2027, 2028)  # seeds of the split
    seeds: tuple[int, ...] = (2026, 2027, 2028)  # seeds of the training; every pair with a split seed is a run
    precision: str = "auto"  # auto (bfloat16 on a GPU), float32 or bfloat16
    training: TrainingConfig = field(default_factory=TrainingConfig)  # the optimisation
    calibration: dict[str, dict[str, Any]] = field(default_factory=dict)
    deployments: tuple[Deployment, ...] = ()
    search: Search | None = None
    name: str = ""
    given: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        refuse(self._faults())

    def _faults(self) -> Iterator[str]:
        for key in ("directions", "split_seeds", "seeds", "encoders", "methods"):
            values = getattr(self, key)
            if not values:
                yield f"{key}: expected at least one."
            for i, value in enumerate(values):
                if value in values[:i]:
                    yield f"{key}: holds {_called(value)} more than once; expected each once."
        rows = [(row.method, variant) for row in self.methods for variant in row.variants]
        for method, variant in rows:
            if rows.count((method, variant)) > 1:  # records of the two would be taken for one another
                yield f"methods: {method} has {variant} more than once. Give other settings as a variant."
        for key in ("split_seeds", "seeds"):
            yield from _faults_of(_check_seeds, key, getattr(self, key))
        if self.precision not in PRECISIONS:
            yield unknown_name("precision", self.precision, PRECISIONS)
        for row in self.methods:
            if not row.variants:
                yield f"methods: {row.method} has no variants; expected at least `full: {{}}`."
            for stage in row.calibration:
                if stage not in self.calibration:
                    yield f"methods: {row.method}: " + unknown_name("calibration", stage, self.calibration)
        if DIRECT in self.calibration:
            yield f"calibration: {DIRECT} is the stage without calibration; give it another name."
        if named := [stage for stage in self.calibration if "@" in stage]:
            yield f"calibration: expected names without @, found {named[0]!r}."
        yield from self._faults_of_deployments()
        if in_grid := list(self._faults_of_grid()):
            yield from list(_faults_of_parts(self)) or in_grid  # a grid is not to blame for a method that is misspelt

    @property
    def dropped(self) -> tuple[str, ...]:
        """Stages of calibrations that are gone: records hold their scores, and nothing makes new ones."""
        return tuple(stage for stage, own in self.calibration.items() if own.get("method") in DROPPED)

    @property
    def strangers(self) -> Strangers | None:
        """The unknown devices, where a deployment has frames of some."""
        return self.dataset.strangers if any(deployment.unknown for deployment in self.deployments) else None

    def _faults_of_deployments(self) -> Iterator[str]:
        """A list that does not begin with the captures as received, or that asks for what the protocol lacks."""
        names = [deployment.name for deployment in self.deployments]
        for i, deployment in enumerate(self.deployments):
            where = f"deployments.{deployment.name}: "
            if deployment.name in names[:i]:
                yield f"{where}more than once; expected each name once."
            if deployment.is_plain != (i == 0):
                yield f"{where}expected the captures as they are first, as {{name: balanced}}, and only there."
            if deployment.unknown and self.dataset.strangers is None:
                yield f"{where}unknown devices need dataset.strangers, as {{devices: 3, scale: 0.25}}."
            for stage in deployment.calibration:
                for row in self.methods:
                    if stage not in row.calibration:
                        yield where + unknown_name("calibration", stage, row.calibration)

    def _faults_of_grid(self) -> Iterator[str]:
        """A search over methods or settings that the protocol does not have."""
        settings = {row.method: row.settings for row in self.methods}
        for method, values in self.search.grid.items() if self.search else ():
            if method not in settings:
                yield "search.grid: " + unknown_name("method", method, settings)
                continue
            for key in values:
                if key not in settings[method]:
                    yield f"search.grid.{method}: " + unknown_name("setting", key, settings[method])


def read_protocol(name: str) -> Protocol:
    """The protocol in the file `name`, or the one called so in the folder `protocols`."""
    path = _find(name)
    values = read_yaml(path)
    try:
        return from_mapping(Protocol, {**with_defaults(values), "name": path.stem, "given": name})
    except ConfigError as error:
        refuse(str(error).splitlines(), f"{name}: ")
        raise


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The protocol with the defaults of missing settings filled in, as records will have them.

    It needs no torch where all settings are written, as in the protocols of this package.
    """
    found = dict(values)
    if isinstance(rows := values.get("methods"), list):
        found["methods"] = [_with_settings(row) if isinstance(row, Mapping) else row for row in rows]
    if isinstance(stages := values.get("calibration"), Mapping):
        found["calibration"] = {
            name: _with_calibration(own) if isinstance(own, Mapping) and own.keys() == {"method"} else own
            for name, own in stages.items()
        }
    return found


def _with_settings(row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("settings"):
        return dict(row)
    from pisa_capc.model.methods import METHODS

    name = row.get("method")
    if not isinstance(name, str) or name not in METHODS:  # reported later, with all other faults
        return {"settings": {}, **row}
    return {**row, "settings": plain_settings(METHODS[name].Settings())}


def _with_calibration(own: Mapping[str, Any]) -> dict[str, Any]:
    from pisa_capc.decide.calibration import CALIBRATIONS

    name = own["method"]
    if not isinstance(name, str) or name not in CALIBRATIONS:
        return dict(own)
    return {**own, **described_calibration(CALIBRATIONS[name]())}


def plain_settings(settings: Any) -> dict[str, Any]:
    """A dataclass of settings as YAML holds it."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    return found


def new_protocol(title: str, methods: Sequence[str], encoders: Sequence[str], scene: str) -> dict[str, Any]:
    """A protocol on a simulated scene with every setting written out; `with_defaults` says which."""
    from pisa_capc.signal.simulation.generate import DEFAULT_SEED

    stages = {PAPER: {"method": "ucapc"}, CAREFUL: {"method": "careful"}}
    environments = list(load_scene(scene).environments)
    values = with_defaults(
        {
            "title": title,
            "dataset": {"name": Path(scene).stem, "simulate": {"scene": scene, "scale": 1.0, "seed": DEFAULT_SEED}},
            "directions": [{"source": environments[1:], "target": environments[:1]}],
            "encoders": list(encoders),
            "methods": [{"method": name, "calibration": list(stages)} for name in methods],
            "calibration": stages,
        }
    )
    protocol = from_mapping(Protocol, {**values, "given": title})
    check_protocol(protocol)
    left_out = ("name", "given", "search", "deployments")
    return {name: value for name, value in plain_settings(protocol).items() if name not in left_out}


def protocol_files() -> dict[str, Path]:
    """The files of the folder `protocols` by the name of their protocol."""
    return {path.stem: path for folder in reversed(FOLDERS) for path in sorted(folder.glob("*.yaml"))}


def _find(name: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    known = protocol_files()
    if name not in known:
        raise ConfigError(unknown_name("protocol", name, known) + " Or give the path of a .yaml file.")
    return known[name]


def check_protocol(protocol: Protocol) -> None:
    """Refuse unknown methods, encoders, calibrations and settings, and settings that are only partly written."""
    refuse(_faults_of_parts(protocol), f"{protocol.given}: ")


def _faults_of(check: Callable[..., object], *given: Any) -> list[str]:
    try:
        check(*given)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def _faults_of_parts(protocol: Protocol) -> Iterator[str]:
    from pisa_capc.data.geometry import square
    from pisa_capc.decide.calibration.base import calibration_of
    from pisa_capc.evidence.evaluation.deployment import check_deployment
    from pisa_capc.model.encoders import ENCODERS
    from pisa_capc.model.methods import Setup, build_method

    unknown = [encoder for encoder in protocol.encoders if encoder not in ENCODERS]
    yield from ("encoders: " + unknown_name("encoder", encoder, ENCODERS) for encoder in unknown)
    environments = tuple(range(min((len(direction.source) for direction in protocol.directions), default=0)))
    setup = Setup(2, next((name for name in protocol.encoders if name in ENCODERS), "cnn"), square(), environments)
    for row in protocol.methods:
        for variant, changes in row.variants.items():
            try:
                built = build_method(row.method, setup, variant, merged(row.settings, changes))
            except ConfigError as error:
                yield from (f"{row.method}: {line}" for line in str(error).splitlines())
            else:
                yield from _missing(row.settings, built.describe(), row.method)
    calibrations = {}
    for stage, settings in protocol.calibration.items():
        if stage in protocol.dropped:
            continue
        where = f"calibration.{stage}"
        try:
            calibrations[stage] = calibration_of(settings, where)
        except ConfigError as error:
            yield from str(error).splitlines()
        else:
            yield from _missing(settings, described_calibration(calibrations[stage]), where)
    for deployment in protocol.deployments:
        for row in protocol.methods:
            made = [stage for stage in row.calibration if stage not in protocol.dropped]
            if all(stage in calibrations for stage in made):
                own = {stage: calibrations[stage] for stage in made if stage in (deployment.calibration or made)}
                yield from _faults_of(check_deployment, replace(deployment, calibration=()), own)


def described_calibration(calibration: Calibrator) -> dict[str, Any]:
    """The settings of a calibration as protocols write them: all that change a result."""
    return {key: value for key, value in asdict(calibration).items() if key != "workspace_mib"}


def is_guarded(settings: Mapping[str, Any]) -> bool:
    """Whether a stage is U-CAPC under the guard of earlier versions, which only records still hold."""
    return settings.get("method") == SAFE


def _called(value: Any) -> str:
    """What a message calls an entry of a protocol's list."""
    if isinstance(value, MethodPlan):
        return value.method
    return value.name if isinstance(value, Direction) else str(value)


def _check_seeds(where: str, seeds: tuple[int, ...]) -> None:
    if min(seeds, default=0) < 0:
        raise ConfigError(f"{where}: expected seeds from 0 on, found {min(seeds)}.")


def _missing(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> Iterator[str]:
    for key, value in known.items():
        if key not in given:
            yield (
                f"{where}.{key}: missing. Write out all settings, as `pisa bench new` does, or none, which takes the "
                f"defaults; this one's is {value!r}."
            )
        elif isinstance(value, Mapping):
            yield from _missing(given[key], value, f"{where}.{key}")
