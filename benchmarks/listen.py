"""How well a listener keeps up, on two cores: four antennas at 20 MS/s through ZMQ, in real time.

    make bench-listen [ARGS="--seconds 20 --frames 120000 --kills 25"]

Real time: a publisher in a process of its own sends cs16 with GNU Radio's tag headers, 500 frames a second, a tenth of
the time on the air; then the same samples at slower paces, until none is missed, or (`--every-pace`) at all. Other
paces by `--paces`: twice a radio's is for this machine what a radio is for one half as fast. By onnxruntime
(`--engine onnx`), where it is installed, and by PyTorch; or by a model that was not trained in epochs (`--method
closed-form`), as often as `--runs` says. Delay: from the moment when the last sample of a frame is due
by the publisher's clock to its decision. Cores: CPU time for a second of the publisher, of the listener's process that
receives and decides, and of the one that finds frames.
Calibrating: CPU time for a frame, and of the longest call, frame by frame, where what is learnt is computed at once and
in the background.
Memory: of both processes while frames are replayed as fast as they are decided, four minutes' worth by default and an
hour's with --frames 1800000, from addresses that come and go, with state, alarms and lines on disk.
Kills: a listener of a file is killed (SIGKILL) at random moments and started again: its state must be readable, no
number and no frame may be decided twice.
The last line is one JSON object with all figures.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.detect import ANTENNAS, RATE_HZ, SEED, SIFS_SAMPLES, noise, received
from benchmarks.online import CLASSES, FEATURES, made_up
from benchmarks.report import begin, show, show_table
from pisa_capc.core.randomness import generator
from pisa_capc.data.frames import Frames
from pisa_capc.data.geometry import square
from pisa_capc.data.protocol import split
from pisa_capc.decide.calibration import Online, OnlineCalibrator
from pisa_capc.live.listen import Air, Event, Listener, ListenPlan, open_source
from pisa_capc.live.listen.output import Lines
from pisa_capc.live.listen.recognise import LAG
from pisa_capc.live.listen.ring import Ring
from pisa_capc.live.listen.sources import FileSource
from pisa_capc.live.listen.sources.zeromq import FIXED, MAGIC, VERSION
from pisa_capc.model.edge import export_model, on_onnx
from pisa_capc.model.edge.engine import FILE
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.phy.wifi import mac, transmit
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms.wifi import PREAMBLE_SAMPLES, preamble

CS16 = Encoding.named("cs16")
AIR = Air(RATE_HZ, ANTENNAS, CS16, 5.825e9)
INSTANT = ANTENNAS * CS16.sample_bytes  # bytes
MESSAGE = 32768  # samples
DEVICES = 10
EXCHANGE = 80_000  # samples from one data frame to the next, with its acknowledgement: 500 frames a second
OCTETS, DATA_MBPS = 970, 24.0  # a tenth of the time on the air
LOOP = 100  # data frames that are sent again and again
PACES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of a radio's clock


def address(device: int) -> str:
    return f"02:00:00:00:{1 + (device >> 8):02x}:{device & 255:02x}"


# The model and the air.


def flawed(device: int, iq: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """What a device makes of a waveform: an image and a leaking carrier of its own."""
    rng = generator(SEED, "bench-listen", "device", str(device))
    image, leak = 0.04 * (rng.normal(size=(2, 2)) @ [1, 1j])
    return iq + image * iq.conj() + leak


def trained(encoder: str, method: str | None = None) -> TrainedModel:
    """A model of ten devices, trained for as long as speed needs it; or one of a method that takes no time."""
    rng = generator(SEED, "bench-listen", "training")
    sent = np.asarray(preamble(), dtype=np.complex128)
    labels = [(e, d) for e in ("E1", "E2", "E3") for d in range(DEVICES) for _ in range(60)]
    iq = np.stack([received(rng, flawed(d, sent), ANTENNAS, 25.0, 0.0, True) for _, d in labels])
    iq += np.stack([noise(rng, ANTENNAS, PREAMBLE_SAMPLES) for _ in labels])
    frames = Frames.from_arrays(
        iq,
        device=[f"D{d + 1:02d}" for _, d in labels],
        environment=[e for e, _ in labels],
        cfo_hz=rng.normal(0, 1e3, (len(labels), ANTENNAS)),
        geometry=square(),
    )
    run = Run(split(frames, ["E2", "E3"], "E1", SEED), SEED)
    how: dict[str, Any] = {"encoder": encoder, "epochs": 2, "batch": 64} if method is None else {"method": method}
    [model] = fit(run, device="cpu", show=False, **how)
    return model


@dataclass(frozen=True)
class Scene:
    """Samples that are sent again and again. data: cs16 bytes. length: by a frame's first sample, its samples."""

    data: NDArray[np.uint8]
    length: dict[int, int]

    @property
    def samples(self) -> int:
        return len(self.data) // INSTANT


