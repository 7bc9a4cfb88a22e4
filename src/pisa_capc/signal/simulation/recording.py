"""A continuous recording of a scene as a SigMF pair: several devices that send whole frames, with the truth beside it.

Devices and places are those of the dataset of the same scene and seed, so what was trained on its frames can be tried
on the recording. Offsets of the oscillators are left in, as a receiver hears them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from threadpoolctl import threadpool_limits

from pisa_capc.core.engines import check_engine, run_jobs
from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.core.progress import progress
from pisa_capc.data.store.files import atomic, new_file, write_text_atomic
from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.signal.recordings.sigmf import DATA, META, as_text
from pisa_capc.signal.simulation.capture import recording_snr_db
from pisa_capc.signal.simulation.generate import DEFAULT_SEED, REVISION, check_space
from pisa_capc.signal.simulation.networks import NETWORKS, Network
from pisa_capc.signal.simulation.scene import Scene, load_scene
from pisa_capc.signal.simulation.stream import INTERFERERS, SEGMENT_SAMPLES, Arrival, Interferer, Reception
from pisa_capc.signal.simulation.traffic import Spoof, Traffic, Transmission
from pisa_capc.signal.simulation.truth import metadata, spoofed
from pisa_capc.signal.waveforms import WAVEFORMS

BLOCK_SEGMENTS = 16  # of one job; nothing but the speed depends on it
LONGEST_S = 24 * 3600.0
MOST_UNKNOWN = 1000
INTERFERER_DB, LOUDEST_DB = 15.0, 60.0


@dataclass(frozen=True)
class Recorded:
    """What was written. collided, spoofed, unknown: frames of each sort. clipped: numbers beyond full scale."""

    recording: str
    seconds_recorded: float
    antennas: int
    samples: int
    devices: int
    frames: int
    collided: int
    spoofed: int
    unknown: int
    clipped: int
    bytes_written: int
    seconds: float

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Cast:
    """Who takes part: devices of the scene, devices that its dataset does not have, and who takes whose address."""

    enrolled: tuple[str, ...]
    unknown: tuple[str, ...]
    spoofs: tuple[Spoof, ...]

    @property
    def senders(self) -> tuple[str, ...]:
        return self.enrolled + self.unknown


def record(
    name: str,
    out: str | Path,
    recording: Annotated[
        float, "Seconds: make a continuous recording, a SigMF pair with the truth as annotations, and no dataset."
    ],
    *,
    environment: Annotated[str | None, "Environment: where it is recorded; by default the scene's first."] = None,
    capture: Annotated[str | None, "Capture: which of its captures; by default the scene's first."] = None,
    devices: Annotated[str | None, "Who sends, as D01,D02; by default all devices of the scene."] = None,
    unknown: Annotated[int, "Further senders, which the scene's dataset does not have."] = 0,
    duty: Annotated[float, "Part of the time in which a device transmits; 0 gives noise alone."] = 0.1,
    rates: Annotated[
        str | None,
        "Rates of data frames. Wi-Fi: Mb/s, those of HT too (6.5, 13, …), by default all eight non-HT ones. LoRa: "
        "spreading factors, by default 7.",
    ] = None,
    spoof: Annotated[
        str | None, "D03:D01@1.5: D03 takes the address of D01 after 1.5 s; without @ after half of the recording."
    ] = None,
    collisions: Annotated[float, "Part of the exchanges into which another device sends."] = 0.0,
    interferer: Annotated[
        str | None, f"A tone all along: {', '.join(INTERFERERS)}; carrier:20 is one of 20 dB over the noise."
    ] = None,
    take: Annotated[int, "Names traffic and noise: another recording of the same devices and places."] = 0,
    seed: int = DEFAULT_SEED,
    workers: int | None = None,
    engine: str = "local",
    scene: str | Path | None = None,
    show_progress: bool = True,
) -> Recorded:
    """Write a recording to a folder; `pisa simulate --help` says the options in words.

    The samples depend on the options alone, and not on the number of workers. In a script, call this under
    `if __name__ == "__main__":` where there is more than one worker.
    """
    started = time.perf_counter()
    check_engine(engine, workers)
    chosen = load_scene(name, None if scene is None else Path(scene))
    network = _network(chosen)
    length = _length(recording, chosen.waveform.sample_rate_hz)
    cast = _cast(chosen, devices, unknown, spoof, length)
    _check_share("duty", duty)
    _check_share("collisions", collisions)
    if collisions and len(cast.senders) < 2:
        raise ConfigError(f"collisions: {cast.senders[0]} is the only sender. Name two --devices, or leave it out.")
    place = (
        _among("environment", environment, list(chosen.environments)),
        _among("capture", capture, list(chosen.captures)),
    )
    heard = _heard(chosen, seed, place, take, length, cast.senders, interferer)
    traffic = Traffic(network, cast.senders, _rates(network, rates), cast.spoofs, heard.stream("traffic"))
    sent = traffic.plan(length, duty, collisions)
    meta = Path(out) / f"{place[0]}-{place[1]}-{take}{META}"
    new_file(meta)
    size = length * _sample_bytes(heard)
    check_space(Path(out), size, "the recording", "--recording")
    data = meta.with_suffix(DATA)
    digest, clipped, snr_db = write_samples(data, heard, sent, engine, workers, show_progress)
    made_with = {
        "command": f"pisa simulate {Path(name).name} --recording {recording:g}",
        "revision": REVISION,
        "seed": seed,
        "take": take,
        "duty": duty,
        "collisions": collisions,
        "spoof": spoof,
        "clipped": clipped,
    }
    described = metadata(heard, sent, snr_db, cast.enrolled, digest, made_with)
    # The metadata comes last: a recording without it is not there yet.
    write_text_atomic(meta, as_text(described))
    return Recorded(
        recording=str(meta),
        seconds_recorded=length / chosen.waveform.sample_rate_hz,
        antennas=chosen.receiver.geometry.antennas,
        samples=length,
        devices=len(cast.senders),
        frames=len(sent),
        collided=sum(one.collides for one in sent),
        spoofed=sum(spoofed(heard, one) for one in sent),
        unknown=sum(one.message.device in cast.unknown for one in sent),
        clipped=clipped,
        bytes_written=size,
        seconds=time.perf_counter() - started,
    )


def write_samples(
    data: Path, heard: Reception, sent: Sequence[Transmission], engine: str, workers: int | None, show_progress: bool
) -> tuple[str, int, dict[int, list[float]]]:
    """Write the data file; its SHA-512, how many numbers were clipped, and each frame's SNR on the antennas."""
    clipped, snr_db = 0, dict[int, list[float]]()
    with atomic(data) as temporary:
        with temporary.open("wb") as file:
            file.truncate(heard.length * _sample_bytes(heard))
        jobs = list(_jobs(temporary, heard, sent))
        with progress("record", total=len(jobs), show=show_progress) as bar:
            for beyond, levels in run_jobs(write_block, jobs, engine, workers):
                clipped += beyond
                snr_db.update(levels)
                bar.advance()
        with temporary.open("rb") as file:
            digest = hashlib.file_digest(file, "sha512").hexdigest()
    return digest, clipped, snr_db


