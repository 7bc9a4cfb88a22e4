"""What a protocol says: dataset, directions, methods, encoders, seeds and every setting, in one YAML file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pisa_capc.core.config import from_mapping, merged, read_yaml
from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import DIRECT, check_rule, check_unseen
from pisa_capc.signal.simulation.scene import check_scale, scene_file

if TYPE_CHECKING:
    pass

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
    """Radios that a simulated set does not have: how many more, and the part of a capture's frames, as of the set."""

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
        return f"{','.join(self.source)} → {','.join(self.target)}"


@dataclass(frozen=True)
class SplitRule:
    """Share of each source group that validates, and frames that each target group leaves out."""

    validation: float  # share of the frames of each source group (device and capture), held out of training
    few_shot: int  # frames that each target group (device and capture) leaves out of the scores

    def __post_init__(self) -> None:
        check_rule(self.validation, self.few_shot)


@dataclass(frozen=True)
class MethodPlan:
    """A method, its settings, the variants that differ from them, and the calibrations its runs are scored after."""

    method: str  # its name, see `pisa methods`
    settings: dict[str, Any]  # every setting of it, see below
    variants: dict[str, dict[str, Any]]  # rows by name, what differs in each; `full: {}` is the method as it is
    calibration: tuple[str, ...]  # names of the stages below, scored beside direct inference


@dataclass(frozen=True)
class Search:
    """How hyperparameters are chosen: training of a point, and by method the values of the settings that are tried.

    A method's points are all combinations of its values. Every method in the grid has the same number of them: a method
    that were tried more often would have more chances.
    """

    epochs: int  # of the training of a point
    split_seed: int  # of the split that points are tried on
    seed: int  # of their training
    grid: dict[str, dict[str, tuple[Any, ...]]]  # by method and setting, the values that are tried

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ConfigError(f"search.epochs: expected at least 1, found {self.epochs}.")
        _check_seeds("search", (self.split_seed, self.seed))
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
    split: SplitRule  # what is held out
    split_seeds: tuple[int, ...]  # seeds of the split
    seeds: tuple[int, ...]  # seeds of the training; every pair with a split seed is a run
    encoders: tuple[str, ...]  # names, see `pisa encoders`
    precision: str  # auto (bfloat16 on a GPU), float32 or bfloat16
    training: dict[str, Any]  # the optimisation, every setting of it
    methods: tuple[MethodPlan, ...]  # what is trained, in the order of the tables
    calibration: dict[str, dict[str, Any]]
    deployments: tuple[Deployment, ...] = ()
    search: Search | None = None
    name: str = ""
    given: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for key in ("directions", "split_seeds", "seeds", "encoders", "methods"):
            values = getattr(self, key)
            if not values:
                raise ConfigError(f"{key}: expected at least one.")
            for i, value in enumerate(values):
                if value in values[:i]:
                    raise ConfigError(f"{key}: holds {_called(value)} more than once; expected each once.")
        rows = [(row.method, variant) for row in self.methods for variant in row.variants]
        for method, variant in rows:
            if rows.count((method, variant)) > 1:  # records of the two would be taken for one another
                raise ConfigError(f"methods: {method} has {variant} more than once. Give other settings as a variant.")
        _check_seeds("split_seeds", self.split_seeds)
        _check_seeds("seeds", self.seeds)
        if self.precision not in PRECISIONS:
            raise ConfigError(unknown_name("precision", self.precision, PRECISIONS))
        for row in self.methods:
            if not row.variants:
                raise ConfigError(f"methods: {row.method} has no variants; expected at least `full: {{}}`.")
            for stage in row.calibration:
                if stage not in self.calibration:
                    raise ConfigError(f"methods: {row.method}: " + unknown_name("calibration", stage, self.calibration))
        if DIRECT in self.calibration:
            raise ConfigError(f"calibration: {DIRECT} is the stage without calibration; give it another name.")
        if named := [stage for stage in self.calibration if "@" in stage]:
            raise ConfigError(f"calibration: expected names without @, found {named[0]!r}.")
        self._check_deployments()
        try:
            self._check_grid()
        except ConfigError:
            _check_parts(self)  # where a method is misspelt, the grid that has it right is not to blame
            raise

    @property
    def strangers(self) -> Strangers | None:
        """The unknown devices, where a deployment has frames of some."""
        return self.dataset.strangers if any(deployment.unknown for deployment in self.deployments) else None

    def _check_deployments(self) -> None:
        """Refuse a list that does not begin with the captures as they are, or that asks for what there is not."""
        names = [deployment.name for deployment in self.deployments]
        for i, deployment in enumerate(self.deployments):
            where = f"deployments.{deployment.name}: "
            if deployment.name in names[:i]:
                raise ConfigError(f"{where}more than once; expected each name once.")
            if deployment.is_plain != (i == 0):
                raise ConfigError(
                    f"{where}expected the captures as they are first, as {{name: balanced}}, and only there."
                )
            if deployment.unknown and self.dataset.strangers is None:
                raise ConfigError(f"{where}unknown devices need dataset.strangers, as {{devices: 3, scale: 0.25}}.")
            for stage in deployment.calibration:
                for row in self.methods:
                    if stage not in row.calibration:
                        raise ConfigError(where + unknown_name("calibration", stage, row.calibration))

    def _check_grid(self) -> None:
        """Refuse a search of what no method of the protocol has."""
        settings = {row.method: row.settings for row in self.methods}
        for method, values in self.search.grid.items() if self.search else ():
            if method not in settings:
                raise ConfigError("search.grid: " + unknown_name("method", method, settings))
            for key in values:
                if key not in settings[method]:
                    raise ConfigError(f"search.grid.{method}: " + unknown_name("setting", key, settings[method]))


