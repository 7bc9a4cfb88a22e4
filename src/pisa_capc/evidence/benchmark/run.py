"""Run a protocol: recorded runs are skipped, failures are reported, all other runs become records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from pisa_capc.core.engines import check_engine, run_jobs
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.progress import console, progress
from pisa_capc.data.protocol import stage_title
from pisa_capc.data.store.dataset import Dataset
from pisa_capc.data.store.files import remove_stale
from pisa_capc.data.store.lock import only_runner
from pisa_capc.data.store.native import fingerprint
from pisa_capc.evidence.benchmark.data import (
    check_dataset,
    check_strangers,
    dataset_folder,
    dataset_name,
    is_whole,
    note_on_dropped,
    note_on_few_shot,
    note_on_search,
    prepare,
    prepare_strangers,
    to_be_made,
)
from pisa_capc.evidence.benchmark.plan import Conditions, PlannedRun, jobs_of, plan, select
from pisa_capc.evidence.benchmark.protocols import Protocol, check_protocol
from pisa_capc.evidence.benchmark.records import (
    RESULTS,
    Record,
    by_training,
    is_recorded,
    read_records,
    record_name,
    sort_out,
)

if TYPE_CHECKING:
    import torch


class Estimate(NamedTuple):
    """seconds: of the runs with a similar recorded run, one after the other. unknown: runs without one.
    by: how many records it goes by, and the machines they were made on."""

    seconds: float
    unknown: int
    by: int
    machines: tuple[str, ...]


def estimate(runs: Sequence[PlannedRun], dataset: str, device: str, results: Path, own: str) -> Estimate:
    """From the records in `results`, those of the protocol `own` first: of the same data, device, method, encoder,
    source and training."""
    wanted = {_kind(run) for run in runs}
    found: dict[str, list[Record]] = {}
    for folder in (results / own, *sorted(path for path in results.glob("*") if path.is_dir() and path.name != own)):
        for kind, record in _like(folder, wanted - set(found), dataset, device):
            found.setdefault(kind, []).append(record)
    seconds, unknown = 0.0, 0
    for run in runs:
        if like := found.get(_kind(run)):
            seconds += mean(r.seconds["training"] + r.seconds.get("scoring", 0.0) for r in like)
        else:
            unknown += 1
    records = [record for like in found.values() for record in like]
    machines = dict.fromkeys(str(r.machine.get("gpu") or f"{r.machine.get('cores')} cores") for r in records)
    return Estimate(seconds, unknown, len(records), tuple(machines))


def _like(folder: Path, wanted: set[str], dataset: str, device: str) -> Iterator[tuple[str, Record]]:
    if not wanted:
        return
    try:
        records = read_records(folder)
    except DataError:  # of a protocol that was not asked for
        return
    for record in records:
        kind = _kind(record.run)
        if kind in wanted and record.dataset == dataset and record.conditions.device == device:
            yield kind, record


def _kind(run: PlannedRun) -> str:
    """What decides how long a training takes, beside data and device."""
    return str((run.method, run.encoder, run.source, run.training))


@dataclass(frozen=True)
class Options:
    """Where and how.

    data: folder in place of the protocol's dataset. workers: jobs at a time. only: KEY=VALUE choices of runs.
    gpus: share of a GPU that a job takes of a Ray cluster; its nodes must all see the folders.
    trained_on: the kind of device that has trained the models in the work folder, cpu or cuda; they are only scored.
    """

    data: Path | None = None
    results: Path = RESULTS
    work: Path = Path("work")
    engine: str = "local"
    device: str = "auto"
    workers: int = 1
    gpus: float = 0.0
    only: tuple[str, ...] = ()
    trained_on: str | None = None

    def __post_init__(self) -> None:
        if self.trained_on not in (None, "cpu", "cuda"):
            raise ConfigError(f"--trained-on {self.trained_on!r}: expected cpu or cuda.")


@dataclass(frozen=True)
class Survey:
    """The chosen runs, those of them that are missing, and under which conditions they will be computed.

    conditions: None where nothing is left to compute, or where the dataset is yet to be made.
    elsewhere: how many of the missing runs are recorded under other conditions.
    """

    chosen: list[PlannedRun]
    missing: list[PlannedRun]
    conditions: Conditions | None = None
    elsewhere: dict[Conditions, int] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """A note if not everything is recorded under these conditions."""
        there = ", ".join(f"{n} for {c.device} in {c.precision}" for c, n in self.elsewhere.items())
        if not there:
            return ""
        if self.conditions is None:
            return f"The dataset is yet to be made. Recorded already, of a set that may be the same: {there}."
        here = f"{self.conditions.device} in {self.conditions.precision}"
        return f"Recorded already: {there}. Those for {here} are made besides."


@dataclass(frozen=True)
class Summary:
    """The outcome of the chosen runs. failed: jobs by name, with the reason. seconds: on the clock, dataset apart."""

    planned: int
    skipped: int
    recorded: int
    failed: tuple[tuple[str, str], ...] = ()
    seconds: float = field(default=0.0, compare=False)


def run_protocol(protocol: Protocol, options: Options) -> Summary:
    """Make the records that are missing. Stopped at any moment, it goes on from there the next time."""
    check_engine(options.engine, options.workers, options.gpus)
    folder = options.results / protocol.name
    if not folder.exists() or not is_whole(dataset_folder(protocol.dataset, options.data, options.work)):
        dry_run(protocol, options)  # what is wrong is said before a folder is made, or time goes into a dataset
    with only_runner(folder):
        remove_stale(folder)
        data = prepare(protocol.dataset, options.data, options.work)
        found = survey(protocol, options, data)
        if found.conditions is None:
            return Summary(len(found.chosen), len(found.chosen), 0)
        return _run_missing(protocol, found, found.conditions, data, options)


def dry_run(protocol: Protocol, options: Options) -> Survey:
    """What `run_protocol` would compute; nothing is made, not even the dataset."""
    data = dataset_folder(protocol.dataset, options.data, options.work)
    return survey(protocol, options, data if is_whole(data) else None)


def how_long(protocol: Protocol, found: Survey, options: Options) -> str:
    """How long the missing runs will take, for people, by the records of similar runs."""
    asked = options.device.split(":")[0]
    device = found.conditions.device if found.conditions else _place(options).type if asked == "auto" else asked
    name = dataset_name(protocol.dataset, options.data)
    by = estimate(found.missing, name, device, options.results, protocol.name)
    if not by.by:
        return f"No run like these is recorded for {device}, so how long they take is not known."
    seconds = by.seconds / options.workers
    text = f"About {duration(seconds)}, by {by.by} recorded runs like these ({', '.join(by.machines)})"
    return f"{text}, and {by.unknown} further runs without a record." if by.unknown else f"{text}."


def survey(protocol: Protocol, options: Options, data: Path | None) -> Survey:
    """Compare the records with the plan. data: the whole dataset, or None where it is yet to be made."""
    runs = plan(protocol)
    chosen = select(runs, options.only)
    records, _ = sort_out(read_records(options.results / protocol.name), runs)
    if data is None:
        check_protocol(protocol)
        if protocol.dataset.simulate is not None and options.data is None:
            check_dataset(to_be_made(protocol.dataset.simulate), protocol.dataset.name, chosen)
        return Survey(chosen, chosen, None, _recorded(chosen, records, {r.conditions for r in records}))
    check_dataset(Dataset.read(data), str(data), chosen)
    if protocol.strangers is not None:
        check_strangers(Dataset.read(data), str(data))
    dataset = fingerprint(data)
    if finished(chosen, records, dataset, protocol.precision, options.trained_on or options.device):
        return Survey(chosen, [])
    check_protocol(protocol)
    import torch

    from pisa_capc.model.inference.devices import choose_precision

    place = torch.device(options.trained_on) if options.trained_on else _place(options)
    conditions = Conditions(dataset, place.type, choose_precision(protocol.precision, place))
    names = {record.name for record in records}
    missing = [run for run in chosen if not is_recorded(run, conditions, names)]
    others = {record.conditions for record in records if record.conditions.dataset == dataset} - {conditions}
    return Survey(chosen, missing, conditions, _recorded(missing, records, others))


def _recorded(
    runs: Sequence[PlannedRun], records: Sequence[Record], under: Iterable[Conditions]
) -> dict[Conditions, int]:
    """How many of the runs are recorded under each of these conditions, where any are."""
    names = {record.name for record in records}
    counts = {c: sum(is_recorded(run, c, names) for run in runs) for c in sorted(under, key=str)}
    return {conditions: count for conditions, count in counts.items() if count}


def finished(runs: Sequence[PlannedRun], records: Sequence[Record], dataset: str, precision: str, device: str) -> bool:
    """Whether all runs are recorded under one set of conditions that was asked for. 'auto' asks for none.

    It is answered without torch, so that starting a finished protocol again takes no time.
    """
    names = {record.name for record in records}
    return any(
        conditions.dataset == dataset
        and device.split(":")[0] in ("auto", conditions.device)
        and precision in ("auto", conditions.precision)
        and all(is_recorded(run, conditions, names) for run in runs)
        for conditions in {record.conditions for record in records}
    )


def _place(options: Options) -> torch.device:
    """The device of the jobs. On a cluster `gpus` decides, not this machine."""
    import torch

    from pisa_capc.model.inference.devices import choose_device

    if options.engine == "ray" and options.device == "auto":
        return torch.device("cuda" if options.gpus else "cpu")
    return torch.device(options.device) if options.engine == "ray" else choose_device(options.device)


def _run_missing(protocol: Protocol, found: Survey, conditions: Conditions, data: Path, options: Options) -> Summary:
    from pisa_capc.evidence.benchmark.job import Job, run_job

    # A job with a missing part runs as a whole: its trained models are kept, and a stack stays the same.
    stacked = conditions.device == "cuda"
    groups = [group for group in jobs_of(found.chosen, stacked) if any(run in found.missing for run in group)]
    wanted = {record_name(run.today, conditions) for run in found.missing}
    label, place = dataset_name(protocol.dataset, options.data), str(_place(options))
    data, work = data.resolve(), (options.work / "trained").resolve()
    train = options.trained_on is None
    strangers = None
    if protocol.strangers is not None:
        strangers = prepare_strangers(protocol.strangers, data, options.work).resolve()
    jobs = [
        (Job(tuple(run.today for run in group), conditions, data, label, place, work, train, strangers),)
        for group in groups
    ]
    folder = options.results / protocol.name
    known = by_training(other for other in sorted(options.results.iterdir()) if other.is_dir() and other != folder)
    skipped, recorded, done = len(found.chosen) - len(found.missing), 0, 0
    total = sum(len(group) for group in groups)
    failed: list[tuple[str, str]] = []
    started = time.perf_counter()
    for note in (
        found.note,
        note_on_dropped(protocol),
        note_on_few_shot(data, found.chosen),
        note_on_search(protocol, data, options.results, options.work),
    ):
        if note:
            console.print(note, highlight=False, markup=False, soft_wrap=True)
    if skipped:
        console.print(f"{skipped} of {len(found.chosen)} runs are recorded and skipped.", highlight=False)
    with progress(protocol.name, total) as bar:
        for outcome in run_jobs(run_job, jobs, options.engine, options.workers, options.gpus):
            for record in outcome.records:
                if record.name in wanted:
                    record.beside(known.get(record.training, ())).write(folder)
                    recorded += 1
            name = _job_name(outcome.job.runs)
            if outcome.failure:
                failed.append((name, outcome.failure))
            done += len(outcome.job.runs)
            left = (time.perf_counter() - started) / done * (total - done)
            result = f"failed: {outcome.failure}" if outcome.failure else _scores(outcome.records)
            console.print(
                f"{done}/{total} {name}: {result}; {outcome.seconds:.1f} s, about {duration(left)} left",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            bar.advance(len(outcome.job.runs))
    return Summary(len(found.chosen), skipped, recorded, tuple(failed), time.perf_counter() - started)


def _job_name(runs: Sequence[PlannedRun]) -> str:
    from pisa_capc.model.methods import is_solved

    first = runs[0]
    which = f"split {first.split_seed} seed {first.seed}" if len(runs) == 1 else f"{len(runs)} runs"
    parts = [first.method, "" if first.variant == "full" else first.variant]
    parts += [] if is_solved(first.method) else [first.encoder]
    return f"{' '.join(filter(None, parts))}, {first.direction}, {which}"


def _scores(records: Sequence[Record]) -> str:
    """Mean Macro-F1 of the stages, in a line; where the captures are as they are."""
    means = {
        stage: sum(record.stages[stage]["macro_f1"] for record in records) / len(records)
        for stage in records[0].stages
        if "@" not in stage
    }
    return "Macro-F1 " + ", ".join(f"{stage_title(stage)} {mean:.4f}" for stage, mean in means.items())


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