def _jobs(data: Path, heard: Reception, sent: Sequence[Transmission]) -> Iterator[tuple[Any, ...]]:
    """Blocks of segments, each with the frames that reach into it."""
    reach = [heard.reach(one) for one in sent]
    segments = -(-heard.length // SEGMENT_SAMPLES)
    for first in range(0, segments, BLOCK_SEGMENTS):
        last = min(first + BLOCK_SEGMENTS, segments)
        begin, end = first * SEGMENT_SAMPLES, last * SEGMENT_SAMPLES
        here = [one for one, (from_, to) in zip(sent, reach, strict=True) if from_ < end and to > begin]
        yield data, heard, first, last, here


def write_block(
    data: Path, heard: Reception, first: int, last: int, sent: Sequence[Transmission]
) -> tuple[int, dict[int, list[float]]]:
    """One job: compute the segments from `first` up to `last` and write them at their place in the file.

    Returns how many numbers were clipped, and the SNR on each antenna of the frames that begin here.
    """
    clipped, snr_db = 0, dict[int, list[float]]()
    waiting, active = list(sent), list[Arrival]()
    # One thread per process: the processes fill the cores, and sums keep one order.
    with threadpool_limits(1), data.open("r+b") as file:
        file.seek(first * SEGMENT_SAMPLES * _sample_bytes(heard))
        for index in range(first, last):
            begin, end = index * SEGMENT_SAMPLES, (index + 1) * SEGMENT_SAMPLES
            while waiting and heard.reach(waiting[0])[0] < end:
                one = waiting.pop(0)
                active.append(heard.arrival(one))
                if one.start >= first * SEGMENT_SAMPLES:
                    snr_db[one.number] = active[-1].snr_db.tolist()
            active = [arrival for arrival in active if arrival.stop > begin]
            samples, beyond = heard.segment(index, active)
            clipped += beyond
            file.write(samples.data)
    return clipped, snr_db


def _sample_bytes(heard: Reception) -> int:
    """Bytes of one sample on all antennas: two 16-bit numbers each."""
    return 4 * heard.scene.receiver.geometry.antennas


def _network(scene: Scene) -> Network:
    """What the devices of a scene say to each other."""
    kind, rate_hz = scene.waveform.kind, scene.waveform.sample_rate_hz
    if kind not in NETWORKS:
        raise ConfigError(f"recording: whole frames are known of {', '.join(NETWORKS)}; the scene sends {kind}.")
    if rate_hz != WAVEFORMS[kind].sample_rate_hz:
        raise ConfigError(
            f"recording: {kind} frames are made at {WAVEFORMS[kind].sample_rate_hz:g} samples a second; the scene has "
            f"waveform.sample_rate_hz: {rate_hz:g}."
        )
    return NETWORKS[kind]


def _length(seconds: float, rate_hz: float) -> int:
    if not 1e-3 <= seconds <= LONGEST_S:
        raise ConfigError(f"recording: expected 0.001 to {LONGEST_S:g} seconds, found {seconds:g}.")
    return round(seconds * rate_hz)


def _cast(scene: Scene, devices: str | None, unknown: int, spoof: str | None, length: int) -> Cast:
    known = list(dict.fromkeys(spec.device for spec in scene.layout()))
    enrolled = known if devices is None else _listed("devices", devices)
    for name in enrolled:
        _among("device", name, known)
    if not 0 <= unknown <= MOST_UNKNOWN:
        raise ConfigError(f"unknown: expected 0 to {MOST_UNKNOWN} devices, found {unknown}.")
    # The devices that a larger scene of the same seed would have.
    further = [f"D{scene.devices + i:02d}" for i in range(1, unknown + 1)]
    duration_s = length / scene.waveform.sample_rate_hz
    texts = [] if spoof is None else _listed("spoof", spoof)
    return Cast(
        tuple(enrolled),
        tuple(further),
        tuple(_spoof(text, [*enrolled, *further], known, duration_s, length) for text in texts),
    )


def _spoof(text: str, senders: Sequence[str], known: Sequence[str], duration_s: float, length: int) -> Spoof:
    """'D03:D01@1.5' → D03 sends with the address of D01 from 1.5 s on."""
    names, _, moment = text.partition("@")
    device, colon, victim = names.partition(":")
    try:
        share = float(moment) / duration_s if moment else 0.5
    except ValueError:
        share = -1.0
    if not colon or not 0 <= share < 1:
        raise ConfigError(
            f"spoof: expected SPOOFER:DEVICE@SECONDS, as D03:D01@1.5, within the {duration_s:g} s of the recording; "
            f"found {text!r}."
        )
    _among("device", device, senders)
    _among("device", victim, known)
    if device == victim:
        raise ConfigError(f"spoof: {device} cannot take its own address. Name two devices, as D03:D01.")
    return Spoof(device, victim, round(share * length))


def _rates(network: Network, rates: str | None) -> Sequence[float]:
    if rates is None:
        return network.usual
    names = {f"{rate:g}": rate for rate in network.rates}
    return [names[_among("rate", name, list(names))] for name in _listed("rates", rates)]


def _heard(
    scene: Scene,
    seed: int,
    place: tuple[str, str],
    take: int,
    length: int,
    senders: Sequence[str],
    interferer: str | None,
) -> Reception:
    """The place and its loudest signal, which sets the scale of the stored numbers."""
    if take < 0:
        raise ConfigError(f"take: expected a number from 0 on, found {take}.")
    environment, capture = place
    heard = Reception(scene, seed, environment, capture, take, length, strongest_db=0.0)
    frames = scene.captures[capture].frames
    tone = None if interferer is None else _interferer(heard, interferer)
    specs = [CaptureSpec(environment, device, capture, frames) for device in senders]
    levels = [recording_snr_db(scene, seed, spec) for spec in specs] + ([] if tone is None else [tone.level_db])
    return Reception(scene, seed, environment, capture, take, length, max(0.0, *levels), tone)


def _interferer(heard: Reception, text: str) -> Interferer:
    """'carrier:20' → a tone somewhere in the band, 20 dB over the noise."""
    kind, _, level = text.partition(":")
    _among("interferer", kind, INTERFERERS)
    try:
        level_db = float(level) if level else INTERFERER_DB
    except ValueError:
        level_db = float("nan")
    if not -LOUDEST_DB <= level_db <= LOUDEST_DB:
        raise ConfigError(
            f"interferer: expected a level of {-LOUDEST_DB:g} to {LOUDEST_DB:g} dB over the noise, as {kind}:20; "
            f"found {text!r}."
        )
    waveform = heard.scene.waveform
    place = heard.stream("interferer").uniform(-0.5, 0.5)
    frequency_hz = 0.0 if kind == "dc" else place * waveform.occupied * waveform.sample_rate_hz
    return Interferer(kind, round(frequency_hz, 3), level_db)


def _among(kind: str, name: str | None, known: Sequence[str]) -> str:
    """A name that must be known; the first where none is given."""
    if name is not None and name not in known:
        raise ConfigError(unknown_name(kind, name, known))
    return known[0] if name is None else name


def _listed(option: str, text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ConfigError(f"{option}: expected names separated by commas, found {text!r}.")
    return names


def _check_share(option: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ConfigError(f"{option}: expected a number from 0 on and below 1, found {value}.")