def read_protocol(name: str) -> Protocol:
    """The protocol in the file `name`, or the one called so in the folder `protocols`."""
    path = _find(name)
    values = read_yaml(path)
    try:
        return from_mapping(Protocol, {**values, "name": path.stem, "given": name})
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


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
    """Refuse what no method, encoder or calibration knows, and settings that are left to a default."""
    try:
        _check_parts(protocol)
    except ConfigError as error:
        raise ConfigError(f"{protocol.given}: {error}") from error


def _check_parts(protocol: Protocol) -> None:
    from pisa_capc.data.geometry import square
    from pisa_capc.decide.calibration.base import calibration_of
    from pisa_capc.evidence.evaluation.deployment import check_deployment
    from pisa_capc.model.encoders import ENCODERS
    from pisa_capc.model.methods import Setup, build_method
    from pisa_capc.model.training import TrainingConfig

    for encoder in protocol.encoders:
        if encoder not in ENCODERS:
            raise ConfigError("encoders: " + unknown_name("encoder", encoder, ENCODERS))
    training = from_mapping(TrainingConfig, protocol.training, "training")
    _check_complete(protocol.training, asdict(training), "training")
    environments = tuple(range(min(len(direction.source) for direction in protocol.directions)))
    for row in protocol.methods:
        for variant, changes in row.variants.items():
            setup = Setup(2, protocol.encoders[0], square(), environments)
            try:
                built = build_method(row.method, setup, variant, merged(row.settings, changes))
            except ConfigError as error:
                raise ConfigError(f"{row.method}: {error}") from error
            _check_complete(row.settings, built.describe(), row.method)
    calibrations = {}
    for stage, settings in protocol.calibration.items():
        where = f"calibration.{stage}"
        calibrations[stage] = calibration_of(settings, where)
        known = asdict(calibrations[stage])
        known.pop("workspace_mib", None)  # bounds memory and changes no result
        _check_complete(settings, known, where)
    for deployment in protocol.deployments:
        for row in protocol.methods:
            check_deployment(deployment, {stage: calibrations[stage] for stage in row.calibration})


def is_guarded(settings: Mapping[str, Any]) -> bool:
    """Whether a stage is U-CAPC under the guard, which each model learns on its source."""
    return settings.get("method") == "safe"


def _called(value: Any) -> str:
    """What a message calls an entry of a protocol's list."""
    if isinstance(value, MethodPlan):
        return value.method
    return value.name if isinstance(value, Direction) else str(value)


def _check_seeds(where: str, seeds: tuple[int, ...]) -> None:
    if min(seeds) < 0:
        raise ConfigError(f"{where}: expected seeds from 0 on, found {min(seeds)}.")


def _check_complete(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    for key, value in known.items():
        if key not in given:
            raise ConfigError(f"{where}.{key}: missing. A protocol writes every setting out; the default is {value!r}.")
        if isinstance(value, Mapping):
            _check_complete(given[key], value, f"{where}.{key}")
