"""Embeddings of trained models, so that calibrations and scores of strangers can be compared without training again.

    python -m studies.embeddings --waveform wifi --encoder cnn --source E2,E3 --device cuda --out work/embeddings
    python -m studies.embeddings --waveform lora --devices 40 --enrolled 20 --scale 0.5 --device cuda

Of a simulated set the first devices are enrolled, and a model of each split and seed is trained on them in the source.
One file for each model: embeddings of up to `--frames` frames of every device, capture and environment, enrolled or
not, with their labels and CFO, and what the model says of its source. In the source only validation frames of those
enrolled are there. With `--parts` also what each antenna alone gives, and each path of PISA before one is suppressed by
the other. A file that is there is not made again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml
from benchmarks.report import begin
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from pisa_capc import Frames, UnlabelledFrames, load, simulate
from pisa_capc.cli.output import listed_numbers
from pisa_capc.core.errors import DataError
from pisa_capc.core.progress import console
from pisa_capc.data.protocol import split
from pisa_capc.data.store.files import atomic, write_text_atomic
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.inference.statistics import PREFIX
from pisa_capc.model.training import Run, fit
from pisa_capc.model.training.bank import union
from studies.leave_one_out import evenly


def kept_in(folder: Path, pattern: str = "*.npz") -> list[Path]:
    """The files that this study has written, for those that read them; a record of none is no record."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise DataError(f"{folder} holds no embeddings {pattern}; make them with `python -m studies.embeddings`.")
    return found


def dataset(options: argparse.Namespace) -> Path:
    """The simulated set, made first where it is not there."""
    folder = options.data / f"{options.waveform}-{options.devices}-{options.scale:g}"
    scene = folder.parent / f"{folder.name}.yaml"
    scene.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(scene, yaml.safe_dump({"devices": options.devices, "absent": []}))
    simulate(options.waveform, folder, seed=2026, scale=options.scale, scene=scene)
    return folder


def seen(frames: Frames, run: Run, source: tuple[str, ...], most: int) -> Frames:
    """The frames that the model was not trained on, thinned out."""
    home = np.isin([frames.environments[i] for i in frames.environment], source)
    new = frames.select(~home | (frames.device >= len(run.split.train.devices)))
    parts = [part.select(evenly(part, most)) for part in (new, run.split.validation)]
    return union([parts[0], frames.select(np.isin(frames.rows, parts[1].rows))])


def parts_of(model: TrainedModel, frames: UnlabelledFrames, device: str) -> dict[str, NDArray[np.float16]]:
    """alone (N, A, D): embeddings of each antenna without the others. identity, context (N, D): of the two paths."""
    every = range(frames.antennas)
    alone = [embed(model, frames, device, missing=[b for b in every if b != a]).embedding for a in every]
    return {"alone": np.stack(alone, axis=1).astype(np.float16), **paths_of(model, frames, device)}


def paths_of(model: TrainedModel, frames: UnlabelledFrames, device: str) -> dict[str, NDArray[np.float16]]:
    found: dict[str, list[NDArray[np.float16]]] = {"identity": [], "context": []}

    def keep(name: str) -> RemovableHandle:
        def taken(module: nn.Module, given: object, output: Tensor) -> None:
            found[name].append(output[0].half().cpu().numpy())

        projection: nn.Module = getattr(model.model, f"project_{name}")
        return projection.register_forward_hook(taken)

    hooks = [keep(name) for name in found]
    embed(model, frames, device)
    for hook in hooks:
        hook.remove()
    return {name: np.concatenate(batches) for name, batches in found.items()}


def write(
    path: Path, model: TrainedModel, frames: Frames, z: np.ndarray, cfo_hz: np.ndarray, **parts: np.ndarray
) -> None:
    """z (N, D) in half precision: logits follow from it and the classifier. cfo_hz (N,): mean over antennas."""
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            z=z.astype(np.float16),
            cfo_hz=cfo_hz,
            **parts,  # type: ignore[arg-type]
            device=frames.device.astype(np.int16),
            environment=frames.environment.astype(np.int16),
            capture=frames.capture.astype(np.int16),
            frame=frames.frame.astype(np.int32),
            environments=np.array(frames.environments),
            validation_f1=model.run.metrics.validation_f1,
            **{PREFIX + name: value for name, value in model.statistics.known().items()},  # type: ignore[arg-type]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waveform", choices=("wifi", "lora"), default="wifi")
    parser.add_argument("--encoder", default="cnn,mscnn,resnet,tcn,cvcnn,cldnn,transformer", help="one or several")
    parser.add_argument("--method", default="pisa")
    parser.add_argument("--source", action="append", help="environments, as E2,E3; may come again")
    parser.add_argument("--devices", type=int, default=10, help="of the set (10)")
    parser.add_argument("--enrolled", type=int, help="that are trained on, the first of them (all)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1.0)")
    parser.add_argument("--frames", type=int, default=128, help="kept of a device, capture and environment (128)")
    parser.add_argument("--splits", default="2026", help="seeds of what is validation, as 2026,2027 (2026)")
    parser.add_argument("--seeds", default="2026,2027,2028", help="of training, for each split (2026,2027,2028)")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--parts", action="store_true", help="also each antenna alone, and each path of PISA")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path, default=Path("work/embeddings-data"))
    parser.add_argument("--out", type=Path, default=Path("work/embeddings"))
    options = parser.parse_args()
    frames = load(dataset(options))
    options.out.mkdir(parents=True, exist_ok=True)
    enrolled = options.enrolled or options.devices
    splits, seeds = (listed_numbers(f"--{name}", getattr(options, name)) for name in ("splits", "seeds"))
    known = replace(frames.select(frames.device < enrolled), devices=frames.devices[:enrolled])
    for encoder in options.encoder.split(","):
        for source in [tuple(given.split(",")) for given in options.source or ["E2,E3"]]:
            name = f"{options.waveform}-{options.devices}-{enrolled}-{options.method}-{encoder}-{'+'.join(source)}"
            target = next(e for e in frames.environments if e not in source)
            found = [split(known, source, target, one) for one in splits]
            runs = [Run(part, seed) for part in found for seed in seeds]
            path = {run.name: options.out / f"{name}-{run.split_seed}.{run.seed}.npz" for run in runs}
            runs = [run for run in runs if not path[run.name].is_file()]
            if not runs:
                continue
            models = fit(
                runs, method=options.method, encoder=encoder, epochs=options.epochs, device=options.device, show=False
            )
            for run, model in zip(runs, models, strict=True):
                kept = seen(frames, run, source, options.frames)
                own = embed(model, kept.unlabelled(), options.device)
                assert own.cfo_hz is not None  # simulated frames have it
                parts = parts_of(model, kept.unlabelled(), options.device) if options.parts else {}
                write(path[run.name], model, kept, own.embedding, own.cfo_hz, **parts)
            console.print(name, [round(m.run.metrics.validation_f1, 3) for m in models], soft_wrap=True)


if __name__ == "__main__":
    begin(main)