def scene(
    exchanges: int, spacing: int, octets: int, acknowledged: bool, addresses: int = DEVICES, first: int = 0
) -> Scene:
    """Data frames of the devices in turn, and their acknowledgements; addresses from the first of so many on."""
    rng = generator(SEED, "bench-listen", "scene")
    iq, length = noise(rng, ANTENNAS, exchanges * spacing), dict[int, int]()
    for i in range(exchanges):
        device, start = i % DEVICES, i * spacing + 1000
        psdu = mac.data(address(99), address((first + i) % addresses), address(99), rng.bytes(octets))
        frames = [(device, transmit(psdu, DATA_MBPS, int(rng.integers(1, 128))))]
        frames += [((device + 1) % DEVICES, transmit(mac.ack(address(device)), 24.0, 1))] * acknowledged
        for sender, frame in frames:
            cfo_hz = 1e4 * (sender - DEVICES / 2)
            iq[:, start : start + len(frame)] += received(rng, flawed(sender, frame), ANTENNAS, 25.0, cfo_hz, True)
            length[start] = len(frame)
            start += len(frame) + SIFS_SAMPLES
    return Scene(as_cs16(iq), length)


def as_cs16(iq: NDArray[np.complex64]) -> NDArray[np.uint8]:
    """Samples (A, n) as bytes, instant by instant."""
    values = np.clip(32768 * np.ascontiguousarray(iq.T).view(np.float32), -32768, 32767).astype("<i2")
    return values.reshape(-1).view(np.uint8)


