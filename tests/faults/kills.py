"""Commands that are killed and run again: the same bytes, nothing left over, no process that outlives its parent."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.readers import ROOT

ORPHANS_S = 5.0  # that the processes of a killed command have to notice it
LIMIT_S = 300.0  # for a command that is not killed
# Of descriptions: what may differ between two runs. Digests cover it; arrays: which of its two names a pair has.
TIMES = ("seconds", "machine", "made", "digest", "arrays")


@dataclass(frozen=True)
class Command:
    """arguments: of `pisa`, with the places of inputs and output. make: its inputs, in a folder."""

    make: Callable[[Path], None]
    arguments: Callable[[Path, Path], list[str]]


@dataclass(frozen=True)
class Kill:
    """One kill, and what was found after the second run. moment: s after the start, or at the n-th new file."""

    command: str
    moment: str
    finished: bool  # all its files were there before it was killed
    differs: tuple[str, ...]  # files that are not those of an undisturbed run, or not there
    left_over: tuple[str, ...]
    orphans: int
    error: str = ""

    @property
    def faults(self) -> list[str]:
        found = {"error": self.error, "difference": self.differs, "litter": self.left_over, "orphan": self.orphans}
        return [name for name, value in found.items() if value]


def _nothing(folder: Path) -> None:
    folder.mkdir()


def _recordings(folder: Path) -> None:
    from pisa_capc.data.frames import load
    from pisa_capc.signal.formats import export_dataset
    from tests.datasets import write_random

    frames = load(write_random(folder / "set", devices=8, captures=["L1", "L2", "M"], frames=20, samples=320))
    export_dataset("npz", frames, folder / "a.npz")


def _small_set(folder: Path) -> None:
    from tests.problems import write_small

    write_small(folder / "set")


def _protocol(folder: Path) -> None:
    from tests.evidence.benchmark.tools import write_protocol

    _small_set(folder)
    write_protocol(folder)


def _scores(folder: Path) -> None:
    from tests.decide.calibration.streams import stream

    heard = stream((0, 1, 2), frames=200)
    folder.mkdir()
    np.savez(folder / "scores.npz", embedding=heard.embedding, logits=heard.logits, capture=heard.capture)


def _model(folder: Path) -> None:
    """A model of three devices, and frames of a fourth."""
    from pisa_capc.model.training import fit
    from tests.problems import runs, small_frames, write_small

    folder.mkdir()
    [model] = fit(runs(small_frames(frames=20)), encoder="cnn", epochs=1, batch=16, device="cpu", show=False)
    model.save(folder / "run")
    write_small(folder / "set", environments=("E2",), devices=1)


def _seen(folder: Path) -> None:
    """A trained model beside the dataset it is from."""
    from pisa_capc.data.frames import load
    from pisa_capc.model.training import fit
    from tests.problems import runs

    _small_set(folder)
    [model] = fit(runs(load(folder / "set")), method="single", encoder="cnn", epochs=1, batch=16, device="cpu")
    model.save(folder / "run")


def _recording(folder: Path) -> None:
    from tests.signal.detection.senders import conversation
    from tests.signal.recordings.tools import encoded

    folder.mkdir()
    for i in range(6):
        (folder / f"roof{i}.cs16").write_bytes(encoded(conversation(), "cs16"))


def _export(inputs: Path, out: Path) -> list[str]:
    return ["export", "hdf5", f"{inputs / 'set'}", "--antenna", "0", "--out", f"{out}"]


def _simulate(inputs: Path, out: Path) -> list[str]:
    return ["simulate", "wifi", "--out", f"{out}", "--scale", "0.002", "--samples", "320", "--workers", "2"]


def _import(inputs: Path, out: Path) -> list[str]:
    return ["import", "npz", f"{inputs / 'a.npz'}", "--out", f"{out}"]


def _train(inputs: Path, out: Path) -> list[str]:
    sizes = ["--epochs", "2", "--batch", "16", "--encoder", "cnn", "--device", "cpu"]
    return ["train", f"{inputs / 'set'}", "--source", "E2,E3", "--target", "E1", "--out", f"{out}", *sizes]


def _fit(inputs: Path, out: Path) -> list[str]:
    return ["calibrate", "fit", f"{inputs / 'scores.npz'}", "--out", f"{out}", "--force"]


def _bench(inputs: Path, out: Path) -> list[str]:
    places = ["--data", f"{inputs / 'set'}", "--results", f"{out / 'results'}", "--work", f"{out / 'work'}"]
    sizes = ["--device", "cpu", "--workers", "2", "--only", "method=single"]
    return ["bench", "run", f"{inputs / 'quick.yaml'}", *places, *sizes]


def _enrol(inputs: Path, out: Path) -> list[str]:
    named = ["--device-name", "new", "--anyway", "--device", "cpu", "--out", f"{out}"]
    return ["enrol", f"{inputs / 'run'}", f"{inputs / 'set'}", *named]


def _report(inputs: Path, out: Path) -> list[str]:
    sizes = ["--kind", "confusion,captures", "--device", "cpu"]
    return ["report", f"{inputs / 'run'}", "--data", f"{inputs / 'set'}", "--out", f"{out / 'page.html'}", *sizes]


def _figures(inputs: Path, out: Path) -> list[str]:
    sizes = ["--kind", "confusion,captures", "--device", "cpu"]
    return ["figures", f"{inputs / 'run'}", f"{inputs / 'set'}", "--out", f"{out}", *sizes]


def _export_model(inputs: Path, out: Path) -> list[str]:
    return ["export-model", f"{inputs / 'run'}", "--out", f"{out / 'model.onnx'}"]


def _detect(inputs: Path, out: Path) -> list[str]:
    plain = ["--sample-rate", "20e6", "--carrier", "5.2e9", "--antennas", "2", "--samples", "320"]
    return ["detect", *(f"{inputs}/roof{i}.cs16" for i in range(6)), *plain, "--out", f"{out}"]


COMMANDS = {  # those that take longest come first
    "bench run": Command(_protocol, _bench),
    "train": Command(_small_set, _train),
    "simulate": Command(_nothing, _simulate),
    "detect": Command(_recording, _detect),
    "import": Command(_recordings, _import),
    "export": Command(_recordings, _export),
    "enrol": Command(_model, _enrol),
    "calibrate fit": Command(_scores, _fit),
    "report": Command(_seen, _report),
    "figures": Command(_seen, _figures),
    "export-model": Command(_seen, _export_model),
}


def shares(kills: int, commands: Iterable[str] = tuple(COMMANDS)) -> dict[str, int]:
    """The kills that each command gets, one after the other in turn."""
    names = list(commands)
    return {name: share for i, name in enumerate(names) if (share := len(range(i, kills, len(names))))}


def kill(
    name: str, kills: int, seed: int, until: float = math.inf, done: Callable[[], None] = lambda: None
) -> list[Kill]:
    """Kill a command as many times, or until time is over; their moments are evenly spread, random, and at new files.

    until: on the clock of time.monotonic.
    """
    command, found = COMMANDS[name], list[Kill]()
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command.make(folder / "inputs")
        out = folder / "out"  # always the same: descriptions may name it
        arguments = command.arguments(folder / "inputs", out)
        started = time.perf_counter()
        undisturbed = _start(arguments, folder)
        first_file_s = _wait_for_file(undisturbed, folder, 1) - started
        if error := _end(undisturbed, folder):
            return [Kill(name, "none", False, (), (), 0, error)]
        took_s = time.perf_counter() - started
        expected = content(out)
        for i in range(kills):
            if time.monotonic() >= until:
                break
            shutil.rmtree(out, ignore_errors=True)
            process = _start(arguments, folder)
            moment = _wait_for_moment(process, folder, i, kills, rng, (first_file_s, took_s, len(expected)))
            process.kill()
            process.wait()
            orphans = _orphans(process.pid)
            finished = content(out) == expected
            error = "" if finished else _end(_start(arguments, folder), folder)
            after = content(out)
            differs = tuple(key for key, value in expected.items() if after.get(key) != value)
            beside = {path.name for path in folder.iterdir()} - {"inputs", "out", "errors"}
            left_over = tuple(sorted({*after, *beside} - set(expected)))
            found.append(Kill(name, moment, finished, differs, left_over, orphans, error))
            done()
    return found


def _wait_for_moment(
    process: subprocess.Popen[bytes],
    folder: Path,
    i: int,
    kills: int,
    rng: np.random.Generator,
    usual: tuple[float, float, int],
) -> str:
    """Wait for the moment of the i-th kill; which one that was. usual: s to the first file and to the end, files."""
    began, (first_file_s, took_s, most) = time.perf_counter(), usual
    if i % 3 == 2:
        files = int(rng.integers(1, max(2, most)))
        _wait_for_file(process, folder, files)
        return f"file {files}"
    share = float(rng.random()) if i % 3 else (i // 3 + 0.5) / (-(-kills // 3))
    # Before anything is written there is nothing to lose: most kills come after that.
    at_s = 0.9 * first_file_s + share * (took_s - 0.9 * first_file_s)
    with suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, began + at_s - time.perf_counter()))
    return f"{at_s:.2f} s"


def _start(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """The command in a session of its own, by which its processes are known."""
    with (folder / "errors").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pisa_capc", *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Wait for a command that is not killed; what it said where it failed."""
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return f"did not end within {LIMIT_S:g} s"
    return "" if code == 0 else f"exit code {code}: {(folder / 'errors').read_text(errors='replace')[-500:]}"


