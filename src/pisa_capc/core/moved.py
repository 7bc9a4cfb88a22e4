"""Names that modules had before the packages: `pisa_capc.frames` is `pisa_capc.data.frames`. They work for one version.

An old name gives the module itself, not a second one, with a DeprecationWarning. `MOVED` is the whole list, which
docs/architecture.md shows. To end the old names, remove this file and what mentions it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
PACKAGE = "pisa_capc."
UNTIL = "The old name goes with the next version."

# package → modules that kept their names in it
KEPT = {
    "core": "errors quantities randomness revisions registry config plugins engines threads progress provenance",
    "data": "samples sources geometry store frames chance scores deployments descriptors protocol",
    "signal": "recordings formats waveforms phy",
    "model": "stacked encoders objective methods inference edge training",
    "decide": "calibration enrolment",
    "evidence": "limit evaluation benchmark figures reports",
    "live": "listen serve",
}
# module of today → modules beside it that are part of it now
MERGED = {
    "live.serve.connections": "limits",
    "live.serve.keepsakes": "enrolling",
    "evidence.benchmark.records": "checks",
    "evidence.benchmark.run": "estimate",
    "evidence.figures.protocol": "bars methods scatter deployments",
    "evidence.figures.recording": "evidence identified",
    "evidence.reports.run": "dataset",
    "model.encoders.convolutional": "cnn mscnn resnet tcn cvcnn cldnn",
    "evidence.checks.layout": "copies",
    "evidence.checks.room": "frequency",
    "evidence.checks.antennas": "levels",
    "model.methods.across": "domains adversarial",
    "model.methods.alignment": "mmd gad coral dann",
    "model.methods.risks": "groupdro irm",
    "model.methods.mixing": "mixup sigmix",
    "model.methods.disentangled": "rffcc riei twoparts",
    "model.methods.equalised": "eada",
    "model.inference.inputs": "absent ahead",
    "model.training.keep": "checkpoint",
    "evidence.checks.measure": "sample",
    "evidence.figures.confusion": "captures",
    "evidence.reports.page": "scores",
    "evidence.evaluation.runs": "later",
    "evidence.benchmark.results": "deployed",
    "model.edge.engine": "session",
    "data.store.native": "summary",
    "signal.simulation.numerics": "interpolation phasor",
    "signal.simulation.receiver": "cfo",
    "model.encoders.base": "registry",
    "evidence.figures.dataset": "check",
    "evidence.checks.base": "run",
}
RENAMED = {
    "openset_scores": "data.scores",
    "recordings.annotating": "signal.recordings.sigmf",
    "recordings.files": "signal.recordings.base",
    "phy.lora.receive": "signal.phy.lora.reception",
    "phy.lora.transmit": "signal.phy.lora.transmission",
    "phy.wifi.receive": "signal.phy.wifi.reception",
    "phy.wifi.transmit": "signal.phy.wifi.transmission",
    "simulate": "signal.simulation",
    "detect": "signal.detection",
    "detect.history": "signal.detection.finders",
    "detect.labels": "signal.detection.dataset",
    "detect.notes": "signal.detection.finding",
    "stacked.elsewhere": "model.stacked.compilers",
    "model.aggregation": "model.networks.modules",
    "model.dynamics": "model.networks.modules",
    "model.pisa": "model.networks.pisa",
    "model.single": "model.networks.single",
    "model.streams": "model.networks.streams",
    "model.suppression": "model.networks.modules",
    "model.topology": "model.networks.topology",
    "inference.embed": "model.inference.embedding",
    "inference.memory": "core.process",
    "model.training.runs": "model.runs",
    "training.fit": "model.training.fitting",
    "identify": "decide.identification",
    "identify.together": "decide.identification.tracks",
    "identify.observe": "decide.identification.observation",
    "identify.verify": "decide.identification.verification",
    "check": "evidence.checks",
    "evaluation.deploy": "evidence.evaluation.deployment",
    "evaluation.infer": "evidence.evaluation.inference",
    "listen.meter": "live.listen.watch",
    "listen.apart": "live.listen.finder_process",
    "listen.ears": "live.listen.finder",
    "listen.mind": "live.listen.verifier",
    "listen.tags": "live.listen.sources.zeromq",
    "listen.zeromq": "live.listen.sources.zeromq",
    "serve.desk": "live.serve.hub",
    "serve.ear": "live.serve.hub",
    "serve.sigmf": "live.serve.downloads",
    "model.objective.views": "model.objective",
    "objective.losses": "model.objective",
    "signal.detection.wifi.headers": "signal.detection.wifi",
}
# Old → new, below pisa_capc; what is in a package has moved with it.
MOVED = (
    {name: f"{package}.{name}" for package, names in KEPT.items() for name in names.split()}
    | RENAMED
    | {f"{new.rpartition('.')[0]}.{old}": new for new, names in MERGED.items() for old in names.split()}
)


def new_name(name: str) -> str | None:
    """The full name that a module has now; None where it has not moved.

    >>> new_name("pisa_capc.formats.csi"), new_name("pisa_capc.training.fit"), new_name("pisa_capc.data.frames")
    ('pisa_capc.signal.formats.csi', 'pisa_capc.model.training.fitting', None)
    """
    if not name.startswith(PACKAGE):
        return None
    head, tail = name.removeprefix(PACKAGE), ""
    while head not in MOVED:
        head, dot, last = head.rpartition(".")
        tail = f"{dot}{last}{tail}"
        if not head:
            return None
    return f"{PACKAGE}{MOVED[head]}{tail}"


def warn_of(old: str, new: str, stacklevel: int = 3) -> None:
    """Say that a name is another one now, at the line that uses it."""
    warnings.warn(f"{old} is now {new}. {UNTIL}", DeprecationWarning, stacklevel)


def renamed(package: str, old: str, function: Callable[P, R]) -> Callable[P, R]:
    """A function of a package under the name it had there."""

    @wraps(function)
    def call(*given: P.args, **options: P.kwargs) -> R:
        warn_of(f"{package}.{old}", f"{package}.{function.__name__}")
        return function(*given, **options)

    return call


def by_old_name(package: str, names: Mapping[str, str], name: str) -> Any:
    """What a package's `__getattr__` gives for names, old → new, of its classes; a new one with dots is elsewhere."""
    if name not in names:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    place, _, new = names[name].rpartition(".")
    warn_of(f"{package}.{name}", f"{place or package}.{new}", stacklevel=4)
    return getattr(import_module(place or package), new)


class _OldNames:
    """Finds modules by the names they had. (To import the base classes of finders takes as long as all else here.)"""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = new_name(fullname)
        return None if new is None or find_spec(new) is None else ModuleSpec(fullname, _TheModuleItself(new))  # type: ignore[arg-type]


class _TheModuleItself:
    def __init__(self, new: str) -> None:
        self.new = new

    def create_module(self, spec: ModuleSpec) -> None:
        """As usual; `exec_module` puts the right one in its place."""

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        warn_of(old, self.new)
        above, _, name = old.rpartition(".")
        if name in getattr(sys.modules[above], "__all__", ()):
            sys.modules[above].__class__ = _Exporting
        sys.modules[old] = import_module(self.new)


class _Exporting(ModuleType):
    """A package that exports a function by the name that one of its modules had: importing the module by that name
    would otherwise put it in the function's place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self.__all__):
            super().__setattr__(name, value)


def find_old_names() -> None:
    """From now on; before other finders, which would load a module's file once more."""
    sys.meta_path.insert(0, _OldNames())
