"""A whole simulated dataset: what to write, in parallel, resumable."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pisa_capc.engines import check_engine, run_jobs
from pisa_capc.errors import DataError
from pisa_capc.frames import Frames, index_of, load
from pisa_capc.progress import progress
from pisa_capc.simulate.capture import prepare, render
from pisa_capc.simulate.scene import Scene, check_scale, load_scene
from pisa_capc.store.native import CaptureSpec, Dataset, fingerprint, write_capture_chunks

DEFAULT_SEED = 2026
REVISION = 1  # of the simulator; raised by any change that alters samples, so that old and new are never mixed


@dataclass(frozen=True)
class Summary:
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
    return Dataset(
        scene.receiver.geometry,
        scene.waveform.sample_rate_hz,
        scene.waveform.carrier_hz,
        scene.waveform.samples,
        scene.layout(scale),
        {
            "command": f"pisa simulate {name}",
            "revision": REVISION,
            "seed": seed,
            "scene": asdict(scene),
            "cfo_from": None if cfo_from is None else fingerprint(cfo_from),
        },
    )


def generate(
    name: str,
    out: str | Path,
    *,
    seed: int = DEFAULT_SEED,
    scale: float = 1.0,
    samples: int | None = None,
    workers: int | None = None,
    engine: str = "local",
    scene: str | Path | None = None,
    cfo_from: str | Path | None = None,
    show_progress: bool = True,
) -> Summary:
    """Write the simulated set `name` ('wifi' or 'lora') to the folder `out`; captures already there are kept.

    The samples depend on seed, scene and capture alone: any number of workers, any order and any number of
    interruptions give the same bytes (on one kind of processor; another may round the last digit differently).
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
    _check_space(folder, frames * chosen.receiver.geometry.antennas * (8 * chosen.waveform.samples + 8))
    dataset.create(folder)
    started = time.perf_counter()
    written = 0
    jobs = [(folder, chosen, seed, spec, traces.get(spec.name)) for spec in missing]
    with progress(f"simulate {name}", total=frames, show=show_progress) as bar:
        for spec, size in run_jobs(write_simulated, jobs, engine, workers):
            written += size
            bar.advance(spec.frames, spec.name)
    return Summary(
        folder=str(folder),
        captures=len(dataset.captures),
        frames=sum(spec.frames for spec in dataset.captures),
        samples=chosen.waveform.samples,
        captures_written=len(missing),
        frames_written=frames,
        bytes_written=written,
        seconds=time.perf_counter() - started,
    )


def simulate(
    name: str,
    out: str | Path,
    *,
    seed: int = DEFAULT_SEED,
    scale: float = 1.0,
    samples: int | None = None,
    workers: int | None = None,
    engine: str = "local",
    scene: str | Path | None = None,
    cfo_from: str | Path | None = None,
    show_progress: bool = True,
) -> Frames:
    """Simulate a dataset and open it.

    name: 'wifi' or 'lora'. out: folder; an interrupted run of the same recipe is finished.
    seed: names the devices, places and noise. scale: part of the frames of each capture, at least eight.
    samples: stored length of a frame. scene: YAML file with settings over the built-in scene.
    cfo_from: dataset whose recorded CFO traces take the place of synthesised ones.
    workers: processes; in a script, call this under `if __name__ == "__main__":` when more than one.

    >>> frames = pisa_capc.simulate("wifi", "wifi-small", scale=0.1)    # doctest: +SKIP
    >>> frames.iq.shape                                                 # doctest: +SKIP
    (7616, 4, 320)
    """
    generate(
        name,
        out,
        seed=seed,
        scale=scale,
        samples=samples,
        workers=workers,
        engine=engine,
        scene=scene,
        cfo_from=cfo_from,
        show_progress=show_progress,
    )
    return load(out)


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


def _check_space(folder: Path, needed: int) -> None:
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DataError(
            f"{folder}: the set needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free. "
            "Free space, choose another --out, or a smaller --scale or --samples."
        )
