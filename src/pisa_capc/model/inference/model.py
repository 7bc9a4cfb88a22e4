"""A trained model, and how it lies on disk: `model.safetensors` beside `model.json`.

`model.json` holds the digest of the weights, which no later writing changes, so another run's file is recognised.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pisa_capc.core import plugins
from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.core.moved import warn_of
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.data.protocol import SplitRecipe
from pisa_capc.data.scores import as_probability
from pisa_capc.data.store.files import cannot_be_read, read_json, write_text_atomic
from pisa_capc.data.store.seal import sealed, unsealed
from pisa_capc.data.store.signature import check_signature
from pisa_capc.model.encoders import ENCODERS
from pisa_capc.model.inference.statistics import SourceStatistics
from pisa_capc.model.inference.tensors import digest, read_tensors, save_tensors
from pisa_capc.model.methods.registry import METHODS, Method, Setup, build_method, plugins_used
from pisa_capc.model.runs import NO_ENCODER, REQUIRED, SCHEMA, ModelRun
from pisa_capc.signal.measurement.front_end import AnyFrames, reason_against, through
from pisa_capc.signal.waveforms.reference import SentReference

CHECKPOINT = "checkpoint.safetensors"  # of a training that is not finished
SENT = "reference"  # the waveform that a model keeps: (P, 2)


@dataclass(frozen=True, repr=False)
class TrainedModel:
    """A source-trained model with everything needed to use it and to know where it is from.

    run: how it was trained, and on what; the content of `model.json`.
    statistics: of the source embeddings, which some calibration methods start from.
    """

    model: nn.Module
    run: ModelRun
    statistics: SourceStatistics

    def __repr__(self) -> str:
        trained = f"{self.run.title}, {self.name}, trained in {', '.join(self.run.source)}"
        return f"TrainedModel({trained}, {len(self.devices)} devices)"

    @property
    def about(self) -> dict[str, Any]:
        """The content of `model.json` as a dictionary, which was all there was before `run`."""
        warn_of("TrainedModel.about", "TrainedModel.run, or run.to_json()")
        return self.run.to_json()

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def recipe(self) -> SplitRecipe:
        """How the frames were split that it was trained on."""
        return self.run.recipe

    @property
    def devices(self) -> tuple[str, ...]:
        return self.run.devices

    @property
    def geometry(self) -> ArrayGeometry:
        return self.run.geometry

    @property
    def reference(self) -> SentReference | None:
        """What the devices send, where that is known from a file alone."""
        return reference_of(self.model)

    def predict_proba(self, frames: UnlabelledFrames, device: str | torch.device = "auto") -> NDArray[np.float64]:
        """(N, C) probability of each device, in the order of `devices`: direct inference, without calibration."""
        from pisa_capc.model.inference.embedding import embed

        return as_probability(embed(self, frames, device).logits)

    def predict(self, frames: UnlabelledFrames, device: str | torch.device = "auto") -> NDArray[np.str_]:
        """(N,) names of the most probable devices, as `predict_proba` has them."""
        return np.array(self.devices)[self.predict_proba(frames, device).argmax(axis=1)]

    def score(self, frames: Frames, device: str | torch.device = "auto") -> float:
        """Share of labelled frames that are given to their device, as scikit-learn's classifiers have it."""
        if not isinstance(frames, Frames):
            raise DataError(
                "score: these frames have no device column, so nothing can be compared. "
                "The target of a split is scored by its evaluator: evaluator.score(model.predict_proba(target))."
            )
        if not len(frames):
            raise DataError("score: there are no frames.")
        return float(np.mean(self.predict(frames, device) == np.array(frames.devices)[frames.device]))

    def save(self, folder: str | Path) -> None:
        """Write the model; `model.json` comes last, so a folder that has it is whole."""
        folder = Path(folder)
        weights = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        source = {f"source.{k}": torch.from_numpy(v) for k, v in self.statistics.known().items()}
        sent = {} if self.reference is None else {SENT: torch.view_as_real(torch.from_numpy(self.reference.samples))}
        save_tensors(folder / "model.safetensors", weights | source | sent)
        about = sealed({**self.run.to_json(), "sha256": digest(weights)})
        write_text_atomic(folder / "model.json", json.dumps(about, indent=1))

    def seen(self, frames: AnyFrames) -> AnyFrames:
        """The frames as the model is to see them: cut, and behind its front end."""
        return through(frames, self.run.subcarriers).segment(self.run.samples)

    def check_frames(self, frames: UnlabelledFrames) -> None:
        """Refuse frames that this model cannot read."""
        if frames.geometry.antennas != self.geometry.antennas:
            raise ModelError(
                f"the model was trained for {self.geometry.antennas} antennas, these frames have {frames.antennas}. "
                "Train a model for this array."
            )
        if frames.source.samples < self.run.samples:
            raise ModelError(
                f"the model reads {self.run.samples} samples of each frame, these frames hold {frames.source.samples}."
            )
        if frames.domain != (own := self.run.domain):
            raise ModelError(
                f"the model was trained on samples of {own}, these frames have samples of {frames.domain}. "
                "Use frames of the same kind."
            )
        if frames.sample_rate_hz != self.run.sample_rate_hz:
            raise ModelError(
                f"the model was trained at {self.run.sample_rate_hz:g} samples/s, "
                f"these frames have {frames.sample_rate_hz:g}. Use frames of the same kind."
            )
        if reason := reason_against(frames.subcarriers, self.run.subcarriers):
            raise ModelError(f"{reason}.")