def _wait_for_file(process: subprocess.Popen[bytes], folder: Path, count: int) -> float:
    """Until it has written that many files, temporary ones among them, or has ended; when that was."""
    while process.poll() is None and _written(folder) < count:
        time.sleep(0.001)
    return time.perf_counter()


def _written(folder: Path) -> int:
    """Files of a command: those in all folders but that of its inputs."""
    own = [path for path in folder.iterdir() if path.is_dir() and path.name != "inputs"]
    return sum(len(files) for path in own for _, _, files in os.walk(path))


def _orphans(session: int) -> int:
    """Processes of a session that are still there after a while; they are ended."""
    until = time.monotonic() + ORPHANS_S
    while (left := _members(session)) and time.monotonic() < until:
        time.sleep(0.05)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    while _members(session):
        time.sleep(0.01)
    return len(left)


def _members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def content(folder: Path) -> dict[str, str]:
    """A digest of every file in a folder; of descriptions, without what differs between two runs."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = b"" if path.name == ".lock" else path.read_bytes()  # it says which process had it
            if path.suffix == ".json":
                data = json.dumps(_timeless(json.loads(data)), sort_keys=True).encode()
            name = path.relative_to(folder).as_posix()
            first = name.replace(".2.safetensors", ".safetensors")  # a pair has one name or the other, never both
            found[name if first in found else first] = hashlib.sha256(data).hexdigest()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _timeless(inner) for key, inner in value.items() if key not in TIMES}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value
