"""Commands of the model: encoders, methods, train, embed."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli import app
from pisa_capc.cli.edge import TORCH, Engine, load_run, place
from pisa_capc.cli.options import AsJson, Force, HeldOut
from pisa_capc.cli.output import listed, listed_numbers, print_table, say, warnings_as_notes
from pisa_capc.cli.recordings import ReferenceFile
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.data.protocol import Split
    from pisa_capc.model.inference import TrainedModel

AUTO = "auto"
Data = typer.Argument(help="A dataset made by `pisa simulate` or `pisa import`.", show_default=False)
Device = typer.Option("auto", help="auto, cpu or cuda; auto is the GPU where there is one.")
MissingAntenna = typer.Option(
    [],
    "--missing-antenna",
    help="Number, from 0, of an antenna to leave out of every frame; may be given again. One that is all zero in a "
    "frame is left out of it anyway.",
    show_default=False,
)

Anyway = typer.Option(
    False, "--anyway", help="Go on in spite of a doubt: frames of another array, or with or without CFO."
)


@app.command()
def encoders(as_json: bool = AsJson) -> None:
    """List the temporal encoders and the sizes of the models they make."""
    from pisa_capc.model.encoders import build_encoder, encoder_names
    from pisa_capc.model.networks import PISA

    branch = {name: sum(p.numel() for p in build_encoder(name).parameters()) for name in encoder_names()}
    whole = {name: sum(p.numel() for p in PISA(10, name).parameters()) for name in encoder_names()}
    if as_json:
        print(json.dumps(whole, indent=1))
        return
    rows = [[name, f"{branch[name]:,}", f"{whole[name]:,}"] for name in whole]
    print_table("Encoders", ["encoder", "parameters of one branch", "of PISA with ten devices"], rows)


@app.command()
def methods(as_json: bool = AsJson) -> None:
    """List the training methods: what each is, where it is from and what it needs."""
    from pisa_capc.model.methods import method_list

    found = method_list()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    rows = [[m["name"], m["summary"], m["citation"], str(m["source_environments"]), *m["needs"]] for m in found]
    headings = ["method", "what it is", "from", "source environments, at least", "needs besides"]
    print_table("Methods", headings, rows, left=headings)
    print(
        "`pisa train` takes closed-form where frames begin with a known preamble (pisa-equalised if an\n"
        "encoder or epochs are given) or are channel state, else pisa, and prints which. --method names\n"
        "another."
    )


@app.command()
def train(
    dataset: Path = Data,
    source: str = typer.Option(help="Source environments, as E2,E3.", show_default=False),
    target: str = typer.Option(help="Target environments, as E1; never read in training.", show_default=False),
    out: Path = typer.Option(
        help="Where to write: the folder of the model; several runs go into subfolders splitS-seedT.",
        show_default=False,
    ),
    method: str = typer.Option(
        AUTO,
        help="Training method, as `pisa methods` lists them. auto: where frames begin with a known preamble, "
        "closed-form, or pisa-equalised if an encoder, a variant, epochs or batch are named; closed-form for channel "
        "state, unless one of these is; else pisa, the published one.",
    ),
    variant: str = typer.Option("full", help="Row of the component ablation, as topology-only."),
    encoder: str | None = typer.Option(
        None, help="Temporal encoder, as `pisa encoders` lists them; transformer unless named.", show_default=False
    ),
    split_seed: str = typer.Option("2026", help="Seeds of the split, as 2026,2027,2028."),
    held_out: str = HeldOut,
    seed: str = typer.Option("2026", help="Seed: of the training, as 2026,2027,2028; every pair of seeds is a run."),
    epochs: int | None = typer.Option(None, help="Epochs; 30 as in the paper.", show_default=False),
    batch: int | None = typer.Option(
        None, help="Frames computed at a time; in training those of a step, 128 as in the paper.", show_default=False
    ),
    samples: int | None = typer.Option(
        None,
        help="Samples of a frame; of what the model sees. 320 as in the paper, or the whole of shorter frames.",
        show_default=False,
    ),
    settings: list[str] = typer.Option(
        [],
        "--set",
        help="A setting, key=value: any other, as model.beta=0.5 or training.learning_rate=3e-4.",
        show_default=False,
    ),
    device: str = Device,
    precision: str = typer.Option(
        "auto", help="float32 or bfloat16, of the training: float32 on a CPU; auto is bfloat16 on a GPU."
    ),
    threads: int | None = typer.Option(
        None,
        min=1,
        help="Threads of a CPU, which the result depends on: PyTorch's number, or that of a training that goes on.",
        show_default=False,
    ),
    front: str = typer.Option(
        "auto",
        help="What is taken off channel state first: antenna (gain, phase and slope of each antenna), common (one "
        "phase and slope of all antennas) or none. auto is antenna, or what the import took off. The model keeps it.",
    ),
    reference: Path | None = ReferenceFile,
    tensorboard: Path | None = typer.Option(None, help="Folder for TensorBoard logs.", show_default=False),
    as_json: bool = AsJson,
) -> None:
    """Train on the source environments; what was stopped goes on, what was finished is kept.

    Of each run the epoch with the best Macro-F1 on held-out source frames is kept, as `model.safetensors` and
    `model.json`. On a GPU all runs are trained together.
    """
    from pisa_capc.core.config import from_assignments, from_mapping
    from pisa_capc.data.frames import load
    from pisa_capc.data.protocol import split
    from pisa_capc.data.store.native import fingerprint
    from pisa_capc.model.inference.devices import choose_device, choose_precision
    from pisa_capc.model.methods import METHODS, check_names
    from pisa_capc.model.methods.recommend import CLOSED, PUBLISHED
    from pisa_capc.model.training import Run, TrainingConfig, fit
    from pisa_capc.signal.formats.cuts import open_reference

    network = any(asked is not None for asked in (encoder, epochs, batch)) or variant != "full"
    encoder = encoder or "transformer"
    check_names(PUBLISHED if method == AUTO else method, encoder, variant)
    chosen = from_assignments(settings)
    given = {"epochs": epochs, "batch": batch, "samples": samples}
    if not isinstance(asked := chosen.pop("training", {}), dict):
        raise ConfigError(f"--set training={asked}: name one of its settings, as training.learning_rate=3e-4.")
    if misplaced := [key for key in chosen if key in {field.name for field in fields(TrainingConfig)}]:
        raise ConfigError(f"--set {misplaced[0]}: is a setting of the training. Write training.{misplaced[0]}=…")
    training = asked | {name: value for name, value in given.items() if value is not None}
    how = from_mapping(TrainingConfig, training, "training")
    choose_precision(precision, choose_device(device))  # what is wrong is said before frames are read
    seeds = listed_numbers("--seed", seed)
    frames = load(dataset)
    runs = []
    for split_number in listed_numbers("--split-seed", split_seed):
        parts = split(frames, listed(source), listed(target), split_number, held_out=held_out)
        runs += [Run(parts, number) for number in seeds]
    first = runs[0].split
    sent = None if reference is None else open_reference(reference, frames.sample_rate_hz)
    if sent is not None:
        if method not in (AUTO, CLOSED) or network:
            raise ConfigError(f"--reference {reference}: {CLOSED} measures against it. Leave --method out.")
        method = CLOSED
    if method == AUTO:
        method = _recommended(first, encoder, variant, how.samples, network)
    folders = [out / run.name if len(runs) > 1 else out for run in runs]
    done = sum((folder / "model.json").is_file() for folder in folders)
    notes.print(
        f"{source} → {target}: {len(first.train):,} training and {len(first.validation):,} validation frames, "
        f"{len(runs)} run{'s' * (len(runs) > 1)} of {method}{f' with {encoder}' * METHODS[method].in_epochs}.",
        highlight=False,
        soft_wrap=True,
    )
    with warnings_as_notes():
        models = fit(
            runs,
            method=method,
            encoder=encoder,
            variant=variant,
            settings=chosen,
            training=how,
            device=device,
            precision=precision,
            out=out,
            dataset=fingerprint(dataset),
            threads=threads,
            tensorboard=tensorboard,
            front=front,
            reference=sent,
        )
    if done:
        notes.print(f"{done} of {len(runs)} runs had been trained before and were kept.", highlight=False)
    _print_trained(list(zip(folders, models, strict=True)), as_json)
    for trained in models:
        _say_if_at_chance(trained)


def _recommended(part: Split, encoder: str, variant: str, samples: int, network: bool) -> str:
    """The method that `auto` stands for, after saying why."""
    from pisa_capc.model.methods import METHODS
    from pisa_capc.model.methods.recommend import PUBLISHED, recommended
    from pisa_capc.model.training.fitting import setup_for

    method, why = recommended(part.train, setup_for(part, encoder, samples), network)
    if variant not in METHODS[method].variants:
        method, why = PUBLISHED, f"its variants are those of the ablation, {variant} among them"
    other = "" if method == PUBLISHED else f" The published method is --method {PUBLISHED}."
    notes.print(f"Method {method}: {why}.{other}", highlight=False, soft_wrap=True)
    return method


def _say_if_at_chance(trained: TrainedModel) -> None:
    """Say it of a model that has not learnt its source."""
    from pisa_capc.data.chance import AFTER_TRAINING, at_chance

    if (decided := trained.statistics.confusion) is None:
        return
    if found := at_chance(f"{trained.name}: the source validation", decided.T):
        notes.print(f"{found} {AFTER_TRAINING}", style="yellow", highlight=False, soft_wrap=True)


@app.command()
def embed(
    run: Path = typer.Argument(help="A run that `pisa train` wrote.", show_default=False),
    dataset: Path = Data,
    environment: str = typer.Option(help="Environment: those to embed, as E1.", show_default=False),
    out: Path = typer.Option(help="Where to write: a file, as scores.npz.", show_default=False),
    device: str = Device,
    engine: str = Engine,
    precision: str = typer.Option(
        "float32",
        help="float32 or bfloat16, of products: bfloat16 is quicker where the device has it; frames between two "
        "devices may change sides.",
    ),
    batch: int = typer.Option(512, min=1, help="Frames computed at a time."),
    missing_antenna: list[int] = MissingAntenna,
    all_frames: bool = typer.Option(False, "--all-frames", help="Take every frame, also of the run's target."),
    force: bool = Force,
    as_json: bool = AsJson,
    other_dataset: bool = typer.Option(
        False,
        "--other-dataset",
        help="Allow a dataset the run was not trained on, with all its frames; always, where it has no labels.",
    ),
    anyway: bool = Anyway,
) -> None:
    """Write embeddings and logits of a trained model, without labels, for `pisa calibrate`.

    Of the run's target environment, the frames are exactly those that `pisa evaluate` scores: 16 of each recording (a
    quarter where it has fewer than 64) are left out, the few-shot subset of the released benchmark. Of any other
    environment they are all frames.

    The arrays are embedding, logits, capture (as E1/L1), environment and frame, one row per frame, cfo_hz where the
    dataset has it (mean over the antennas that are there), and source_…: statistics of the source that some
    calibrations use.
    """
    from pisa_capc.core.progress import progress
    from pisa_capc.data.frames import load
    from pisa_capc.data.store.dataset import UNLABELLED
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.data.store.native import fingerprint
    from pisa_capc.evidence.evaluation import check_dataset, doubts, unseen_frames
    from pisa_capc.model.inference import embed as compute

    refuse_existing(out, force)
    where = place(device, engine)
    if engine != TORCH and precision != "float32":
        raise ConfigError(f"--precision {precision}: --engine {engine} computes in float32. Leave one of them out.")
    trained, frames, environments = load_run(run, engine), load(dataset), listed(environment)
    other_dataset = other_dataset or frames.devices == (UNLABELLED,)
    if other_dataset:
        trained.check_frames(frames)
        confirm(doubts(trained, frames), anyway)
    else:
        check_dataset(trained, frames, fingerprint(dataset), run, dataset)
    if other_dataset or all_frames:
        chosen = frames.where(environment=environments).unlabelled()
    else:
        chosen = unseen_frames(trained, frames, environments)
    with progress("embed", len(chosen)) as bar:
        scores = compute(trained, chosen, where, batch, bar.advance, missing_antenna, precision=precision)
    scores.save(out)
    if as_json:
        print(json.dumps({"frames": len(chosen), "environments": environments, "out": str(out)}))
        return
    there = len(frames.where(environment=environments))
    left_out = f", {there - len(chosen):,} left out as few-shot frames of the target" if len(chosen) < there else ""
    say(f"{out}: {len(chosen):,} frames of {', '.join(environments)}{left_out}")


def confirm(why: list[str], anyway: bool) -> None:
    """Refuse frames that a model may be wrong about for the reasons given, unless it was asked for anyway."""
    if why and not anyway:
        raise ConfigError(f"these frames are not as the model knows them: {'; '.join(why)}. Give --anyway to go on.")
    if why:
        notes.print(f"note: {'; '.join(why)}.", style="yellow", highlight=False, soft_wrap=True)


def _print_trained(models: list[tuple[Path, TrainedModel]], as_json: bool) -> None:
    found = [
        {
            "run": trained.name,
            "best_epoch": trained.run.metrics.best_epoch,
            "validation_f1": trained.run.metrics.validation_f1,
            "seconds": trained.run.seconds,
            "folder": str(folder),
        }
        for folder, trained in models
    ]
    if as_json:
        print(json.dumps(found, indent=1))
        return
    rows = []
    for folder, trained in models:
        run, metrics = trained.run, trained.run.metrics
        epoch = "–" if run.is_solved else str(metrics.best_epoch)
        rows.append([run.name, epoch, f"{metrics.validation_f1:.4f}", f"{run.seconds:.1f}", str(folder)])
    headings = ["run", "best epoch", "source-validation Macro-F1", "seconds", "folder"]
    print_table("Trained", headings, rows, left=("run", "folder"))
