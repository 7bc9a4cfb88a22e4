"""`fit`: train one run or many, together where the device can, and keep what was finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.process import keep_freed_memory
from pisa_capc.core.threads import cpu_threads
from pisa_capc.data.frames import MODEL_SAMPLES, samples_seen
from pisa_capc.data.protocol import Split
from pisa_capc.model.inference.devices import choose_device, choose_precision
from pisa_capc.model.inference.model import TrainedModel
from pisa_capc.model.methods.registry import METHODS, Method, Setup, build_method
from pisa_capc.model.runs import NO_ENCODER, Run, TrainingConfig, training_config
from pisa_capc.model.stacked import check_run_axis, load_compiler
from pisa_capc.model.stacked.compilers import compilers
from pisa_capc.model.training.bank import Bank, union
from pisa_capc.model.training.keep import Keep, describe_run, kept_threads
from pisa_capc.model.training.trainer import Trainer, solved
from pisa_capc.signal.measurement.front_end import AUTO, front_end_for, through
from pisa_capc.signal.waveforms.reference import SentReference


def fit(
    runs: Run | Sequence[Run],
    *,
    method: str = "pisa",
    encoder: str = "transformer",
    variant: str = "full",
    settings: Mapping[str, Any] | None = None,
    training: TrainingConfig | Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: str = "auto",
    stacked: bool | None = None,
    out: str | Path | None = None,
    dataset: str = "",
    tensorboard: str | Path | None = None,
    show: bool = True,
    threads: int | None = None,
    front: str = AUTO,
    reference: SentReference | None = None,
    **optimisation: Any,
) -> list[TrainedModel]:
    """Train the runs and return their models, best source-validation Macro-F1 each. Target frames are never read.

    Args:
        runs: what to train; all from one dataset and direction.
        method, encoder, variant, settings: what to build; see `pisa_capc.model.methods`.
        training: the optimisation; single settings of it may also be given by name, as epochs=5.
        precision: 'float32', 'bfloat16' (mixed; on a GPU, or a processor that has it), or 'auto': bfloat16 on a GPU,
            float32 on a CPU, whose results then do not depend on what it has.
        stacked: train all runs in one stack (default on a GPU) or one after the other (default on a CPU).
        out: folder for checkpoints and models; an interrupted training goes on from there, a finished one is loaded.
            One run is written into `out` itself, several into `out/<run name>`.
        dataset: fingerprint of the dataset, kept with the models.
        tensorboard: folder for TensorBoard logs.
        threads: of a CPU, whose sums depend on how many share them; by default PyTorch's own number. A training
            resumed in `out` keeps its number.
        front: what is taken off channel state before the model sees it: 'antenna' (default), 'common' or 'none', see
            `signal.measurement.front_end`. The model keeps it and takes it off whatever it is given.
        reference: what was sent, where that is known as samples; the closed form measures against it and keeps it.

    >>> import numpy as np
    >>> from pisa_capc import Frames
    >>> from pisa_capc.data.protocol import split
    >>> from pisa_capc.model.training import Run, fit
    >>> frames = Frames.from_arrays(                               # or pisa_capc.load("wifi")
    ...     np.random.default_rng(0).normal(size=(36, 4, 64)), device=["D1", "D2"] * 18,
    ...     environment=np.repeat(["E1", "E2", "E3"], 12))
    >>> run = Run(split(frames, ["E2", "E3"], "E1", seed=2026), seed=2026)
    >>> [trained] = fit(run, encoder="cnn", epochs=1, batch=16, device="cpu", show=False)  # the paper has 30 epochs
    >>> trained.devices, trained.run.metrics.best_epoch
    (('D1', 'D2'), 1)
    """
    runs = behind_front_end(checked_runs(runs), method, front)
    how = training_config(training, optimisation)
    place = choose_device(device)
    precision = choose_precision(precision, place)
    if place.type == "cuda":
        load_compiler()  # while the frames are read
    if place.type == "cpu":
        keep_freed_memory()
        threads = threads or kept_threads(out, runs) or torch.get_num_threads()
    elif threads is not None:
        raise ConfigError(f"threads: found {threads}, but the training is on {place.type}, where they change nothing.")
    if not METHODS[method].in_epochs:
        encoder = NO_ENCODER
    if reference is not None:
        settings = {**(settings or {}), "waveform": reference.name}
    built = method_for(runs[0].split, method, encoder, variant, settings, how.samples, reference)
    if built.in_epochs:
        check_run_axis(built.build, f"method {method!r}")
        _check_batch(how.batch, runs)
    described = [describe_run(run, built, method, variant, how, precision, dataset, threads) for run in runs]
    keep = Keep(out, runs, described)
    with keep.alone(), cpu_threads(threads), compilers() if place.type == "cuda" else nullcontext() as running:
        bank = None
        together = built.in_epochs and (place.type == "cuda" if stacked is None else stacked)
        groups = keep.unfinished(together)
        for number, group in enumerate(groups, 1):
            if bank is None:
                if running is not None:
                    running.expect()  # while the frames are read
                parts = [part for run in runs for part in (run.split.train, run.split.validation)]
                bank = Bank(union(parts).segment(built.setup.samples), place)  # names the frames that no method can use
                built.check_source(runs[0].split.train.segment(built.setup.samples))
            if not built.in_epochs:
                keep.add(group, [solved(runs[group[0]], described[group[0]], built, bank)])
                continue
            with _naming_lack_of_memory():
                trainer = Trainer([runs[i] for i in group], keep.described(group), built, how, bank, precision)
                later = sum(len(runs[i].split.train) for other in groups[number:] for i in other)
                keep.add(group, trainer.train(keep.folder(group), show, tensorboard, later))
        return keep.models()


def checked_runs(runs: Run | Sequence[Run]) -> list[Run]:
    """One run or several as a list of runs that can be told apart."""
    found = [runs] if isinstance(runs, Run) else list(runs)
    if not found:
        raise ConfigError("fit: no runs given.")
    if odd := [run for run in found if not isinstance(run, Run)]:
        raise ConfigError(f"fit: expected runs, as Run(split(…), seed=2026), found {type(odd[0]).__name__}.")
    if len({run.name for run in found}) != len(found):
        raise ConfigError("fit: two runs share split seed and training seed. Give each pair once.")
    return found


def behind_front_end(runs: Sequence[Run], method: str, front: str = AUTO) -> list[Run]:
    """The runs on frames behind the method's front end."""
    given = runs[0].split.train.subcarriers
    if METHODS[method].as_reported and given is not None:
        if front not in (AUTO, given.front):
            raise ConfigError(
                f"front {front}: {method} takes gain, phase and slope off each antenna itself. Leave it out."
            )
        front = given.front
    wanted = front_end_for(given, front)

    def behind(part: Split) -> Split:
        return replace(part, train=through(part.train, wanted), validation=through(part.validation, wanted))

    return [replace(run, split=behind(run.split)) for run in runs]


