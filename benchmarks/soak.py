"""Weeks in minutes: a listener with what befalls it, one figure each.

    make soak [ARGS="--seconds 3600 --kills 200 --times 1000 --out results/speed/soak.json"]

- memory: of a listener and its finder, what they share counted once, while 500 frames of 10,000 made-up senders arrive
  every second, in real time, at a radio's 20 MS/s. Of each sixtieth of the time the least, which is what stays between
  two batches of samples, for these are as large as the machine is busy; the most of all; the ring's share.
- clocks: the system's clock jumps an hour ahead and back again and again; decisions and alarms as without.
- full disk: --out, --alarms and --state on a disk that fills up and has room again (a tmpfs; needs root).
- comes and goes: a TCP source that ends its connection 1,000 times.
- kills: SIGKILL at random moments; no number and no frame twice, no alarm that was reported is begun again.

Everything stays on this machine. The last line is one JSON object, which --out keeps.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.detect import RATE_HZ, SEED, noise
from benchmarks.listen import AIR, ANTENNAS, CS16, INSTANT, MESSAGE, address, as_cs16, kills, scene, trained
from benchmarks.report import begin, machine, show_table
from pisa_capc.core.provenance import made
from pisa_capc.core.randomness import generator
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.live.listen import Event, Listener, ListenPlan, open_source
from pisa_capc.live.listen.alarms import Alarm
from pisa_capc.live.listen.output import Lines
from pisa_capc.live.listen.ring import Ring
from pisa_capc.model.inference import TrainedModel, load_model
from pisa_capc.signal.detection import FoundFrame

SENDERS, PART = 10_000, 1000  # made-up senders, and how many of them are made at a time
SPACING, OCTETS = 2000, 20  # samples from one frame to the next, octets of each
LOOKS, EVERY_S = 60, 1.0  # parts of the time in which memory is watched, and between looks at it
HOUR_S = 3600.0
DISK_MIB = 6
FRAMES_A_SECOND = 500  # that `memory` stands for


@dataclass
class Played:
    """A file of samples, as fast as they are looked at."""

    path: Path
    pause_s: float = 0.0  # after a piece
    patient: bool = True
    connected: bool = True
    name: str = "file"

    def read_into(self, ring: Ring, stop: threading.Event, note: Callable[[str], None]) -> None:
        piece = np.empty(MESSAGE * INSTANT, dtype=np.uint8)
        with self.path.open("rb") as file:
            while not stop.is_set() and (size := file.readinto(memoryview(piece))):
                ring.write(piece[:size])
                time.sleep(self.pause_s)


@dataclass
class OnTheAir:
    """`FRAMES_A_SECOND` frames of a file, again and again, each followed by noise, at the pace of a radio."""

    path: Path
    seconds: float
    patient: bool = False
    connected: bool = True
    name: str = "radio"

    def read_into(self, ring: Ring, stop: threading.Event, note: Callable[[str], None]) -> None:
        frame = np.empty(SPACING * INSTANT, dtype=np.uint8)
        pause = noise(generator(SEED, "soak", "noise"), ANTENNAS, int(RATE_HZ) // FRAMES_A_SECOND - SPACING)
        quiet = as_cs16(pause)
        began = time.monotonic()
        with self.path.open("rb") as file:
            for i in range(int(self.seconds * FRAMES_A_SECOND)):
                if not file.readinto(memoryview(frame)):
                    file.seek(0)
                    file.readinto(memoryview(frame))
                if stop.wait(max(0.0, began + i / FRAMES_A_SECOND - time.monotonic())):
                    return
                ring.write(frame)
                ring.write(quiet)


# Memory.


def listening(folder: Path, seconds: float, talk: Connection) -> None:
    """A process of its own, with nothing in it but a listener; at its end it says what it has heard."""
    decided, alarms = 0, set[int]()
    lines = Lines(folder / "out.jsonl", most_bytes=1 << 20)

    def take(event: Event) -> None:
        nonlocal decided
        lines.write(event)
        decided += isinstance(event, FoundFrame)
        if isinstance(event, Alarm):
            alarms.add(event.number)

    torch.set_num_threads(1)
    plan = ListenPlan(
        addresses={address(d): f"D{d + 1:02d}" for d in range(10)},
        **{"state": folder / "state", "alarms": folder / "alarms", "alarms_bytes": 16 << 20},
    )
    listener = Listener(load_model(folder / "run"), OnTheAir(folder / "air.cs16", seconds), AIR, plan, note=print)
    talk.send(None)
    listener.run(take)
    status = listener.status()
    talk.send({"decided": decided, "alarms": len(alarms), "samples": status.samples, "missed": status.missed})


def memory(model: TrainedModel, seconds: float) -> dict[str, Any]:
    """MiB of a listener and its finder, and what of them is the ring."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save(folder / "run")
        with (folder / "air.cs16").open("wb") as file:
            for first in range(0, SENDERS, PART):
                file.write(scene(PART, SPACING, OCTETS, False, addresses=SENDERS, first=first).data.tobytes())
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("spawn").Process(target=listening, args=(folder, seconds, there))
        child.start()
        there.close()
        here.recv()
        began, held, before_s = time.monotonic(), list[float](), _cpu_s(child.pid)
        while not here.poll(min(EVERY_S, seconds / LOOKS)):
            held.append(_resident_mib(child.pid))
            past_s = time.monotonic() - began
            cores = (_cpu_s(child.pid) - before_s) / past_s
            if len(held) % LOOKS == 0:
                low, high = min(held[-LOOKS:]), max(held[-LOOKS:])
                print(f"memory: {past_s:,.0f} s, {low:.1f} to {high:.1f} MiB, {cores:.2f} cores", flush=True)
        told = here.recv()
        child.join()
        snippets = len(list((folder / "alarms").glob("*.sigmf-meta")))
    parts = [float(part.min()) for part in np.array_split(held, LOOKS)]
    sixth = parts[LOOKS // 6 - 1]
    return {
        "minutes": round(seconds / 60, 1),
        "frames sent": int(seconds * FRAMES_A_SECOND),
        "frames decided": told["decided"],
        "senders": SENDERS,
        "samples": told["samples"],
        "samples missed": told["missed"],
        "MiB at a sixth": round(sixth, 1),
        "MiB at the end": round(parts[-1], 1),
        "change": round(parts[-1] / sixth - 1, 4),
        "most MiB": round(max(held), 1),
        "ring MiB": round(ListenPlan().buffer_s * AIR.sample_rate_hz * INSTANT / 2**20),
        "cores": round(cores, 2),
        "alarms": told["alarms"],
        "snippets kept": snippets,
        "ended well": child.exitcode == 0,
    }


def _resident_mib(process: int | None) -> float:
    """Of a process and all that it started: their own pages, and once the ring and the libraries, which they share.

    Not Pss, of which the libraries' part depends on whatever else runs on the machine.
    """
    own, shared = 0, Counter[str]()
    for path in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError, ValueError, KeyError):
            lines = dict(line.split(":", 1) for line in path.read_text(encoding="utf-8").splitlines())
            if process in (int(lines["Pid"]), int(lines["PPid"])):
                own += int(lines["RssAnon"].split()[0])
                shared |= Counter({name: int(lines[name].split()[0]) for name in ("RssShmem", "RssFile")})
    return (own + shared.total()) / 1024


