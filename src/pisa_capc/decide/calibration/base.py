"""What every calibration is: settings that can be cloned, one `calibrate`, and a name in the registry.

A calibration of your own is one class. `Peer` leaves it one method, one group of frames at a time:

    from pisa_capc.decide.calibration import Peer, Transduced, register_calibration

    @register_calibration("sharper")
    class Sharper(Peer):
        title = "twice as sure"

        def transduce(self, embedding, logits, source):
            return Transduced(2 * logits, (2 * logits).softmax(dim=1))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from torch import Tensor

from pisa_capc.core.config import from_mapping
from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.core.registry import Registry
from pisa_capc.data.protocol import DROPPED
from pisa_capc.decide.calibration.inputs import GROUPINGS, Array, Captures, Inputs, check_inputs
from pisa_capc.decide.calibration.result import Calibration, Recorder
from pisa_capc.model.inference.statistics import PREFIX, SourceStatistics

if TYPE_CHECKING:
    from pisa_capc.decide.calibration.frozen import FrozenCalibration


@dataclass(frozen=True)
class Parameters:
    """The settings of a frozen dataclass as scikit-learn knows them, so that `sklearn.base.clone` works."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name; with `deep` also those of parts, as `calibrator__top`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        parts = {name: part.get_params() for name, part in own.items() if deep and isinstance(part, Parameters)}
        return own | {f"{name}__{key}": value for name, part in parts.items() for key, value in part.items()}

    def set_params(self, **values: Any) -> Self:
        """A copy with these settings. Nothing changes a calibration itself: others may use it, as those of `PRESETS`.

        Settings of a part are given as `calibrator__top`. scikit-learn, which knows estimators that change, goes on
        with what this returns.
        """
        own = {name: value for name, value in values.items() if "__" not in name}
        inner: dict[str, dict[str, Any]] = {}
        for name in values.keys() - own.keys():
            part, _, key = name.partition("__")
            inner.setdefault(part, {})[key] = values[name]
        for name in (*own, *inner):
            if name not in (known := self.get_params(deep=False)):
                raise ConfigError(unknown_name("setting", name, known))
        for name, settings in inner.items():
            part = own.get(name, getattr(self, name))
            if not isinstance(part, Parameters):
                raise ConfigError(f"{name} is {part!r}, which has no settings of its own; found {', '.join(settings)}.")
            own[name] = part.set_params(**settings)
        return replace(self, **own)


