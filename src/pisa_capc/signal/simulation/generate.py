"""A whole simulated dataset: what to write, in parallel, resumable."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, ParamSpec

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pisa_capc.core import plugins
from pisa_capc.core.engines import check_engine, run_jobs
from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.core.progress import progress
from pisa_capc.data.frames import Frames, index_of, load
from pisa_capc.data.store.files import bytes_text
from pisa_capc.data.store.native import CaptureSpec, Dataset, fingerprint, write_capture_chunks
from pisa_capc.signal.simulation.capture import prepare, render
from pisa_capc.signal.simulation.scene import SHORTEST_SAMPLES, Scene, check_scale, load_scene, scene_names
from pisa_capc.signal.waveforms import WAVEFORMS

P = ParamSpec("P")
DEFAULT_SEED = 2026
REVISION = 1  # of the simulator; raised by any change that alters samples, so that old and new are never mixed


@dataclass(frozen=True)
class Generated:
    """What a run of the generator did: captures and frames of the set, and how much of it this run wrote."""

    folder: str
    captures: int
    frames: int
    samples: int
    captures_written: int
    frames_written: int
    bytes_written: int
    seconds: float

    @property
    def frames_per_s(self) -> float:
        return self.frames_written / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "frames_per_s": self.frames_per_s}


def describe_dataset(name: str, scene: Scene, seed: int, scale: float, cfo_from: Path | None) -> Dataset:
    """The dataset a recipe makes; its provenance holds all that determines the samples."""
    check_scale(scale)
    used = plugins.described(WAVEFORMS.origin(scene.waveform.kind))
    return Dataset(
        scene.receiver.geometry,
        scene.waveform.sample_rate_hz,
        scene.waveform.carrier_hz,
        scene.waveform.samples,
        scene.layout(scale),
        {
            "command": f"pisa simulate {Path(name).name}",
            "revision": REVISION,
            "seed": seed,
            "scene": scene.to_json(),
            "cfo_from": None if cfo_from is None else fingerprint(cfo_from),
            **({"plugins": used} if used else {}),
        },
    )


def lengths() -> str:
    """What lengths frames can be stored with."""
    known = WAVEFORMS.parts(search=False)
    longest = (f"{waveform.longest_samples} for {name}" for name, waveform in known.items())
    return f"{SHORTEST_SAMPLES} to {', '.join(longest)}"


def generate(
    name: Annotated[str, f"A built-in scene ({', '.join(scene_names())}), or a .yaml file that holds a whole one."],
    out: Annotated[
        str | Path,
        "Where to write: the folder of the dataset or recording; an interrupted dataset of the same recipe goes on.",
    ],
    *,
    seed: Annotated[int, "Seed: names the devices, places and noise."] = DEFAULT_SEED,
    scale: Annotated[float, "Part of the frames of each capture (at least 8); never the layout."] = 1.0,
    samples: Annotated[
        int | None, f"Samples of a frame; of those that are stored, by default the scene's: {lengths()}."
    ] = None,
    workers: Annotated[int | None, "Processes at a time: by default one per core."] = None,
    engine: Annotated[str, "Where work runs: local or ray."] = "local",
    scene: Annotated[str | Path | None, "Scene: a YAML file with settings over the scene's."] = None,
    cfo_from: Annotated[
        str | Path | None, "Dataset whose recorded CFO traces take the place of synthesised ones."
    ] = None,
    show_progress: bool = True,
) -> Generated:
    """Write a simulated set to a folder; captures already there are kept. `pisa simulate --help` says it in words.

    The samples depend on seed, scene and capture alone: any number of workers, any order and any number of
    interruptions give the same bytes (on one kind of processor; another may round the last digit differently).
    In a script, call this under `if __name__ == "__main__":` where there is more than one worker.
    """
    check_engine(engine, workers)
    folder = Path(out)
    chosen = load_scene(name, None if scene is None else Path(scene), samples)
    dataset = describe_dataset(name, chosen, seed, scale, None if cfo_from is None else Path(cfo_from))
    traces = {} if cfo_from is None else recorded_traces_hz(Path(cfo_from), dataset)
    # Long captures first: the pool then ends evenly.
    missing = sorted(dataset.missing(folder), key=lambda spec: -spec.frames)
    frames = sum(spec.frames for spec in missing)
    # Before anything is written: a smaller set is another one, and would find this in its place.
    needed = frames * chosen.receiver.geometry.antennas * (8 * chosen.waveform.samples + 8)
    check_space(folder, needed, "the set", "--scale or --samples")
    dataset.create(folder)
    started = time.perf_counter()
    written = 0
    jobs = [(folder, chosen, seed, spec, traces.get(spec.name)) for spec in missing]
    with progress(f"simulate {name}", total=frames, show=show_progress) as bar:
        for spec, size in run_jobs(write_simulated, jobs, engine, workers):
            written += size
            bar.advance(spec.frames, spec.name)
    return Generated(
        folder=str(folder),
        captures=len(dataset.captures),
        frames=sum(spec.frames for spec in dataset.captures),
        samples=chosen.waveform.samples,
        captures_written=len(missing),
        frames_written=frames,
        bytes_written=written,
        seconds=time.perf_counter() - started,
    )


def _opened(make: Callable[P, Generated]) -> Callable[P, Frames]:
    """A function that takes what `make` takes and returns the frames it made."""

    @wraps(make, assigned=("__annotations__",))
    def simulate(*given: P.args, **options: P.kwargs) -> Frames:
        """Simulate a dataset and open it: `generate`, then `load`; all options are those of `generate`.

        >>> frames = pisa_capc.simulate("wifi", "wifi-small", scale=0.1)    # doctest: +SKIP
        >>> frames.iq.shape                                                 # doctest: +SKIP
        (7616, 4, 320)
        """
        known = list(signature(make).parameters)
        for option in options:
            if option not in known:
                raise ConfigError(unknown_name("option", option, known[2:]))
        return load(make(*given, **options).folder)

    return simulate


simulate = _opened(generate)


def write_simulated(
    folder: Path, scene: Scene, seed: int, spec: CaptureSpec, cfo_hz: NDArray[np.float64] | None
) -> tuple[CaptureSpec, int]:
    """One job: compute a capture and write it; returns the size of its file in bytes."""
    # One thread per process: the processes fill the cores, and sums keep one order.
    with threadpool_limits(1):
        capture = prepare(scene, seed, spec, cfo_hz)
        shape = (spec.frames, scene.receiver.geometry.antennas, scene.waveform.samples)
        write_capture_chunks(folder, spec, shape, render(capture), capture.cfo_hz)
    return spec, (folder / spec.path).stat().st_size


def recorded_traces_hz(folder: Path, dataset: Dataset) -> dict[str, NDArray[np.float64]]:
    """(F, A) recorded CFO of the first frames of every capture of the set, by capture name; all must be there."""
    frames = load(folder)
    if frames.antennas != dataset.geometry.antennas:
        raise DataError(
            f"{folder}: recorded with {frames.antennas} antennas, the scene has {dataset.geometry.antennas}."
        )
    cfo_hz = frames.cfo_hz
    if cfo_hz is None:
        raise DataError(f"{folder}: holds no cfo_hz. Leave out --cfo-from to synthesise it.")
    kinds = ("environment", "device", "capture")
    traces = {}
    for spec in dataset.captures:
        column = {kind: index_of(kind, getattr(spec, kind), getattr(frames, f"{kind}s")) for kind in kinds}
        keep = np.logical_and.reduce([getattr(frames, kind) == index for kind, index in column.items()])
        found = cfo_hz[np.flatnonzero(keep)[: spec.frames]]
        if len(found) < spec.frames:
            raise DataError(
                f"{folder}: {spec.name} holds {len(found)} frames; {spec.frames} are needed. Use a smaller --scale."
            )
        traces[spec.name] = found
    return traces


def check_space(folder: Path, needed: int, what: str, less: str) -> None:
    """Refuse to begin what the disk cannot hold; less: the options that make it smaller."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DataError(
            f"{folder}: {what} needs {bytes_text(needed)}, {bytes_text(free)} are free. "
            f"Free space, choose another --out, or a smaller {less}."
        )