def _cpu_s(process: int | None) -> float:
    """CPU time of a process and all that it started."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            if process in (int(path.parent.name), int(fields[1])):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# What is heard of a file, with what happens meanwhile.


def heard(
    model: TrainedModel, folder: Path, take: Callable[[Event], None], pause_s: float = 0.0, **plan: Any
) -> list[str]:
    """All notes of a listener of the file in a folder; devices' addresses belong to others, so alarms are raised."""
    notes: list[str] = []
    addresses = {address(d): f"D{(d + 1) % 10 + 1:02d}" for d in range(10)}
    own = ListenPlan(addresses=addresses, save_every_s=0.1, alarm_every_s=60.0, **plan)
    source = Played(folder / "air.cs16", pause_s)
    Listener(model, source, AIR, own, note=notes.append).run(take)
    return notes


def clocks(model: TrainedModel) -> dict[str, Any]:
    """The same file twice: with a clock that jumps, and without."""
    told: list[tuple[list[tuple[int, float, str | None]], list[tuple[str, str | None]]]] = []
    real, jumps = time.time, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "air.cs16").write_bytes(scene(600, 4000, 40, False).data.tobytes())
        for jumping in (False, True):
            frames: list[tuple[int, float, str | None]] = []
            alarms: list[tuple[str, str | None]] = []
            numbers: set[int] = set()

            def take(
                event: Event, jumping: Any = jumping, frames: Any = frames, alarms: Any = alarms, numbers: Any = numbers
            ) -> None:
                nonlocal jumps
                if isinstance(event, FoundFrame):
                    frames.append((event.start, event.time_s, event.who.device))
                    if jumping and len(frames) % 50 == 0:
                        jumps += 1
                        off = HOUR_S * (0, 1, -1)[jumps % 3]
                        time.time = lambda: real() + off
                elif isinstance(event, Alarm) and event.number not in numbers:
                    numbers.add(event.number)
                    alarms.append((event.kind, event.address))

            try:
                heard(model, folder, take)
            finally:
                time.time = real
            told.append((frames, alarms))
    (frames, alarms), (jumped, also) = told
    return {
        "jumps": jumps,
        "frames": len(jumped),
        "decided otherwise": len(set(frames) ^ set(jumped)),
        "alarms": len(also),
        "alarms otherwise": len((Counter(alarms) - Counter(also)) + (Counter(also) - Counter(alarms))),
    }


