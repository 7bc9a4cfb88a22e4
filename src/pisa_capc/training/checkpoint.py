"""Models on disk: `model.safetensors` beside `model.json`; and the checkpoint a killed training goes on from.

A file of tensors holds the digest of all of them, so damage is recognised however many files a killed writer has
replaced. `model.json` holds that of the weights, which no later writing changes, so another run's file is recognised.
Files without a digest are those of earlier versions, and are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from pisa_capc import revisions
from pisa_capc.calibration.guard import Guard
from pisa_capc.errors import ModelError
from pisa_capc.frames import UnlabelledFrames
from pisa_capc.geometry import ArrayGeometry
from pisa_capc.methods.registry import Method, Setup, build_method
from pisa_capc.store.files import atomic, write_text_atomic
from pisa_capc.training.runs import run_name

SCHEMA = 1
NO_METADATA: Mapping[str, str] = MappingProxyType({})
REQUIRED = ("variant", "target", "split_seed", "seed", "training", "dataset", "metrics")  # besides what builds it


@dataclass(frozen=True)
class TrainedModel:
    """A source-trained model with everything needed to use it and to know where it is from.

    about: method, variant, settings, encoder, devices, geometry, samples, source, target, seeds, dataset fingerprint,
    training settings, versions of the code, history and metrics; the content of `model.json`.
    source: statistics of the source embeddings, which some calibration methods start from.
    """

    model: nn.Module
    about: dict[str, Any]
    source: dict[str, Tensor]

    @property
    def name(self) -> str:
        return run_name(self.about["split_seed"], self.about["seed"])

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self.about["devices"])

    @property
    def geometry(self) -> ArrayGeometry:
        return ArrayGeometry.from_json(self.about["geometry"])

    def save(self, folder: str | Path) -> None:
        """Write the model; `model.json` comes last, so a folder that has it is whole."""
        folder = Path(folder)
        weights = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        source = {f"source.{k}": v for k, v in self.source.items()}
        save_tensors(folder / "model.safetensors", weights | source)
        write_text_atomic(folder / "model.json", json.dumps({**self.about, "sha256": digest(weights)}, indent=1))

    def with_guard(self, guard: Guard | None) -> TrainedModel:
        """The model with the thresholds of a guard among its source statistics; without one, as it is."""
        if guard is None:
            return self
        source = {**self.source, "guard": torch.tensor(guard.thresholds, dtype=torch.float64)}
        return replace(self, source=source, about={**self.about, "guard": guard_versions()})

    @property
    def has_guard(self) -> bool:
        """Whether it has a guard that this version of the code has learnt."""
        return "guard" in self.source and self.about.get("guard") == guard_versions()

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
        if frames.sample_rate_hz != self.about["sample_rate_hz"]:
            raise ModelError(
                f"the model was trained at {self.about['sample_rate_hz']:g} samples/s, "
                f"these frames have {frames.sample_rate_hz:g}. Use frames of the same kind."
            )


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
    )
    return build_method(about["method"], setup, "full", about["settings"])


def runs_inside(folder: Path) -> list[Path]:
    """The folders in `folder` that hold a model: where several runs are trained together, each has its own."""
    return sorted(path.parent for path in folder.glob("*/model.json"))


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
        unfinished = " It holds an unfinished training: run `pisa train` again." if has_checkpoint(folder) else ""
        raise ModelError(
            f"{folder}: holds no model.json and model.safetensors as `pisa train` writes.{hint}{unfinished}"
        )
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["schema"] != SCHEMA:
            raise ModelError(f"{path}: written with schema {about['schema']}; this version reads {SCHEMA}.")
        for key in REQUIRED:
            about[key]
        about.setdefault("code", dict(revisions.FIRST))
        model = method_of(about).build(1)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
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
    source = {k.removeprefix("source."): v for k, v in tensors.items() if k.startswith("source.")}
    return TrainedModel(model.eval(), about, source)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = NO_METADATA) -> None:
    """Write tensors and their digest so that the file is either the old one or the whole new one."""
    content = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    with atomic(path) as temporary:  # as bytes: what save_file writes only its owner can read
        temporary.write_bytes(save(content, {**metadata, "sha256": digest(content, metadata)}))


def read_tensors(path: Path, advice: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata that `save_tensors` wrote; `advice` is what to do about a damaged file."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from error
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path}: damaged ({error}). {advice}") from error
    if metadata.pop("sha256", None) not in (None, digest(tensors, metadata)):
        raise ModelError(f"{path}: damaged (it does not have the SHA-256 that it was written with). {advice}")
    return tensors, metadata


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = NO_METADATA) -> str:
    """SHA-256 of the names, types, shapes and values of tensors, and of what stands beside them."""
    found = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _checkpoint(folder: Path) -> Path:
    return folder / "checkpoint.safetensors"


def has_checkpoint(folder: Path) -> bool:
    """Whether an unfinished training can go on here."""
    return _checkpoint(folder).is_file()


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
    """Keep the state after an epoch, in one file that is replaced whole."""
    save_tensors(_checkpoint(folder), tensors, {"progress": json.dumps(progress)})


def load_checkpoint(folder: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The last checkpoint, or None where there is none."""
    path, advice = _checkpoint(folder), "Remove it to train from the start."
    if not has_checkpoint(folder):
        return None
    tensors, metadata = read_tensors(path, advice)
    try:
        progress = json.loads(metadata["progress"])
    except (ValueError, KeyError) as error:
        raise ModelError(f"{path}: damaged ({error}). {advice}") from error
    return {name: value.to(device) for name, value in tensors.items()}, progress


def remove_checkpoint(folder: Path) -> None:
    _checkpoint(folder).unlink(missing_ok=True)
