"""PISA-CAPC: cross-environment radio-frequency fingerprint identification.

What most programs need is here: `dir(pisa_capc)` lists it. The rest is in eight packages, in the order in which data
flows: core, data, signal, model, decide, evidence, live and cli.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pisa_capc.core import moved as _moved
from pisa_capc.core import plugins as _plugins
from pisa_capc.core import registry as _registry
from pisa_capc.core.revisions import PACKAGE as __version__

if TYPE_CHECKING:
    from pisa_capc.core.errors import PisaError as PisaError
    from pisa_capc.data.deployments import Deployment as Deployment
    from pisa_capc.data.descriptors import cfo_descriptors as cfo_descriptors
    from pisa_capc.data.frames import Frames as Frames
    from pisa_capc.data.frames import UnlabelledFrames as UnlabelledFrames
    from pisa_capc.data.frames import load as load
    from pisa_capc.data.geometry import ArrayGeometry as ArrayGeometry
    from pisa_capc.data.protocol import Evaluator as Evaluator
    from pisa_capc.data.protocol import Split as Split
    from pisa_capc.data.protocol import SplitRecipe as SplitRecipe
    from pisa_capc.data.protocol import split as split
    from pisa_capc.data.scores import Scores as Scores
    from pisa_capc.data.scores import score as score
    from pisa_capc.data.store import CaptureSpec as CaptureSpec
    from pisa_capc.data.store import Dataset as Dataset
    from pisa_capc.data.store import write_dataset as write_dataset
    from pisa_capc.decide.calibration import UCAPC as UCAPC
    from pisa_capc.decide.calibration import Calibration as Calibration
    from pisa_capc.decide.calibration import Calibrator as Calibrator
    from pisa_capc.decide.calibration import Careful as Careful
    from pisa_capc.decide.calibration import FrozenCalibration as FrozenCalibration
    from pisa_capc.decide.calibration import OnlineCalibrator as OnlineCalibrator
    from pisa_capc.decide.calibration import OpenSet as OpenSet
    from pisa_capc.decide.calibration import Peer as Peer
    from pisa_capc.decide.calibration import Transduced as Transduced
    from pisa_capc.decide.calibration import calibrator as calibrator
    from pisa_capc.decide.calibration import calibrators as calibrators
    from pisa_capc.decide.calibration import register_calibration as register_calibration
    from pisa_capc.decide.calibration.estimator import CalibratedClassifier as CalibratedClassifier
    from pisa_capc.decide.enrolment import enrol as enrol
    from pisa_capc.decide.enrolment import remove as remove
    from pisa_capc.decide.identification import identify as identify
    from pisa_capc.decide.identification import predict as predict
    from pisa_capc.decide.identification import verify as verify
    from pisa_capc.evidence.benchmark.protocols import read_protocol as read_protocol
    from pisa_capc.evidence.benchmark.results import load_results as load_results
    from pisa_capc.evidence.benchmark.run import run_protocol as run_protocol
    from pisa_capc.evidence.checks import check as check
    from pisa_capc.evidence.checks import register_check as register_check
    from pisa_capc.evidence.evaluation import deploy as deploy
    from pisa_capc.evidence.evaluation import evaluate as evaluate
    from pisa_capc.evidence.evaluation import infer as infer
    from pisa_capc.evidence.figures.run import draw_run as draw_run
    from pisa_capc.evidence.limit import limit as limit
    from pisa_capc.evidence.reports import report_of_dataset as report_of_dataset
    from pisa_capc.evidence.reports import report_of_protocol as report_of_protocol
    from pisa_capc.evidence.reports import report_of_runs as report_of_runs
    from pisa_capc.live.listen import Listener as Listener
    from pisa_capc.live.listen import open_source as open_source
    from pisa_capc.live.serve.app import create_app as create_app
    from pisa_capc.model.edge import export_model as export_model
    from pisa_capc.model.edge import on_onnx as on_onnx
    from pisa_capc.model.encoders import Encoder as Encoder
    from pisa_capc.model.encoders import build_encoder as build_encoder
    from pisa_capc.model.encoders import register_encoder as register_encoder
    from pisa_capc.model.inference import Embedding as Embedding
    from pisa_capc.model.inference import SourceStatistics as SourceStatistics
    from pisa_capc.model.inference import TrainedModel as TrainedModel
    from pisa_capc.model.inference import embed as embed
    from pisa_capc.model.inference import embed_many as embed_many
    from pisa_capc.model.inference import load_model as load_model
    from pisa_capc.model.methods import Method as Method
    from pisa_capc.model.methods import build_method as build_method
    from pisa_capc.model.methods import register_method as register_method
    from pisa_capc.model.networks import PISA as PISA
    from pisa_capc.model.networks import Single as Single
    from pisa_capc.model.training import Run as Run
    from pisa_capc.model.training import TrainingConfig as TrainingConfig
    from pisa_capc.model.training import fit as fit
    from pisa_capc.signal.detection import FoundFrame as FoundFrame
    from pisa_capc.signal.detection import detect as detect
    from pisa_capc.signal.formats import ExportOptions as ExportOptions
    from pisa_capc.signal.formats import Format as Format
    from pisa_capc.signal.formats import ImportOptions as ImportOptions
    from pisa_capc.signal.formats import export_dataset as export_dataset
    from pisa_capc.signal.formats import import_dataset as import_dataset
    from pisa_capc.signal.formats import register_format as register_format
    from pisa_capc.signal.measurement.cards import Card as Card
    from pisa_capc.signal.measurement.senders import measure as measure
    from pisa_capc.signal.recordings import open_recording as open_recording
    from pisa_capc.signal.simulation.generate import simulate as simulate
    from pisa_capc.signal.waveforms import Waveform as Waveform
    from pisa_capc.signal.waveforms import register_waveform as register_waveform

PACKAGES = ("core", "data", "signal", "model", "decide", "evidence", "live", "cli")

# Where each name is. Imported when it is first asked for, so that `pisa --help` answers at once.
_PUBLIC = {
    "core.errors": "PisaError",
    "data.geometry": "ArrayGeometry",
    "data.store": "CaptureSpec Dataset write_dataset",
    "data.frames": "Frames UnlabelledFrames load",
    "data.scores": "Scores score",
    "data.deployments": "Deployment",
    "data.descriptors": "cfo_descriptors",
    "data.protocol": "Evaluator Split SplitRecipe split",
    "signal.recordings": "open_recording",
    "signal.formats": "ExportOptions Format ImportOptions export_dataset import_dataset register_format",
    "signal.waveforms": "Waveform register_waveform",
    "signal.measurement.cards": "Card",
    "signal.measurement.senders": "measure",
    "signal.simulation.generate": "simulate",
    "signal.detection": "FoundFrame detect",
    "model.encoders": "Encoder build_encoder register_encoder",
    "model.networks": "PISA Single",
    "model.methods": "Method build_method register_method",
    "model.inference": "Embedding SourceStatistics TrainedModel embed embed_many load_model",
    "model.edge": "export_model on_onnx",
    "model.training": "Run TrainingConfig fit",
    "decide.calibration": "UCAPC Calibration Calibrator Careful FrozenCalibration OnlineCalibrator OpenSet "
    "Peer Transduced calibrator calibrators register_calibration",
    "decide.calibration.estimator": "CalibratedClassifier",
    "decide.enrolment": "enrol remove",
    "decide.identification": "identify predict verify",
    "evidence.limit": "limit",
    "evidence.checks": "check register_check",
    "evidence.evaluation": "deploy evaluate infer",
    "evidence.benchmark.protocols": "read_protocol",
    "evidence.benchmark.run": "run_protocol",
    "evidence.benchmark.results": "load_results",
    "evidence.figures.run": "draw_run",
    "evidence.reports": "report_of_dataset report_of_protocol report_of_runs",
    "live.listen": "Listener open_source",
    "live.serve.app": "create_app",
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = ["__version__", *sorted(_HOME)]


def __dir__() -> list[str]:
    return [*__all__, *PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in _moved.MOVED:
        new = f"{__name__}.{_moved.MOVED[name]}"
        _moved.warn_of(f"{__name__}.{name}", new)
        return import_module(new)
    return _moved.by_old_name(__name__, {"Detection": "FoundFrame"}, name)


_moved.find_old_names()
_registry.search_with(_plugins.load)  # last: what is imported above asks for no plugin
