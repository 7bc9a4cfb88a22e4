"""The dataset of a protocol: simulated, imported from MAT files in the measured layout, or given."""

from __future__ import annotations

from pathlib import Path

from pisa_capc.benchmark.plan import PlannedRun, digest
from pisa_capc.benchmark.protocols import DataSource
from pisa_capc.errors import ConfigError, DataError, unknown_name
from pisa_capc.frames import MODEL_SAMPLES, samples_seen
from pisa_capc.protocol import few_shot_note
from pisa_capc.store.dataset import Dataset


def dataset_name(source: DataSource, data: Path | None) -> str:
    """What tables call the dataset.

    A folder given in place of a simulated set goes by its own name. Recordings given to a protocol of recordings are
    what the protocol names; a simulated set never is, and is marked as one.
    """
    if data is None:
        return source.name
    if source.simulate is not None:
        return data.resolve().name
    simulated = (data / "dataset.json").is_file() and Dataset.read(data).is_simulated
    return f"{data.resolve().name} (simulated)" if simulated else source.name


def dataset_folder(source: DataSource, data: Path | None, work: Path) -> Path:
    """Where the dataset is, or will be once it is prepared."""
    if data is not None:
        if (data / "dataset.json").is_file():
            return data
        return work / "data" / f"{data.resolve().name}-{_state(data)}"
    if source.simulate is None:
        raise ConfigError(
            f"dataset {source.name}: its frames are not made here. Point at them with --data: a folder of MAT files "
            "as E1/D01/L1.mat, or a dataset made by `pisa import`."
        )
    made = source.simulate
    return work / "data" / f"{made.waveform}-seed{made.seed}-scale{made.scale:g}"


def prepare(source: DataSource, data: Path | None, work: Path) -> Path:
    """The folder of the whole dataset, made first where it is not there."""
    folder = dataset_folder(source, data, work)
    if folder == data:
        return folder
    if data is not None:
        from pisa_capc.store.formats import import_dataset

        if not is_whole(folder):
            import_dataset("mat", data, folder, show=True)
    elif source.simulate is not None:
        from pisa_capc.simulate.generate import generate

        made = source.simulate
        generate(made.waveform, folder, seed=made.seed, scale=made.scale)
    return folder


def is_whole(folder: Path) -> bool:
    return (folder / "dataset.json").is_file() and not Dataset.read(folder).missing(folder)


def check_dataset(folder: Path, runs: list[PlannedRun]) -> None:
    """Refuse, before any work, a dataset without the environments of the runs, or with frames too short for them."""
    dataset = Dataset.read(folder)
    for run in runs:
        samples_seen(run.training.get("samples", MODEL_SAMPLES), dataset.samples)
    known = {capture.environment for capture in dataset.captures}
    for name in sorted({name for run in runs for name in (*run.source, *run.target)}):
        if name not in known:
            raise ConfigError(f"{folder}: " + unknown_name("environment", name, known))


def note_on_few_shot(folder: Path, runs: list[PlannedRun]) -> str:
    """What to say where the protocol's few-shot frames are more than the recordings of a target give."""
    targets = {name for run in runs for name in run.target}
    groups = [capture.frames for capture in Dataset.read(folder).captures if capture.environment in targets]
    return few_shot_note(runs[0].split["few_shot"], groups)


def _state(folder: Path) -> str:
    """Names the MAT files of a folder as they are now, so that changed ones are imported anew."""
    files = sorted(folder.rglob("*.mat")) if folder.is_dir() else []
    if not files:
        raise DataError(
            f"{folder}: holds neither dataset.json nor MAT files. Expected a dataset made by `pisa simulate` or "
            "`pisa import`, or a folder of MAT files as E1/D01/L1.mat."
        )
    return digest([(p.relative_to(folder).as_posix(), p.stat().st_size, p.stat().st_mtime_ns) for p in files])[:8]