def method_for(
    part: Split,
    method: str,
    encoder: str,
    variant: str,
    settings: Mapping[str, Any] | None,
    samples: int,
    reference: SentReference | None = None,
) -> Method:
    """The method, built for the frames of a split."""
    setup = replace(setup_for(part, encoder, samples), reference=reference)
    built = build_method(method, setup, variant, settings)
    stored = part.train.source.samples
    if not built.whole_frames or samples != MODEL_SAMPLES or setup.samples == stored:
        return built
    return build_method(method, replace(setup_for(part, encoder, stored), reference=reference), variant, settings)


def setup_for(part: Split, encoder: str, samples: int) -> Setup:
    """What a method needs to know about the frames of a split."""
    train = part.train
    environments = tuple(np.unique(train.environment).tolist())
    seen = samples_seen(samples, train.source.samples)
    numbered = None if train.subcarriers is None else train.subcarriers.first(seen)
    rate, domain = train.sample_rate_hz, train.domain
    return Setup(len(part.devices), encoder, train.geometry, environments, seen, rate, domain, numbered)


def _check_batch(batch: int, runs: Sequence[Run]) -> None:
    fewest = min(len(run.split.train) for run in runs)
    if batch > max(fewest, TrainingConfig.batch):
        raise ConfigError(f"training.batch: found {batch}, expected at most the {fewest} training frames.")


@contextmanager
def _naming_lack_of_memory() -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # PyTorch has a class of its own for a GPU's memory alone
        known = ("out of memory", "allocate memory")
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in known):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(
            f"the training ran out of memory ({reason}). Use a smaller --batch, or fewer runs at a time."
        ) from error
