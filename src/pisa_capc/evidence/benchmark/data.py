"""The dataset of a protocol: simulated, imported from MAT files in the measured layout, or given.

Also its source part, on which hyperparameters are searched, and the checks before a protocol runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.data.frames import samples_seen
from pisa_capc.data.protocol import DROPPED, few_shot_note
from pisa_capc.data.store.dataset import Dataset
from pisa_capc.data.store.files import cannot_be_read, read_json, write_text_atomic
from pisa_capc.data.store.native import fingerprint
from pisa_capc.data.store.outside import files_under
from pisa_capc.evidence.benchmark.plan import PlannedRun, digest
from pisa_capc.evidence.benchmark.protocols import DataSource, Protocol, Simulated, Strangers
from pisa_capc.signal.simulation.scene import load_scene


def dataset_name(source: DataSource, data: Path | None) -> str:
    """What tables call the dataset.

    A folder given in place of a simulated set keeps its own name, a link the link's. Recordings given to a protocol of
    recordings take the protocol's name; a simulated set keeps its own there, and is marked as simulated.
    """
    if data is None:
        return source.name
    given = Path(os.path.abspath(data)).name
    if source.simulate is not None:
        return given
    simulated = (data / "dataset.json").is_file() and Dataset.read(data).is_simulated
    return f"{given} (simulated)" if simulated else source.name


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
    return work / "data" / f"{Path(made.scene).stem}-seed{made.seed}-scale{made.scale:g}"


def prepare(source: DataSource, data: Path | None, work: Path) -> Path:
    """The folder of the whole dataset, which is made first if it is missing."""
    folder = dataset_folder(source, data, work)
    if folder == data:
        return folder
    if data is not None:
        from pisa_capc.signal.formats.transfer import import_dataset

        if not is_whole(folder):
            import_dataset("mat", data, folder, show=True)
    elif source.simulate is not None:
        from pisa_capc.signal.simulation.generate import generate

        made = source.simulate
        generate(made.scene, folder, seed=made.seed, scale=made.scale)
    return folder


def prepare_strangers(strangers: Strangers, data: Path, work: Path) -> Path:
    """The folder of a set made like the simulated one in `data`, with radios beside its own; made first where needed.

    Scene and seed are those that `data` says it was made with, so a given set has its unknown devices too.
    """
    from pisa_capc.signal.simulation.generate import generate

    made = Dataset.read(data).provenance
    scene = {**made["scene"], "devices": made["scene"]["devices"] + strangers.devices}
    folder = work / "data" / f"{data.resolve().name}-strangers-{digest([made, asdict(strangers)])[:8]}"
    path = folder.parent / f"{folder.name}.yaml"
    write_text_atomic(path, yaml.safe_dump(scene))
    generate(str(path), folder, seed=made["seed"], scale=strangers.scale)
    return folder


def is_whole(folder: Path) -> bool:
    return (folder / "dataset.json").is_file() and not Dataset.read(folder).missing(folder)


def to_be_made(made: Simulated) -> Dataset:
    """The description of a simulated set that is yet to be made."""
    from pisa_capc.signal.simulation.generate import describe_dataset

    return describe_dataset(made.scene, load_scene(made.scene), made.seed, made.scale, None)


def check_dataset(dataset: Dataset, where: str, runs: list[PlannedRun]) -> None:
    """Refuse, before any work, a dataset without the environments of the runs, or with frames too short for them."""
    for run in runs:
        samples_seen(run.training.samples, dataset.samples)
    known = {capture.environment for capture in dataset.captures}
    for name in sorted({name for run in runs for name in (*run.source, *run.target)}):
        if name not in known:
            raise ConfigError(f"{where}: " + unknown_name("environment", name, known))


def check_strangers(dataset: Dataset, where: str) -> None:
    """Refuse a dataset that was not simulated, or only a part of it, where unknown devices are to be made for it."""
    if not {"scene", "seed"} <= dataset.provenance.keys():
        raise ConfigError(
            f"{where}: was not simulated in this form, so further radios cannot be made for it. Leave the deployments "
            "with unknown devices out, or use a set that `pisa simulate` made."
        )


def note_on_dropped(protocol: Protocol) -> str:
    """What to say where the protocol has calibrations that are gone."""
    named = [f"{stage} (use {DROPPED[protocol.calibration[stage]['method']]})" for stage in protocol.dropped]
    return f"Left out, because it is gone: {', '.join(named)}. What is recorded stays." if named else ""


def note_on_few_shot(folder: Path, runs: list[PlannedRun]) -> str:
    """A note where the protocol leaves out more few-shot frames than the target's recordings can spare."""
    targets = {name for run in runs for name in run.target}
    groups = [capture.frames for capture in Dataset.read(folder).captures if capture.environment in targets]
    return few_shot_note(runs[0].split.few_shot, groups)


def source_dataset(data: Path, sources: Sequence[str], work: Path) -> Path:
    """A dataset of the source environments alone: links to their captures. With two of them each capture position
    becomes an environment, as E2.L1."""
    whole = Dataset.read(data)
    known = {capture.environment for capture in whole.captures}
    for name in sources:
        if name not in known:
            raise ConfigError(f"{data}: " + unknown_name("environment", name, known))
    own = [capture for capture in whole.captures if capture.environment in sources]
    finer = len(sources) == 2
    named = [replace(c, environment=f"{c.environment}.{c.capture}") if finer else c for c in own]
    dataset = replace(whole, captures=tuple(named), provenance={"sources": list(sources), "of": whole.provenance})
    origin = data.resolve()
    folder = work / "data" / f"{origin.name}-{'+'.join(sources)}-{digest([str(origin), dataset.to_json()])[:8]}"
    dataset.create(folder)
    for capture, new in zip(own, named, strict=True):
        link = folder / new.path
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(origin / capture.path)
    return folder


def search_record(results: Path, protocol: str) -> Path:
    """The file that keeps the result of a protocol's search."""
    return results / f"{protocol}-search.json"


def searched_dataset(path: Path) -> str | None:
    """The fingerprint of the source frames that a search was made on; None where there was none."""
    if not path.exists():
        return None
    try:
        return str(read_json(path)["conditions"]["dataset"])
    except OSError as error:
        raise cannot_be_read(path, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: not the record of a search ({error}). Remove it, or choose other --results."
        ) from error


def note_on_search(protocol: Protocol, data: Path, results: Path, work: Path) -> str:
    """A note where the protocol's hyperparameters were searched on a different dataset."""
    path = search_record(results, protocol.name)
    found = searched_dataset(path) if protocol.search else None
    if found is None or found == fingerprint(source_dataset(data, protocol.directions[0].source, work)):
        return ""
    return f"{path}: the search was made on another dataset than {data}, so its hyperparameters were not chosen for it."


def _state(folder: Path) -> str:
    """A digest of the folder's MAT files, so that changed ones are imported again."""
    files = files_under(folder, ".mat")
    if not files:
        raise DataError(
            f"{folder}: holds neither dataset.json nor MAT files. Expected a dataset made by `pisa simulate` or "
            "`pisa import`, or a folder of MAT files as E1/D01/L1.mat."
        )
    return digest([(p.relative_to(folder).as_posix(), p.stat().st_size, p.stat().st_mtime_ns) for p in files])[:8]
