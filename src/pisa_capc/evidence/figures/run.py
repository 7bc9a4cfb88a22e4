"""The figures of trained runs: how they see the frames of the target, and what the calibration changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pisa_capc.core.errors import ConfigError, ModelError, unknown_name
from pisa_capc.core.progress import progress
from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.data.scores import Scores
from pisa_capc.evidence.benchmark.tables import stage_name
from pisa_capc.evidence.evaluation import Inference
from pisa_capc.evidence.figures.calibration import plot_capture, plot_overview
from pisa_capc.evidence.figures.confusion import capture_scores, confusion_figure
from pisa_capc.evidence.figures.projection import Panel, Sample, capture_panels, draw_sample, project, stage_panels
from pisa_capc.evidence.figures.style import Picture, check_format
from pisa_capc.evidence.figures.topology import topology_figure
from pisa_capc.model.encoders import encoder_title

KINDS = ("confusion", "captures", "calibration", "tsne", "topology", "umap")
USUAL = KINDS[:-1]  # UMAP needs a package that is not always there
POINTS, SEED = 1000, 2026
SPACES = {
    "tsne": "decision spaces: logits, and after calibration scores",
    "umap": "embeddings, and after calibration of decision scores",
}

Subject = Sequence[Inference]  # runs of one experiment, which differ in their seeds


def draw_run(
    subjects: Sequence[Subject],
    folder: Path,
    format: str = "pdf",
    kinds: Sequence[str] = USUAL,
    points: int = POINTS,
    seed: int = SEED,
) -> list[Picture]:
    """Draw the first subject, with the others beside it: Single of the same encoder, other encoders.

    Scores are of all runs of a subject; what shows frames shows those of its first run. points: how many frames t-SNE
    and UMAP place. seed: of the draw of these frames, and of the placing.
    """
    check(kinds, format, points)
    check_together(subjects)
    chosen = list(dict.fromkeys(kinds))
    pictures: list[Picture] = []
    with progress("figures", len(chosen)) as bar:
        for kind in chosen:
            bar.advance(0, kind)
            pictures += _draw(kind, subjects, folder / f"{kind}.{format}", points, seed)
            bar.advance()
    return pictures


def _draw(kind: str, subjects: Sequence[Subject], path: Path, points: int, seed: int) -> list[Picture]:
    main = subjects[0][0]
    if kind == "topology":
        model = main.trained.run.settings.get("model", {})
        own = {name: model[name] for name in ("tau_s", "tau_t", "tokens") if name in model}
        return [topology_figure(main.trained.geometry, path, **own)]
    if kind in ("confusion", "captures"):
        return _scores(kind, subjects, path)
    if kind == "calibration":
        return _calibration(main, path)
    sample = draw_sample(main.evaluator, main.outputs.capture, points, seed)
    return _projections(kind, subjects, sample, path)


def check(kinds: Sequence[str], format: str, points: int) -> None:
    """Refuse figures that cannot be drawn, before anything is computed."""
    check_format(format)
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(unknown_name("kind of figure", kind, KINDS))
    if points < 10:
        raise ConfigError(f"points: expected at least 10 frames to place, found {points}.")


def check_together(subjects: Sequence[Subject]) -> None:
    """Panels side by side show the same frames: the runs must be of one direction and one split."""
    first = subjects[0][0]
    for subject in subjects[1:]:
        for key in ("source", "target", "split_seed"):
            here, there = (getattr(one.trained.run, key) for one in (subject[0], first))
            if here != there:
                raise ModelError(
                    f"{subject[0].folder}: its {key} is {here!r}, that of {first.folder} is {there!r}; runs side by "
                    "side must show the same frames. Give runs of one direction and split."
                )


def stages(subjects: Sequence[Subject]) -> dict[str, dict[str, list[Scores]]]:
    """Scores of all runs by encoder and stage, in the paper's order: Single, PISA, PISA-CAPC, PISA-CAPC (careful).

    Single is the first stage and shown without calibration, unless it is the first subject.
    """
    found: dict[str, dict[str, list[Scores]]] = {}
    for subject, calibrated in _in_order(subjects):
        rows = found.setdefault(_encoder(subject[0]), {})
        for one in subject:
            for stage, scores in one.scores().items():
                if calibrated or stage == DIRECT:
                    rows.setdefault(_name(one, stage), []).append(scores)
    return found


def _in_order(subjects: Sequence[Subject]) -> list[tuple[Subject, bool]]:
    """Subjects with Single first, and whether each is also shown calibrated."""
    chosen = [(s, i == 0 or s[0].trained.run.method != "single") for i, s in enumerate(subjects)]
    return sorted(chosen, key=lambda pair: pair[0][0].trained.run.method != "single")


def _name(one: Inference, stage: str) -> str:
    return stage_name(one.trained.run.method, stage, one.trained.run.variant)


def _encoder(one: Inference) -> str:
    return encoder_title(one.trained.run.encoder)


def _scores(kind: str, subjects: Sequence[Subject], path: Path) -> list[Picture]:
    """One file per encoder."""
    pictures = []
    by_encoder = stages(subjects)
    for encoder, found in by_encoder.items():
        own = path if len(by_encoder) == 1 else path.with_stem(f"{path.stem}-{encoder.lower()}")
        picture = (capture_scores if kind == "captures" else confusion_figure)(found, own)
        pictures.append(picture._replace(caption=f"{encoder}. {picture.caption}"))
    return pictures


def _calibration(one: Inference, path: Path) -> list[Picture]:
    """All captures at a glance, then one by one."""
    result = one.stages[PAPER]
    plot_overview(result, path)
    caption = "What the calibration changes in each capture: decisions, and the expected share of each class."
    pictures = [Picture(path, caption)]
    for number, summary in enumerate(result.captures, 1):
        own = path.with_stem(f"{path.stem}-{_file_name(str(summary.capture), number)}")
        plot_capture(result, own, summary.capture, one.trained.devices)
        caption = (
            f"Capture {summary.capture} before and after calibration, on the principal axes of its embeddings: "
            f"{summary.changed:,} of {summary.frames:,} decisions change. Discs are prototypes."
        )
        pictures.append(Picture(own, caption))
    return pictures


def _file_name(capture: str, number: int) -> str:
    """A capture's name as part of that of a file; its start and its number where it is too long for one.

    >>> _file_name("E1/L1", 1), _file_name("hall/" + 300 * "L", 2)
    ('E1-L1', 'hall-LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL-2')
    """
    name = capture.replace("/", "-")
    return name if len(name.encode()) <= 200 else f"{name[:40]}-{number}"


def _projections(kind: str, subjects: Sequence[Subject], sample: Sample, path: Path) -> list[Picture]:
    """The stages side by side, and the last of the first subject by capture.

    As in the paper, t-SNE shows decision spaces: logits, then calibrated scores. UMAP shows embeddings, and decision
    scores after calibration, which leaves the embeddings as they are.
    """
    panels = []
    for subject, calibrated in _in_order(subjects):
        one, row = subject[0], _encoder(subject[0])
        direct = one.outputs.logits if kind == "tsne" else one.outputs.embedding
        panels.append(Panel(row, _name(one, DIRECT), project(direct[sample.rows], kind, sample.seed)))
        if calibrated:
            score = one.stages[PAPER].score[sample.rows]
            panels.append(Panel(row, _name(one, PAPER), project(score, kind, sample.seed)))
    main = subjects[0][0]
    last = next(p for p in panels if (p.row, p.title) == (_encoder(main), _name(main, PAPER)))
    return [
        stage_panels(panels, sample, kind, SPACES[kind], path),
        capture_panels(last, sample, kind, path.with_stem(f"{path.stem}-captures")),
    ]