@contextmanager
def small_disk() -> Iterator[Path | None]:
    """A disk of `DISK_MIB`; None where none can be mounted."""
    with tempfile.TemporaryDirectory() as name:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", name]
        mounted = shutil.which("mount") is not None and not subprocess.run(command, capture_output=True).returncode
        try:
            yield Path(name) if mounted else None
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", name], check=False)


def full_disk(model: TrainedModel) -> dict[str, Any]:
    """A third of the frames with room, a third without, a third with room again."""
    with tempfile.TemporaryDirectory() as name, small_disk() as disk:
        if disk is None:
            return {"skipped": "no tmpfs can be mounted here"}
        folder, decided, alarms = Path(name), 0, set[int]()
        air = scene(900, 4000, 40, False)
        (folder / "air.cs16").write_bytes(air.data.tobytes())
        notes: list[str] = []
        lines = Lines(disk / "out.jsonl", note=notes.append)

        def take(event: Event) -> None:
            nonlocal decided
            lines.write(event)
            if isinstance(event, FoundFrame):
                decided += 1
                if decided == 300:
                    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                        while filler.write(bytes(4096)):
                            pass
                elif decided == 600:
                    (disk / "filler").unlink()
            elif isinstance(event, Alarm):
                alarms.add(event.number)

        kept = {"state": disk / "state", "alarms": disk / "alarms", "alarms_bytes": 1 << 20}
        notes += heard(model, folder, take, pause_s=0.03, **kept)  # states are saved meanwhile
        lines.close()
        last = json.loads((disk / "out.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        saved = json.loads((disk / "state" / "listen.json").read_text(encoding="utf-8"))
    named = {part for part in ("out.jsonl", "state", "alarms") if any(part in note for note in notes)}
    return {
        "frames": len(air.length),
        "decided": decided,
        "alarms raised": len(alarms),
        "named as full": sorted(named),
        "written again": any("is written again" in note for note in notes),
        "last line number": last["number"],
        "state has decisions": saved["given"][0],
    }


def comes_and_goes(model: TrainedModel, times: int) -> dict[str, Any]:
    """A server on this machine that sends some frames, ends the connection, and so on."""
    air = scene(20, 4000, 40, False).data.tobytes()
    server = socket.create_server(("127.0.0.1", 0))
    sent = 0

    def serve() -> None:
        nonlocal sent
        for _ in range(times):
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.sendall(air)
                sent += 1
        listener.stop()

    source = open_source(f"tcp:127.0.0.1:{server.getsockname()[1]}", antennas=ANTENNAS, encoding=CS16)
    listener, decided = Listener(model, source, AIR, ListenPlan()), 0

    def take(event: Event) -> None:
        nonlocal decided
        decided += isinstance(event, FoundFrame)

    thread, before, began = threading.Thread(target=serve, daemon=True), _open_files(), time.monotonic()
    thread.start()
    listener.run(take)
    server.close()
    return {
        "connections": sent,
        "decided of sent": round(decided / (20 * max(1, sent)), 4),
        "descriptors left open": _open_files() - before + 1,  # the server's own is closed
        "seconds": round(time.monotonic() - began),
    }


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="of real time in which memory is watched")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--times", type=int, default=100, help="that the source comes and goes")
    parser.add_argument("--only", help="one part: kills, clocks, disk, source or memory")
    parser.add_argument("--out", type=Path, help="file of the record; parts that are not run stay as they are there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = trained("", "closed-form")
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "kills": lambda: kills(model, options.kills),  # first: a process with the threads of a runtime is not forked
        "clocks": lambda: clocks(model),
        "disk": lambda: full_disk(model),
        "source": lambda: comes_and_goes(model, options.times),
        "memory": lambda: memory(model, options.seconds),
    }
    found: dict[str, Any] = {}
    if options.out is not None and options.out.is_file():
        found = json.loads(options.out.read_text(encoding="utf-8"))["parts"]
    for name, part in parts.items():
        if options.only in (None, name):
            found[name] = {**part(), "machine": machine(), "made": made()}
            show_table(name, [{k: v for k, v in found[name].items() if k not in ("machine", "made")}])
    record = json.dumps({"benchmark": "Weeks in minutes", "parts": found}, indent=1)
    if options.out is not None:
        write_text_atomic(options.out, record + "\n")
    print(record)


if __name__ == "__main__":
    begin(main)