@dataclass(frozen=True)
class Calibrator(Parameters):
    """A calibration: a frozen dataclass with its settings, and `calibrate_frames`."""

    title: ClassVar[str]  # what tables and figures call it; the class's name where it says nothing
    freezes: ClassVar[bool] = False  # whether its prototypes and potentials decide later frames, as in `frozen`

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "title" not in vars(cls):
            cls.title = cls.__name__

    def __post_init__(self) -> None:
        if self.group not in GROUPINGS:
            raise ConfigError(unknown_name("grouping", str(self.group), GROUPINGS))

    @property
    def group(self) -> str:
        """Which frames are calibrated together: those of a 'capture', all ('none'), or of groups found ('auto')."""
        raise NotImplementedError

    @property
    def counted(self) -> str:
        """Which frames the result counts together."""
        return self.group

    def calibrate(
        self,
        embedding: Array,
        logits: Array,
        capture: Captures | None = None,
        source: SourceStatistics | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Calibration:
        """Calibrated probabilities, scores and decisions of frames with embedding (N, D) and logits (N, C).

        `capture` (N,) groups the frames; without it they are one group. `source` holds the statistics of the source
        that some calibrations need; each says which. `out` may name arrays (for instance memory-mapped) for
        `probability` and `score`.
        """
        inputs = check_inputs(embedding, logits, capture, self.counted)
        return self.calibrate_frames(inputs, source or SourceStatistics(), Recorder(inputs, out))

    def fit_predict(
        self,
        embedding: Array,
        logits: Array,
        capture: Captures | None = None,
        source: SourceStatistics | None = None,
    ) -> Array:
        """(N,) the calibrated decisions alone: the `prediction` of `calibrate`.

        >>> UCAPC().fit_predict(embedding, logits, capture)                     # doctest: +SKIP
        """
        return self.calibrate(embedding, logits, capture, source).prediction

    def calibrate_frames(self, inputs: Inputs, source: SourceStatistics, recorder: Recorder) -> Calibration:
        """Calibrate checked frames and hand them to `recorder`, whose `finish` makes the result."""
        raise NotImplementedError

    def without_balance(self) -> Calibrator:
        """What takes its place on a stream while one transmitter sends for long; itself if it balances no classes."""
        return self

    def fit(
        self,
        embedding: Array,
        logits: Array,
        capture: Captures | None = None,
        source: SourceStatistics | None = None,
    ) -> FrozenCalibration:
        """What these frames say about their captures, kept for later frames; U-CAPC and careful can do that.

        >>> kept = UCAPC().fit(embedding, logits, capture)                      # doctest: +SKIP
        >>> kept.predict_proba(later_embedding, later_logits, later_capture)    # doctest: +SKIP
        """
        from pisa_capc.decide.calibration.frozen import FrozenCalibration

        return FrozenCalibration.fit(embedding, logits, capture, self, source)


CALIBRATIONS: Registry[type[Calibrator]] = Registry("calibration")
C = TypeVar("C", bound=type[Calibrator])


def register_calibration(name: str) -> Callable[[C], C]:
    """Make a calibration known under `name`: a frozen dataclass that extends `Peer` or `Calibrator`."""
    return CALIBRATIONS.register(name)


def calibrators() -> Mapping[str, type[Calibrator]]:
    """Every calibration by name."""
    return CALIBRATIONS.parts()


def calibrator(name: str) -> type[Calibrator]:
    """The calibration called `name`; an unknown name is an error that names the nearest one."""
    if name in DROPPED:
        raise ConfigError(f"the calibration {name} of earlier versions is gone. Use {DROPPED[name]}.")
    return CALIBRATIONS[name]


def calibration_of(settings: Mapping[str, Any], where: str) -> Calibrator:
    """The calibration that `method` names, with the other settings; `where` is the path that messages show."""
    if "method" not in settings:
        raise ConfigError(f"{where}.method: missing. Name a calibration, as ucapc, careful or lame.")
    try:
        kind = calibrator(settings["method"])
    except ConfigError as error:
        raise ConfigError(f"{where}.method: {error}") from error
    return from_mapping(kind, {key: value for key, value in settings.items() if key != "method"}, where)


def settings_of(calibration: Calibrator) -> dict[str, Any]:
    """What `calibration_of` makes this calibration of."""
    name = next((name for name, kind in calibrators().items() if kind is type(calibration)), None)
    if name is None:
        raise ConfigError(
            f"{type(calibration).__name__} is no registered calibration, so that it cannot be kept in a file. "
            f"Register it with register_calibration, or use one of {', '.join(calibrators())}."
        )
    return {"method": name, **asdict(calibration)}


def require(source: SourceStatistics, name: str, shape: tuple[int, ...], like: Tensor, user: str) -> Tensor:
    """A source statistic that `user` cannot do without. Models of earlier versions lack some of them."""
    values = source.tensor(name, shape, like)
    if values is None:
        raise DataError(
            f"{user} needs {PREFIX}{name}, which is not with these scores. Write the scores with pisa embed, or add "
            f"the array to the .npz, as pisa calibrate --help describes it (in Python: SourceStatistics({name}=…)). "
            "Train the model again if an earlier version trained it."
        )
    return values


def check_range(settings: object, **ranges: tuple[float, float]) -> None:
    """Raise unless every named setting lies in its closed range."""
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        if not low <= value <= high:
            raise ConfigError(f"{name} is {value}; expected a number from {low:g} to {high:g}.")