def publish(data: NDArray[np.uint8], seconds: float, pace: float, talk: Connection) -> None:
    """A GNU Radio sink that passes tags, at the pace of a radio, and that costs as little as it can.

    Messages are made once; of those that are sent again only the header is new, after all of them have left.
    """
    import zmq

    size = MESSAGE * INSTANT
    messages = [bytearray(FIXED.size) + data[at : at + size].tobytes() for at in range(0, len(data) - size + 1, size)]
    context = zmq.Context()
    sink = context.socket(zmq.XPUB)
    sink.setsockopt(zmq.SNDHWM, len(messages) // 2)
    talk.send(sink.bind_to_random_port("tcp://127.0.0.1"))
    sink.poll()
    sink.recv()
    count, each_s = int(seconds * pace * RATE_HZ / MESSAGE), MESSAGE / RATE_HZ / pace
    began = time.monotonic() + 0.2
    talk.send(began)
    cpu = time.process_time()
    for i in range(count):
        late = began + (i + 1) * each_s - time.monotonic()
        if late > 0:
            time.sleep(late)
        message = messages[i % len(messages)]
        FIXED.pack_into(message, 0, MAGIC, VERSION, i * MESSAGE, 0)
        sink.send(message, copy=False)
    cpu = time.process_time() - cpu
    time.sleep(1.0)
    talk.send((count * MESSAGE, cpu))
    context.destroy(linger=1000)


def real_time(model: TrainedModel, air: Scene, seconds: float, pace: float) -> dict[str, Any]:
    """What is missed, and how long decisions take. pace: of the radio's clock against ours."""
    loop = air.samples // MESSAGE * MESSAGE
    here, there = multiprocessing.Pipe()
    publisher = multiprocessing.get_context("fork").Process(target=publish, args=(air.data, seconds, pace, there))
    publisher.start()
    source = open_source(f"zmq:tcp://127.0.0.1:{here.recv()}", antennas=ANTENNAS, encoding=CS16)
    listener = Listener(model, source, AIR, ListenPlan(addresses={address(d): f"D{d + 1:02d}" for d in range(DEVICES)}))
    heard: list[tuple[float, int]] = []
    runner = threading.Thread(target=listener.run, args=(lambda event: _note(event, heard),))
    runner.start()
    began, before = here.recv(), _cpu_s(publisher.pid)
    sent, publishing = here.recv()
    deciding, finding = (after - then for after, then in zip(_cpu_s(publisher.pid), before, strict=True))
    listener.stop()
    runner.join()
    publisher.join()
    delays_ms = [
        1e3 * (at - began - (start + air.length[start % loop]) / RATE_HZ / pace)
        for at, start in heard
        if start % loop in air.length
    ]
    expected = sum(1 for i in range(-(-sent // loop)) for start in air.length if i * loop + start < sent)
    status = listener.status()
    p50, p99 = np.percentile(delays_ms, [50, 99]) if delays_ms else (None, None)
    return {
        "seconds": seconds,
        "times real time": pace,
        "samples sent": sent,
        "missed": status.missed + sent - status.samples,
        "frames/s": len(heard) / seconds,
        "decided of sent": len(heard) / expected,
        "p50 ms": p50,
        "p99 ms": p99,
        "cores deciding": deciding / seconds,
        "cores finding": finding / seconds,
        "cores of the publisher": publishing / seconds,
    }


def _cpu_s(publisher: int | None) -> tuple[float, float]:
    """CPU time of this process so far, and that of its children but the publisher."""
    found = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and path.parent.name != str(publisher):
                found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return time.process_time(), found


def at_paces(
    model: TrainedModel, air: Scene, seconds: float, paces: Sequence[float], every: bool
) -> Iterator[dict[str, Any]]:
    """At one pace after the other until nothing is missed, or at every pace."""
    for pace in paces:
        row = real_time(model, air, seconds, pace)
        yield row
        if not row["missed"] and not every:
            return


def _note(event: Event, heard: list[tuple[float, int]]) -> None:
    if isinstance(event, FoundFrame):
        heard.append((time.monotonic(), event.start))


# Calibrating.


def calibrating(model: TrainedModel, frames: int = 6000) -> list[dict[str, Any]]:
    """What it costs, frame by frame, with one thread of BLAS as in a listener."""
    rows = []
    with threadpool_limits(1):
        for learnt, lag in (("at once", 0), ("in the background", LAG)):
            given = CLASSES, FEATURES, True, Online(lag=lag), model.statistics
            stream, cpu_s, total_s = OnlineCalibrator.usual(*given), list[float](), time.process_time()
            for z, logits, cfo_hz in made_up(frames, 1):
                began_s = time.thread_time()
                stream.push(z, logits, cfo_hz)
                cpu_s.append(time.thread_time() - began_s)
            total_s = time.process_time() - total_s
            row = {
                "by": stream.by,
                "learnt": learnt,
                "ms a frame": 1e3 * total_s / frames,
                "longest ms": 1e3 * max(cpu_s),
            }
            rows.append(row)
    return rows


# Memory.


@dataclass
class Replay:
    """Samples again and again, as fast as they are looked at, until `enough`."""

    data: NDArray[np.uint8]
    enough: Callable[[], bool]
    patient: bool = True
    connected: bool = True
    name: str = "replay"

    def read_into(self, ring: Ring, stop: threading.Event, note: Callable[[str], None]) -> None:
        while not stop.is_set() and not self.enough():
            for piece in np.array_split(self.data, len(self.data) // (MESSAGE * INSTANT)):
                ring.write(piece)


def memory(model: TrainedModel, frames: int) -> dict[str, Any]:
    """Resident memory of both processes in MiB, after a tenth of the frames and at the end, and the most in between."""
    air = scene(1000, 4000, 40, acknowledged=False, addresses=250)
    decided, resident = 0, list[float]()
    began = time.monotonic()

    with tempfile.TemporaryDirectory() as folder:
        lines = Lines(Path(folder) / "out.jsonl", most_bytes=1 << 20)

        def take(event: Event) -> None:
            nonlocal decided
            lines.write(event)
            decided += isinstance(event, FoundFrame)
            if isinstance(event, FoundFrame) and decided % max(1, frames // 20) == 0:
                resident.append(_resident_mib())

        source = Replay(air.data, lambda: decided >= frames)
        kept = {"state": Path(folder) / "state", "alarms": Path(folder) / "alarms"}
        plan = ListenPlan(**kept, save_every_s=2.0, alarm_every_s=60.0, own_process=True)
        Listener(model, source, AIR, plan).run(take)
        lines.close()
    later = resident[2:] or resident
    return {
        "frames": decided,
        "MiB at a tenth": later[0],
        "MiB at the end": later[-1],
        "most MiB": max(later),
        "frames/s": decided / (time.monotonic() - began),
    }


def _resident_mib() -> float:
    """Of this process and its children; what they share is counted in each."""
    held = 0
    for path in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            lines = dict(line.split(":", 1) for line in path.read_text(encoding="utf-8").splitlines())
            if os.getpid() in (int(lines["Pid"]), int(lines["PPid"])):
                held += int(lines.get("VmRSS", "0").split()[0])
    return held / 1024


# Kills.


def kills(model: TrainedModel, count: int) -> dict[str, Any]:
    """A listener of a file that is killed again and again."""
    rng = generator(SEED, "bench-listen", "kills")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        air = scene(max(400, 60 * count), 4000, 40, acknowledged=False)
        (folder / "air.cs16").write_bytes(air.data.tobytes())
        out = folder / "out.jsonl"
        killed = 0
        for _ in range(10 * count):
            if killed == count:
                break
            killed += _killed(model, folder, out, int(rng.integers(1, 30)), float(rng.uniform(0, 0.03)))
        child = _child(model, folder)
        child.join()
        lines = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
    numbers = [line["number"] for line in lines if line["event"] == "decision"]
    causes: dict[tuple[str, ...], set[int]] = {}
    for line in lines:
        if line["event"] == "alarm":
            causes.setdefault((line["kind"], str(line["address"]), str(line["device"])), set()).add(line["number"])
    given = [number for own in causes.values() for number in own]
    starts = [line["start"] for line in lines if line["event"] == "decision"]
    return {
        "kills": killed,
        "decisions": len(numbers),
        "numbers twice": len(numbers) - len(set(numbers)),
        "frames twice": len(starts) - len(set(starts)),
        "frames unsaid": len(air.length) - len(set(starts)),
        "alarms": len(causes),
        "alarms begun twice": len(given) - len(causes),
        "alarm numbers twice": len(given) - len(set(given)),
        "state back": child.exitcode == 0,
    }


def _child(model: TrainedModel, folder: Path) -> Any:
    child = multiprocessing.get_context("fork").Process(target=_listen, args=(model, folder))
    child.start()
    return child


def _listen(model: TrainedModel, folder: Path) -> None:
    lines = Lines(folder / "out.jsonl")
    others = {address(d): f"D{(d + 1) % DEVICES + 1:02d}" for d in range(DEVICES)}  # so alarms are raised
    plan = ListenPlan(addresses=others, state=folder / "state", save_every_s=0.05, own_process=True)

    def say(event: Event) -> None:
        lines.write(event)
        time.sleep(0.001)  # as who reads them may take: moments to be killed at

    Listener(model, FileSource(folder / "air.cs16"), AIR, plan).run(say)


def _killed(model: TrainedModel, folder: Path, out: Path, lines: int, later_s: float) -> bool:
    """Whether a listener was killed before its end: some time after it has said so many lines more."""
    before = _lines_of(out)
    child = _child(model, folder)
    while child.is_alive() and _lines_of(out) < before + lines:
        time.sleep(0.002)
    time.sleep(later_s)
    if child.is_alive():
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    return bool(child.exitcode == -signal.SIGKILL)


def _lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def engines(model: TrainedModel, method: str | None) -> Iterator[tuple[str, TrainedModel]]:
    """The model computed by what is installed; one of a method under its name."""
    if method is not None:
        yield method, model
        return
    if find_spec("onnxruntime") is not None:
        with tempfile.TemporaryDirectory() as folder:
            export_model(model, Path(folder) / FILE)
            yield "onnxruntime", on_onnx(model, Path(folder))
    yield "PyTorch", model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of real time, at each pace")
    parser.add_argument("--paces", type=float, nargs="+", default=PACES, help="times that of a radio")
    parser.add_argument("--every-pace", action="store_true", help="also those after one where nothing is missed")
    parser.add_argument("--frames", type=int, default=120_000, help="while memory is watched; an hour has 1800000")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--encoder", default="cnn")
    parser.add_argument("--method", help="of a model without epochs in the encoder's place: closed-form")
    parser.add_argument("--runs", type=int, default=1, help="of real time, one after the other")
    chosen = parser.parse_args()
    if min(chosen.paces) <= 0:
        parser.error(f"--paces: found {min(chosen.paces):g}, expected numbers above 0, as 1 2")
    torch.set_num_threads(1)
    model = trained(chosen.encoder, chosen.method)
    air = scene(LOOP, EXCHANGE, OCTETS, acknowledged=True)
    facts: dict[str, Any] = {}
    if chosen.kills:  # first: a process with the threads of a runtime must not be forked
        facts["kills"] = kills(model, chosen.kills)
        show_table("Killed at random moments", [facts["kills"]])
    how = chosen.seconds, chosen.paces, chosen.every_pace
    rows = [
        {"by": name, **row}
        for name, own in engines(model, chosen.method)
        for _ in range(chosen.runs)
        for row in at_paces(own, air, *how)
    ]
    if chosen.method is None:
        facts["calibrating"] = calibrating(model)
        show_table("Calibrating", facts["calibrating"])
    if chosen.frames:
        facts["memory"] = memory(model, chosen.frames)
        show_table("Memory", [facts["memory"]])
    show("Listening in real time: four antennas at 20 MS/s through ZMQ", rows, facts)


if __name__ == "__main__":
    begin(main)
