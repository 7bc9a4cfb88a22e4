"""What reports of trained runs and of datasets say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from pisa_capc.core.provenance import machine
from pisa_capc.data.chance import AFTER_TRAINING, against_chance, at_chance
from pisa_capc.data.protocol import CAREFUL, PAPER
from pisa_capc.data.scores import Scores, pool
from pisa_capc.data.store.dataset import Dataset, describe
from pisa_capc.data.store.native import fingerprint
from pisa_capc.decide.calibration import Calibration
from pisa_capc.decide.identification.explain import Explainer
from pisa_capc.evidence.checks import check
from pisa_capc.evidence.evaluation import Inference
from pisa_capc.evidence.figures.dataset import check_picture, dataset_picture
from pisa_capc.evidence.figures.measured import decided_picture
from pisa_capc.evidence.figures.run import POINTS, USUAL, Subject, draw_run, stages
from pisa_capc.evidence.figures.style import Picture
from pisa_capc.evidence.reports.page import Page, score_tables
from pisa_capc.signal.measurement.quantities import WIDE, around

NORMAL = 1.4826  # standard deviations that a median distance from the median is one of


def report_of_runs(
    subjects: Sequence[Subject], dataset: Path, kinds: Sequence[str] = USUAL, points: int = POINTS, note: str = ""
) -> Page:
    """A page about trained runs on the target: the first subject, and what stands beside it; see
    `evidence.figures.run`.

    note: a sentence to read before the numbers.
    """
    main = subjects[0][0]
    run = main.trained.run
    target = ", ".join(np.unique(main.outputs.environment).tolist())
    page = Page(f"Trained in {', '.join(run.source)}, tested in {target}")
    by_encoder = stages(subjects)
    page.found(_finding(by_encoder, target))
    page.text(
        f"{len(main.evaluator):,} target frames of {len(main.trained.devices)} devices, never seen in training. "
        "Stages with CAPC in their name are calibrated without labels, capture by capture; the others decide directly."
    )
    if note:
        page.text(note)
    page.section("Scores")
    for encoder, found in by_encoder.items():
        score_tables(page, encoder, found)
    _training_table(page, subjects)
    _hardware(page, main)
    page.section("Calibration")
    _calibration_tables(page, main.stages[PAPER])
    if CAREFUL in main.stages:
        page.text("The usual calibration, which adapts to how evenly the devices of a capture seem to send:")
        _calibration_tables(page, main.stages[CAREFUL])
    page.section("Figures")
    with TemporaryDirectory() as folder:
        frames = Path(folder) / "frames.png"
        dataset_picture(dataset, frames)
        pictures = draw_run(subjects, Path(folder), "svg", kinds, points)
        for picture in (*pictures, Picture(frames, "The dataset: a frame, its spectrum, CFO over time, echoes.")):
            page.picture(picture.caption, picture.path)
    page.section("Settings and provenance")
    page.values(f"The model in {main.folder.name}", run.shown())
    page.values("The dataset", {"fingerprint": run.dataset, **Dataset.read(dataset).provenance})
    page.values("Where this report was made", machine())
    return page


def _finding(by_encoder: Mapping[str, Mapping[str, Sequence[Scores]]], target: str) -> str:
    """The best stage of all, beside the others of its encoder and a guess."""
    scored = {
        encoder: {name: fmean(run.macro_f1 for run in runs) for name, runs in found.items()}
        for encoder, found in by_encoder.items()
    }
    encoder = max(scored, key=lambda name: max(scored[name].values()))
    (best, f1), *others = sorted(scored[encoder].items(), key=lambda pair: -pair[1])
    runs = by_encoder[encoder][best]
    devices = len(runs[0].per_device)
    verb = "tells" if against_chance(pool(runs).confusion).is_told else "does not tell"
    beside = ", ".join(f"{name} {value:.3f}" for name, value in [*others, ("chance", 1 / devices)])
    return f"In {target}, {best} with {encoder} {verb} the {devices} devices apart: Macro-F1 {f1:.3f} ({beside})."


def _training_table(page: Page, subjects: Sequence[Subject]) -> None:
    rows = []
    for one in (one for subject in subjects for one in subject):
        run = one.trained.run
        epoch = "–" if run.is_solved else f"{run.metrics.best_epoch} of {run.training.epochs}"
        rows.append(
            [run.method, run.encoder, run.name, f"{run.metrics.validation_f1:.4f}", epoch, f"{run.seconds:.1f}"]
        )
    page.table("Training", ["method", "encoder", "run", "source-validation F1", "best epoch", "seconds"], rows)
    for one in (one for subject in subjects for one in subject):
        decided = one.trained.statistics.confusion
        what = f"{one.trained.run.method} {one.trained.name}: the source validation"
        if decided is not None and (found := at_chance(what, decided.T)):
            page.text(f"{found} {AFTER_TRAINING}")


def _hardware(page: Page, main: Inference) -> None:
    """Of a run in closed form: the measured flaws of each device, and what separates it from its nearest."""
    explainer, scores = Explainer(main.trained), main.outputs
    if not explainer.devices:
        return
    page.section("What decides")
    decided, rows, near = scores.logits.argmax(axis=1), list[list[str]](), list[list[str]]()
    for name, enrolled in explainer.devices.items():
        mine = decided == main.trained.devices.index(name)
        error = None if scores.error is None else scores.error[mine]
        own = explainer.measured(scores.embedding[mine], error)
        cfo_hz = "–"
        if scores.cfo_hz is not None and mine.any():
            middle = float(np.median(scores.cfo_hz[mine]))
            off = float(np.median(np.abs(scores.cfo_hz[mine] - middle)))  # a wrong decision has a CFO of its own
            cfo_hz = around("", "", middle, WIDE * NORMAL * off).number
        rows.append(
            [name, f"{mine.sum():,}", *(own[one].number if own else "–" for one in explainer.quantities), cfo_hz]
        )
        rows.append(["as enrolled", "", *(one.number for one in enrolled.values()), ""])
        if (found := explainer.nearest(name)) is not None:
            near.append([name, *found])
    headings = ["device", "frames", *(f"{name} ({unit})" for name, unit in explainer.quantities.items()), "CFO (Hz)"]
    page.text(
        "The model measures the hardware of each frame's sender. Below, for each device, what the target frames that "
        "were decided to be its own measured together, and what its frames are like in any place, as learnt from the "
        "source, ± 95 %. CFO is measured, and not used to decide."
    )
    page.table("Hardware of each device", headings, rows)
    if near:
        heads = ["device", "most easily taken for", "what separates the two best"]
        page.table("The nearest device", heads, near, words=True)
    with TemporaryDirectory() as folder:
        picture = decided_picture(main, Path(folder) / "flaws.svg")
        assert picture is not None, "what has readings has a picture"
        page.picture(picture.caption, picture.path)


def _calibration_tables(page: Page, result: Calibration) -> None:
    """Every number a capture's summary holds, and how it was judged where that was done."""
    names = [f.name for f in fields(result.captures[0]) if np.ndim(getattr(result.captures[0], f.name)) == 0]
    masses = ("mass_before", "mass_after")
    rows = [
        [str(getattr(summary, name)) for name in names]
        + [f"{mass.min():,.1f} … {mass.max():,.1f}" for mass in (getattr(summary, m) for m in masses)]
        for summary in result.captures
    ]
    if result.judged is not None:
        rows = [[*row, one.level, f"{one.evenness:.3f}"] for row, one in zip(rows, result.judged, strict=True)]
    judged = [] if result.judged is None else ["level", "evenness"]
    headings = [*names, "frames of the rarest … most frequent device before", "after", *judged]
    page.table(f"{result.changed:,} of {len(result.prediction):,} decisions changed", headings, rows)


def report_of_dataset(folder: Path) -> Page:
    """A page about frames: whether they are fit to be trained on, what they look like, where they are from."""
    dataset, checked = Dataset.read(folder), check(folder)
    page = Page(f"Dataset {folder.resolve().name}")
    page.found(checked.summary)
    page.text(f"{describe(dataset)}. {dataset.geometry.antennas} antennas, {dataset.samples} samples of each frame.")
    page.section("Is it fit to be trained on?")
    rows = [[name, own.verdict, own.found, own.advice] for name, own in checked.findings.items()]
    page.table("Findings", ["check", "verdict", "found", "what to do"], rows, words=True)
    with TemporaryDirectory() as scratch:
        own = check_picture(checked, Path(scratch) / "check.svg")
        page.picture(own.caption, own.path)
        page.section("What it looks like")
        frames = Picture(Path(scratch) / "frames.png", "A frame, its spectrum, CFO over time, echoes.")
        dataset_picture(folder, frames.path)
        page.picture(frames.caption, frames.path)
    page.section("Provenance")
    page.values("The dataset", {"fingerprint": fingerprint(folder), **dataset.provenance})
    page.values("Where this report was made", machine())
    return page
