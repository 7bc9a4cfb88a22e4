"""What a training method is, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from inspect import getdoc
from typing import Any, ClassVar, NamedTuple, TypeVar

from torch import Tensor, nn

from pisa_capc.core import plugins
from pisa_capc.core.config import from_mapping, merged
from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.core.registry import Registry
from pisa_capc.data.frames import MODEL_SAMPLES, Frames
from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.data.store.dataset import TIME, Subcarriers
from pisa_capc.model.encoders import ENCODERS
from pisa_capc.signal.waveforms.reference import SentReference


@dataclass(frozen=True)
class Setup:
    """What a model needs to know about the data.

    source_environments: indices of the environments the training frames are from; a model that only infers needs no
    more than their number.
    samples: length of the frames. domain, subcarriers: what they are, see `Dataset`. reference: what was sent, where
    that is known from a file.
    """

    classes: int
    encoder: str
    geometry: ArrayGeometry
    source_environments: tuple[int, ...] = (0,)
    samples: int = MODEL_SAMPLES
    sample_rate_hz: float = 20e6
    domain: str = TIME
    subcarriers: Subcarriers | None = None
    reference: SentReference | None = None


class Batch(NamedTuple):
    """One step's frames of R runs, source environments only."""

    iq: Tensor  # (R, B, A, T, 2), unit mean power
    descriptor: Tensor | None  # (R, B, 4)
    label: Tensor  # (R, B)
    environment: Tensor  # (R, B), index into the dataset's environments
    antenna_keep: Tensor  # (R, B, A), the perturbed view's antennas
    span_keep: Tensor  # (R, B, SPANS), the perturbed view's spans
    key: Tensor  # (R,), from which a method draws what it needs; see `model.stacked.noise`


class Method:
    """Base of the methods. `Settings` is a frozen dataclass with every hyperparameter and its default.

    Variants are named sets of settings: the rows of an ablation are configurations, not forks of the code.
    The first line of a method's docstring is how lists of methods describe it.
    """

    Settings: ClassVar[type]
    title: ClassVar[str]  # what tables and figures call it; the name it is registered under where it says nothing
    citation: ClassVar[str] = ""
    least_environments: ClassVar[int] = 1  # source environments without which the objective has no meaning
    needs: ClassVar[tuple[str, ...]] = ()  # what the data must have besides labelled frames and environments
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"full": {}}
    as_reported: ClassVar[bool] = False  # whether channel state reaches it without a front end, because it has its own
    in_epochs: ClassVar[bool] = True  # whether an encoder is trained; if not, `solve` makes the model at once

    terms: tuple[str, ...] = ("cls",)  # names of the objective's terms
    drops: tuple[float, float] = (0.0, 0.0)  # probabilities with which the perturbed view loses an antenna, a span
    settling_steps: int = 0  # after which the objective is the method's; epochs that begin earlier are not selected

    def __init__(self, setup: Setup, settings: Any) -> None:
        self.setup = setup
        self.settings = settings

    @property
    def whole_frames(self) -> bool:
        """Whether it reads whole frames by default, instead of the paper's 320 samples."""
        return False

    def build(self, runs: int = 1) -> nn.Module:
        """A new model whose forward(iq, descriptor, mask) returns an `Output`; parameters have a run axis."""
        raise NotImplementedError

    def check_source(self, frames: Frames) -> None:
        """Refuse source frames that it cannot learn from; called before a training, on the training frames."""

    def solve(self, frames: Frames) -> nn.Module:
        """The model of the training frames, of a method that has no epochs."""
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The weighted terms of the objective under the names in `terms`, each (R,); their sum is minimised."""
        raise NotImplementedError

    def fuse(self) -> None:
        """Prepare for training on a GPU: compile what the loss is made of."""

    def describe(self) -> dict[str, Any]:
        return asdict(self.settings)


METHODS: Registry[type[Method]] = Registry("method")
M = TypeVar("M", bound=type[Method])


def register_method(name: str) -> Callable[[M], M]:
    """Make a method class known under `name`."""

    def add(cls: M) -> M:
        if not (isinstance(cls, type) and issubclass(cls, Method) and is_dataclass(getattr(cls, "Settings", None))):
            raise ConfigError(
                f"method {name!r}: expected a subclass of pisa_capc.model.methods.Method, or of one of the methods, "
                f"whose Settings is a dataclass; found {cls!r}."
            )
        METHODS.add(name, cls)
        return cls

    return add


def method_names() -> list[str]:
    return list(METHODS)


def method_title(name: str) -> str:
    """The title of a method in tables and figures; its name if the class is unknown or has no title of its own."""
    return str(vars(METHODS[name]).get("title", name)) if name in METHODS else name


def is_solved(method: str) -> bool:
    """Whether a method has neither epochs nor encoder; false for an unknown one."""
    return method in METHODS and not METHODS[method].in_epochs


def plugins_used(method: str, encoder: str) -> list[dict[str, str]]:
    """The plugins that a method and an encoder are from, as `model.json` and records keep them."""
    return plugins.described(METHODS.origin(method), ENCODERS.origin(encoder))


def method_list() -> list[dict[str, Any]]:
    """Every method: name, summary, source, requirements, and settings with their defaults."""
    return [
        {
            "name": name,
            "summary": (getdoc(cls) or "").partition("\n")[0],
            "citation": cls.citation,
            "source_environments": cls.least_environments,
            "needs": list(cls.needs),
            "settings": asdict(cls.Settings()),
        }
        for name, cls in METHODS.parts().items()
    ]


def check_names(method: str, encoder: str, variant: str = "full") -> None:
    """Refuse an unknown method, encoder or variant, before anything is read."""
    variants = METHODS[method].variants
    if METHODS[method].in_epochs:
        ENCODERS[encoder]
    if variant not in variants:
        raise ConfigError(unknown_name(f"variant of {method}", variant, variants))


def build_method(name: str, setup: Setup, variant: str = "full", settings: Mapping[str, Any] | None = None) -> Method:
    """The method `name` with the settings of a variant, over which `settings` goes."""
    check_names(name, setup.encoder, variant)
    cls = METHODS[name]
    if (given := len(setup.source_environments)) < cls.least_environments:
        raise ConfigError(
            f"{name}: works across source environments and needs {cls.least_environments} or more, found {given}. "
            "Name more of them as source, or train another method."
        )
    chosen = merged(cls.variants[variant], settings or {})
    return cls(setup, from_mapping(cls.Settings, chosen, name))
