"""A trained model, and how it lies on disk: `model.safetensors` beside `model.json`.

`model.json` holds the digest of the weights, which no later writing changes, so another run's file is recognised.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pisa_capc.core import plugins, revisions
from pisa_capc.core.errors import DataError, ModelError
from pisa_capc.data.frames import Frames, UnlabelledFrames
from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.data.protocol import PUBLISHED_RULE, SplitRecipe
from pisa_capc.data.scores import as_probability
from pisa_capc.data.store.dataset import TIME, Subcarriers
from pisa_capc.data.store.files import cannot_be_read, read_json, write_text_atomic
from pisa_capc.data.store.seal import sealed, unsealed
from pisa_capc.model.encoders import ENCODERS
from pisa_capc.model.inference.statistics import SourceStatistics
from pisa_capc.model.inference.tensors import digest, read_tensors, save_tensors
from pisa_capc.model.methods.registry import METHODS, NO_ENCODER, Method, Setup, build_method, plugins_used
from pisa_capc.signal.measurement.front_end import AnyFrames, reason_against, through

SCHEMA = 1
CHECKPOINT = "checkpoint.safetensors"  # of a training that is not finished
REQUIRED = ("variant", "target", "split_seed", "seed", "training", "dataset", "metrics")  # besides what builds it


@dataclass(frozen=True, repr=False)
class TrainedModel:
    """A source-trained model with everything needed to use it and to know where it is from.

    about: method, variant, settings, encoder, devices, geometry, samples, source, target, split, seeds, dataset
    fingerprint, training settings, versions of the code, history and metrics; the content of `model.json`.
    statistics: of the source embeddings, which some calibration methods start from.
    """

    model: nn.Module
    about: dict[str, Any]
    statistics: SourceStatistics

    def __repr__(self) -> str:
        about = self.about
        trained = f"{about['method']} with {about['encoder']}, {self.name}, trained in {', '.join(about['source'])}"
        return f"TrainedModel({trained}, {len(self.devices)} devices)"

    @property
    def name(self) -> str:
        return run_name(self.about["split_seed"], self.about["seed"])

    @property
    def recipe(self) -> SplitRecipe:
        """How the frames were split that it was trained on. Models that do not say it had the published rule."""
        about = self.about
        return SplitRecipe(tuple(about["source"]), tuple(about["target"]), about["split_seed"], **about["split"])

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self.about["devices"])

    @cached_property
    def geometry(self) -> ArrayGeometry:
        return ArrayGeometry.from_json(self.about["geometry"])

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
        save_tensors(folder / "model.safetensors", weights | source)
        about = sealed({**self.about, "sha256": digest(weights)})
        write_text_atomic(folder / "model.json", json.dumps(about, indent=1))

    def with_guard(self, thresholds: Sequence[float]) -> TrainedModel:
        """The model with the thresholds of a guard among its source statistics."""
        statistics = replace(self.statistics, guard=np.array(thresholds, dtype=np.float64))
        return replace(self, statistics=statistics, about={**self.about, "guard": guard_versions()})

    @property
    def has_guard(self) -> bool:
        """Whether it has a guard that this version of the code has learnt."""
        return self.statistics.guard is not None and self.about.get("guard") == guard_versions()

    @cached_property
    def subcarriers(self) -> Subcarriers | None:
        """Those of the channel state that it was trained on, behind its front end; None where it does not say."""
        return _subcarriers(self.about)

    def seen(self, frames: AnyFrames) -> AnyFrames:
        """The frames as the model is to see them: cut, and behind its front end."""
        return through(frames, self.subcarriers).segment(self.about["samples"])

    def check_frames(self, frames: UnlabelledFrames) -> None:
        """Refuse frames that this model cannot have been made for."""
        if frames.geometry.antennas != self.geometry.antennas:
            raise ModelError(
                f"the model was trained for {self.geometry.antennas} antennas, these frames have {frames.antennas}. "
                "Train a model for this array."
            )
        if frames.source.samples < self.about["samples"]:
            raise ModelError(
                f"the model reads {self.about['samples']} samples of each frame, "
                f"these frames hold {frames.source.samples}."
            )
        if frames.domain != (own := self.about.get("domain", TIME)):
            raise ModelError(
                f"the model was trained on samples of {own}, these frames have samples of {frames.domain}. "
                "Use frames of the same kind."
            )
        if frames.sample_rate_hz != self.about["sample_rate_hz"]:
            raise ModelError(
                f"the model was trained at {self.about['sample_rate_hz']:g} samples/s, "
                f"these frames have {frames.sample_rate_hz:g}. Use frames of the same kind."
            )
        if reason := reason_against(frames.subcarriers, self.subcarriers):
            raise ModelError(f"{reason}.")


def _subcarriers(about: Mapping[str, Any]) -> Subcarriers | None:
    return Subcarriers.from_json(about["subcarriers"]) if "subcarriers" in about else None


def run_name(split_seed: int, seed: int) -> str:
    """What a run is called, in messages and as a folder."""
    return f"split{split_seed}-seed{seed}"


def guard_versions() -> dict[str, int]:
    return {"guard": revisions.GUARD, "calibration": revisions.CALIBRATION}


def method_of(about: Mapping[str, Any]) -> Method:
    """The method a `model.json` describes."""
    setup = Setup(
        len(about["devices"]),
        about["encoder"],
        ArrayGeometry.from_json(about["geometry"]),
        tuple(range(len(about["source"]))),
        about["samples"],
        about["sample_rate_hz"],
        about.get("domain", TIME),
        None if (numbered := _subcarriers(about)) is None else numbered.first(about["samples"]),
    )
    return build_method(about["method"], setup, "full", about["settings"])


def _check_parts(about: Mapping[str, Any], path: Path) -> None:
    """Refuse a model whose encoder or method is not here; warn where a plugin is another than it was trained with."""
    used = about.get("plugins", [])
    for kind, name, known in (("encoder", about["encoder"], ENCODERS), ("method", about["method"], METHODS)):
        if name not in known and name != NO_ENCODER:
            of = f" It was trained with {plugins.listed(used)}." if used else ""
            raise ModelError(
                f"{path}: its {kind} {name!r} is not known here.{of} Give the plugin with --plugin FILE, or install it."
            )
    here = plugins_used(about["method"], about["encoder"])
    if here != used:
        warnings.warn(
            f"{path}: trained with {plugins.listed(used) or 'no plugin'}, used with {plugins.listed(here) or 'none'}: "
            "it may give other results than it was trained to.",
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
    try:
        about = unsealed(read_json(path), path)
        if about["schema"] != SCHEMA:
            raise ModelError(f"{path}: written with schema {about['schema']}; this version reads {SCHEMA}.")
        for key in REQUIRED:
            about[key]
        about.setdefault("code", dict(revisions.FIRST))
        about.setdefault("split", dict(PUBLISHED_RULE))
        _check_parts(about, path)
        model = method_of(about).build(1)
    except OSError as error:
        raise cannot_be_read(path, error, ModelError) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{path}: not a model description ({type(error).__name__}: {error}). "
            "Restore it, or remove it and train again."
        ) from error
    tensors, _ = read_tensors(weights, "Restore the file, or remove it and train again.")
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
    return TrainedModel(model.eval(), about, SourceStatistics.from_arrays(tensors, "source."))
