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

# Old → new, below pisa_capc; what is in a package has moved with it.
MOVED = {
    "errors": "core.errors",
    "quantities": "core.quantities",
    "randomness": "core.randomness",
    "revisions": "core.revisions",
    "registry": "core.registry",
    "config": "core.config",
    "plugins": "core.plugins",
    "engines": "core.engines",
    "threads": "core.threads",
    "progress": "core.progress",
    "provenance": "core.provenance",
    "samples": "data.samples",
    "sources": "data.sources",
    "geometry": "data.geometry",
    "store": "data.store",
    "frames": "data.frames",
    "chance": "data.chance",
    "scores": "data.scores",
    "openset_scores": "data.scores",
    "deployments": "data.deployments",
    "descriptors": "data.descriptors",
    "protocol": "data.protocol",
    "recordings": "signal.recordings",
    "recordings.annotating": "signal.recordings.sigmf",
    "recordings.files": "signal.recordings.base",
    "formats": "signal.formats",
    "waveforms": "signal.waveforms",
    "phy": "signal.phy",
    "phy.lora.receive": "signal.phy.lora.reception",
    "phy.lora.transmit": "signal.phy.lora.transmission",
    "phy.wifi.receive": "signal.phy.wifi.reception",
    "phy.wifi.transmit": "signal.phy.wifi.transmission",
    "simulate": "signal.simulation",
    "detect": "signal.detection",
    "detect.history": "signal.detection.finders",
    "detect.labels": "signal.detection.dataset",
    "detect.notes": "signal.detection.finding",
    "stacked": "model.stacked",
    "stacked.elsewhere": "model.stacked.compilers",
    "encoders": "model.encoders",
    "model.aggregation": "model.networks.modules",
    "model.dynamics": "model.networks.modules",
    "model.pisa": "model.networks.pisa",
    "model.single": "model.networks.single",
    "model.streams": "model.networks.streams",
    "model.suppression": "model.networks.modules",
    "model.topology": "model.networks.topology",
    "objective": "model.objective",
    "methods": "model.methods",
    "inference": "model.inference",
    "inference.embed": "model.inference.embedding",
    "inference.memory": "core.process",
    "edge": "model.edge",
    "training": "model.training",
    "model.training.runs": "model.runs",
    "training.fit": "model.training.fitting",
    "calibration": "decide.calibration",
    "enrolment": "decide.enrolment",
    "identify": "decide.identification",
    "identify.together": "decide.identification.tracks",
    "identify.observe": "decide.identification.observation",
    "identify.verify": "decide.identification.verification",
    "limit": "evidence.limit",
    "check": "evidence.checks",
    "evaluation": "evidence.evaluation",
    "evaluation.deploy": "evidence.evaluation.deployment",
    "evaluation.infer": "evidence.evaluation.inference",
    "benchmark": "evidence.benchmark",
    "figures": "evidence.figures",
    "reports": "evidence.reports",
    "listen": "live.listen",
    "listen.meter": "live.listen.watch",
    "listen.apart": "live.listen.finder_process",
    "listen.ears": "live.listen.finder",
    "listen.mind": "live.listen.verifier",
    "listen.tags": "live.listen.sources.zeromq",
    "listen.zeromq": "live.listen.sources.zeromq",
    "serve": "live.serve",
    "serve.desk": "live.serve.hub",
    "serve.ear": "live.serve.hub",
    "serve.sigmf": "live.serve.downloads",
    "live.serve.limits": "live.serve.connections",
    "live.serve.enrolling": "live.serve.keepsakes",
    "data.openset_scores": "data.scores",
    "evidence.benchmark.checks": "evidence.benchmark.records",
    "evidence.benchmark.estimate": "evidence.benchmark.run",
    "evidence.figures.bars": "evidence.figures.protocol",
    "evidence.figures.methods": "evidence.figures.protocol",
    "evidence.figures.scatter": "evidence.figures.protocol",
    "evidence.figures.deployments": "evidence.figures.protocol",
    "evidence.figures.evidence": "evidence.figures.recording",
    "evidence.reports.dataset": "evidence.reports.run",
    "model.encoders.cnn": "model.encoders.convolutional",
    "model.encoders.mscnn": "model.encoders.convolutional",
    "model.encoders.resnet": "model.encoders.convolutional",
    "model.encoders.tcn": "model.encoders.convolutional",
    "model.encoders.cvcnn": "model.encoders.convolutional",
    "model.encoders.cldnn": "model.encoders.convolutional",
    "evidence.checks.copies": "evidence.checks.layout",
    "evidence.checks.frequency": "evidence.checks.room",
    "evidence.checks.levels": "evidence.checks.antennas",
    "model.methods.domains": "model.methods.across",
    "model.methods.adversarial": "model.methods.across",
    "model.methods.mmd": "model.methods.alignment",
    "model.methods.gad": "model.methods.alignment",
    "model.methods.groupdro": "model.methods.risks",
    "model.methods.mixup": "model.methods.mixing",
    "model.methods.sigmix": "model.methods.mixing",
    "model.methods.rffcc": "model.methods.disentangled",
    "model.methods.riei": "model.methods.disentangled",
    "model.methods.eada": "model.methods.equalised",
    "model.objective.views": "model.objective",
    "model.inference.absent": "model.inference.inputs",
    "model.inference.ahead": "model.inference.inputs",
    "model.training.checkpoint": "model.training.keep",
    "evidence.checks.sample": "evidence.checks.measure",
    "evidence.figures.captures": "evidence.figures.confusion",
    "evidence.reports.scores": "evidence.reports.page",
    "evidence.evaluation.later": "evidence.evaluation.runs",
    "evidence.benchmark.deployed": "evidence.benchmark.results",
    "model.methods.coral": "model.methods.alignment",
    "model.methods.dann": "model.methods.alignment",
    "model.methods.irm": "model.methods.risks",
    "model.methods.twoparts": "model.methods.disentangled",
    "model.networks.aggregation": "model.networks.modules",
    "model.networks.dynamics": "model.networks.modules",
    "model.edge.session": "model.edge.engine",
    "model.networks.suppression": "model.networks.modules",
    "data.store.summary": "data.store.native",
    "signal.simulation.interpolation": "signal.simulation.numerics",
    "signal.simulation.phasor": "signal.simulation.numerics",
    "signal.simulation.cfo": "signal.simulation.receiver",
    "model.encoders.registry": "model.encoders.base",
    "model.objective.losses": "model.objective",
    "objective.losses": "model.objective",
    "evidence.figures.identified": "evidence.figures.recording",
    "evidence.figures.check": "evidence.figures.dataset",
    "evidence.checks.run": "evidence.checks.base",
}


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