def reference_of(model: nn.Module) -> SentReference | None:
    sent = getattr(getattr(model, "estimator", None), "waveform", None)
    return sent if isinstance(sent, SentReference) else None


def method_of(run: ModelRun, reference: SentReference | None = None) -> Method:
    """The method of a run. reference: the waveform that its model keeps."""
    subcarriers = None if run.subcarriers is None else run.subcarriers.first(run.samples)
    environments = tuple(range(len(run.source)))
    frames = run.samples, run.sample_rate_hz, run.domain, subcarriers
    setup = Setup(len(run.devices), run.encoder, run.geometry, environments, *frames, reference=reference)
    return build_method(run.method, setup, "full", run.settings)


def _check_parts(run: ModelRun, path: Path) -> None:
    """Refuse a model whose encoder or method is unknown; warn where a plugin differs from that of the training."""
    used = list(run.plugins)
    for kind, name, known in (("encoder", run.encoder, ENCODERS), ("method", run.method, METHODS)):
        if name not in known and name != NO_ENCODER:
            of = f" It was trained with {plugins.listed(used)}." if used else ""
            raise ModelError(
                f"{path}: its {kind} {name!r} is not known here.{of} Give the plugin with --plugin FILE, or install it."
            )
    here = plugins_used(run.method, run.encoder)
    if here != used:
        warnings.warn(
            f"{path}: trained with {plugins.listed(used) or 'no plugin'}, used with {plugins.listed(here) or 'none'}: "
            "its results may differ from those in training.",
            stacklevel=3,
        )


def runs_inside(folder: Path) -> list[Path]:
    """The folders in `folder` that hold a model: where several runs are trained together, each has its own.

    One that may not be looked into is an error: a mean over the others would not be that of all.
    """
    try:
        return sorted(path for path in folder.iterdir() if (path / "model.json").is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise cannot_be_read(error.filename, error, ModelError) from error


def load_model(folder: str | Path) -> TrainedModel:
    """Read a model written by `pisa train`; refuse what does not fit, saying why.

    >>> trained = load_model("run")          # doctest: +SKIP
    >>> trained.devices                      # doctest: +SKIP
    ('D01', 'D02', …)
    """
    folder = Path(folder)
    path, weights = folder / "model.json", folder / "model.safetensors"
    if not path.is_file() or not weights.is_file():
        inside = [run.name for run in runs_inside(folder)]
        hint = f" It holds the runs {', '.join(inside)}: name one of them." if inside else ""
        unfinished = (
            " It holds an unfinished training: run `pisa train` again." if (folder / CHECKPOINT).is_file() else ""
        )
        raise ModelError(
            f"{folder}: holds no model.json and model.safetensors as `pisa train` writes.{hint}{unfinished}"
        )
    check_signature(folder)
    try:
        about = unsealed(read_json(path), path)
        if about["schema"] != SCHEMA:
            raise ModelError(f"{path}: written with schema {about['schema']}; this version reads {SCHEMA}.")
        for key in REQUIRED:
            about[key]
        run = ModelRun.from_json(about)
        _check_parts(run, path)
        tensors, _ = read_tensors(weights, "Restore the file, or remove it and train again.")
        sent = tensors.get(SENT)
        reference = None if sent is None else SentReference(_as_samples(sent), run.sample_rate_hz)
        model = method_of(run, reference).build(1)
    except OSError as error:
        raise cannot_be_read(path, error, ModelError) from error
    except (ConfigError, DataError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{path}: not a model description ({type(error).__name__}: {error}). "
            "Restore it, or remove it and train again."
        ) from error
    expected = {f"model.{k}": tuple(v.shape) for k, v in model.state_dict().items()}
    found = {k: tuple(v.shape) for k, v in tensors.items() if k.startswith("model.")}
    if expected != found:
        odd = sorted(set(expected.items()) ^ set(found.items()))[0][0]
        raise ModelError(
            f"{weights}: does not fit {path.name}: "
            f"{odd} is {found.get(odd, 'absent')}, expected {expected.get(odd, 'none')}."
        )
    if about.pop("sha256", None) not in (None, digest({k: tensors[k] for k in expected})):
        raise ModelError(
            f"{weights}: damaged, or of another training: its weights are not those that {path.name} was written with. "
            "Restore both files, or remove them and train again."
        )
    model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k in expected})
    statistics = SourceStatistics.from_arrays(tensors, "source.")
    return TrainedModel(model.eval(), run, with_backend(statistics, model))


def _as_samples(sent: torch.Tensor) -> NDArray[np.complex64]:
    if sent.dtype != torch.float32 or sent.ndim != 2 or sent.shape[1] != 2:
        raise DataError(f"a reference {tuple(sent.shape)} of {sent.dtype}; expected (samples, 2) of float32")
    return np.asarray(torch.view_as_complex(sent.contiguous()).numpy())


def with_backend(statistics: SourceStatistics, model: nn.Module) -> SourceStatistics:
    """The statistics with the Gaussian back-end of a model that has one."""
    gaussians = getattr(model, "gaussians", None)
    return statistics if gaussians is None else replace(statistics, **gaussians())
