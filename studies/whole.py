"""How much more a whole frame tells than its preamble: error bars, identity and unknown devices by how much is used.

    make study-whole ARGS="--out results/studies/whole.json"

Ten transmitters with the hardware of the scenes `wifi` and `lora` send frames with random payloads from two places
and, to be decided on, from a third. Channels are drawn anew for each frame and antenna and move while it lasts; phase
noise and sampling clocks are those of the scene, and a carrier offset is left as a receiver leaves it. A frame whose
checksum is right at its SNR is rebuilt from its bits and measured on more and more samples; else its preamble is. Of
each SNR and length: the standard deviation of image and leakage that frames give themselves (median), how often their
95 % intervals hold what the transmitter has (without noise, static), Macro-F1, and with three of ten devices unknown
the AUROC of the likelihood ratio.

--recordings names a folder with two recordings of openofdm (github jhshi/openofdm, `testing_inputs`, as .cs16): then
these are measured both ways, and nothing is simulated. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc import detect, measure, open_recording
from pisa_capc.cli.output import print_table
from pisa_capc.core.engines import run_jobs
from pisa_capc.core.provenance import machine, made
from pisa_capc.core.randomness import generator
from pisa_capc.data.scores import macro_f1, openset_score
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.model.gaussian import fit_backend
from pisa_capc.signal.detection.dataset import read_frames, whole_frames
from pisa_capc.signal.measurement import FlawEstimator
from pisa_capc.signal.measurement.whole import Behind, Whole, behind, with_data
from pisa_capc.signal.phy import lora, wifi
from pisa_capc.signal.phy.wifi import mac
from pisa_capc.signal.simulation.hardware import DeviceProfile, draw_profile, phase_noise_rad, transmit
from pisa_capc.signal.simulation.scene import load_scene
from pisa_capc.signal.waveforms import WAVEFORMS
from studies.cards import REAL

ANTENNAS, DEVICES, PLACES = 4, 10, 3
TAPS = {"wifi": 6, "lora": 2}
DECAY = {"wifi": 0.5, "lora": 0.1}  # of power, from tap to tap
OCTETS = {"wifi": 700, "lora": 12}
LENGTHS = {"wifi": (640, 1280, 5120, 19200), "lora": (16384, 32768)}
DOPPLER_HZ = {"wifi": 40.0, "lora": 5.0}
LEFT_HZ = {"wifi": 500.0, "lora": 3.0}  # of the carrier offset, at random
SOURCE_DB, ASKED_DB = (15.0, 30.0), (0.0, 5.0, 10.0, 20.0)
FRAMES, ASKED, STATIC = 10, 12, 6  # of each device: in each source place, in the target at each SNR, for the truth
UNKNOWN, DRAWS = 3, 10
SEED = 2026

Complex = NDArray[np.complexfloating[Any, Any]]
Real = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Sent:
    """A frame (T,) as its bits say, and as it leaves a transmitter."""

    known: Complex
    sent: Complex


def drawn(kind: str, profile: DeviceProfile, random: np.random.Generator) -> Sent:
    body = random.bytes(OCTETS[kind])
    if kind == "wifi":
        psdu = mac.data("02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0b", body)
        known = wifi.transmit(psdu, 6, int(random.integers(1, 128)))
    else:
        known = lora.transmit(body, 7, 1, sync_word=0x34)
    return Sent(known, transmit(known, profile, WAVEFORMS[kind].occupied).astype(np.complex128))


def heard(kind: str, frame: Sent, profile: DeviceProfile, snr_db: float, random: np.random.Generator) -> Complex:
    """(A, T) behind a channel that moves, with phase noise, a carrier offset and noise."""
    rate_hz, n = WAVEFORMS[kind].sample_rate_hz, np.arange(len(frame.sent))
    normal = (random.normal(size=(1, len(n), 2)) @ [1, 1j]).astype(np.complex64) / np.float32(np.sqrt(2))
    phase = phase_noise_rad(normal, profile.white_phase_deg, profile.linewidth_hz, rate_hz)[0]
    moved = frame.sent * np.exp(1j * (phase + 2 * np.pi * LEFT_HZ[kind] * random.normal() / rate_hz * n))
    taps = random.normal(size=(2, ANTENNAS, TAPS[kind], 2)) @ [1, 1j] * DECAY[kind] ** (np.arange(TAPS[kind]) / 2)
    turn = 2 * np.pi * DOPPLER_HZ[kind] / rate_hz * n
    y = sum(
        (taps[0, :, k, None] * np.cos(turn) + taps[1, :, k, None] * np.sin(turn)) * np.pad(moved, (k, 0))[: len(n)]
        for k in range(TAPS[kind])
    )
    y = np.asarray(y) / np.sqrt(np.mean(np.abs(y) ** 2))
    noise = (random.normal(size=(*y.shape, 2)) @ [1, 1j]) / np.sqrt(2)
    return np.asarray(y + 10 ** (-snr_db / 20) * noise).astype(np.complex64)


def rebuilt(kind: str, y: Complex) -> Complex | None:
    if kind == "wifi":
        return wifi.rebuild([y], [0.0])[0]
    return lora.rebuild(y, np.zeros(len(y)), lora.Modulation(7))


@dataclass(frozen=True)
class Told:
    """Frames by how many samples are used, 0 for the preamble: values and errors (N, d); and whose they are."""

    values: dict[int, tuple[Real, Real]]
    device: NDArray[np.int64]
    decoded: float


def told(kind: str, estimator: FlawEstimator, frames: list[tuple[int, Complex]]) -> Told:
    known = estimator.waveform
    first = np.stack([y[:, : estimator.samples] for _, y in frames])
    preamble = estimator.measure(first)
    by_length: dict[int, dict[int, Behind]] = {length: {} for length in LENGTHS[kind]}
    signals = [rebuilt(kind, y) for _, y in frames]
    for row, ((_, y), signal) in enumerate(zip(frames, signals, strict=True)):
        for length in LENGTHS[kind] if signal is not None else ():
            cut = length + known.taps[0]
            found = behind(known, Whole(row, y[:, :cut], signal[:cut]), estimator.flaws)
            if found is not None:
                by_length[length][row] = found
    values = {0: preamble.features()}
    values |= {length: with_data(preamble, data).features() for length, data in by_length.items()}
    return Told(values, np.array([device for device, _ in frames]), float(np.mean([s is not None for s in signals])))


def frames_in(
    kind: str, profiles: list[DeviceProfile], count: int, snr_db: tuple[float, float], *purpose: Any
) -> list[tuple[int, Complex]]:
    found = []
    for number, profile in enumerate(profiles):
        random = generator(SEED, "whole frames", kind, *purpose, number)
        for _ in range(count):
            snr = random.uniform(*snr_db)
            found.append((number, heard(kind, drawn(kind, profile, random), profile, snr, random)))
    return found


def truths(kind: str, estimator: FlawEstimator, profiles: list[DeviceProfile]) -> Complex:
    """(K, J') image and leakage of each transmitter as read without noise, in the mean over some frames."""
    rows = []
    for number, profile in enumerate(profiles):
        random = generator(SEED, "whole frames, truth", kind, number)
        some = []
        for _ in range(STATIC):
            frame = drawn(kind, profile, random)
            found = behind(estimator.waveform, Whole(0, frame.sent[None], frame.known), estimator.flaws)
            assert found is not None
            some.append(found.value)
        rows.append(np.mean(some, axis=0))
    return np.array(rows)


def rows_of(kind: str) -> tuple[str, list[dict[str, Any]]]:
    """Of each SNR a row for each length, and first for the preamble."""
    known = WAVEFORMS[kind]
    estimator = FlawEstimator(known)
    spread = load_scene(kind).hardware
    profiles = [draw_profile(spread, ANTENNAS, generator(SEED, "breaking, device", n)) for n in range(DEVICES)]
    truth = truths(kind, estimator, profiles)
    source = [told(kind, estimator, frames_in(kind, profiles, FRAMES, SOURCE_DB, place)) for place in range(PLACES - 1)]
    rows = []
    for snr_db in ASKED_DB:
        rows += rows_at(kind, estimator, profiles, snr_db, truth, source)
    return kind, rows


def rows_at(
    kind: str,
    estimator: FlawEstimator,
    profiles: list[DeviceProfile],
    snr_db: float,
    truth: Complex,
    source: list[Told],
) -> list[dict[str, Any]]:
    names, identity = [str(number) for number in range(DEVICES)], source[0].values[0][0].shape[1] // 2
    device = np.concatenate([own.device for own in source])
    place = np.repeat(np.arange(len(source)), [len(own.device) for own in source])
    rows = []
    asked = told(kind, estimator, frames_in(kind, profiles, ASKED, (snr_db, snr_db), PLACES - 1, f"{snr_db:g} dB"))
    for length, (value, error) in asked.values.items():
        learnt, bars = (np.concatenate([own.values[length][part] for own in source]) for part in (0, 1))
        std = np.sqrt(error.diagonal(0, 1, 2))
        columns = np.r_[0:2, identity : identity + 2]  # image and leakage, both parts
        off = value[:, columns] - np.concatenate([truth.real, truth.imag], axis=1)[asked.device]
        backend = fit_backend(learnt, bars, device, place, names)
        guess = backend.log_likelihood(backend.evidence(value, error)).argmax(axis=1)
        auroc = []
        for draw in range(DRAWS):
            random = generator(SEED, "whole frames, unknown", kind, draw)
            kept = np.sort(random.choice(DEVICES, DEVICES - UNKNOWN, replace=False))
            mine = np.isin(device, kept)
            own = fit_backend(
                learnt[mine], bars[mine], np.searchsorted(kept, device[mine]), place[mine], [names[k] for k in kept]
            )
            score, is_known = own.strangeness(own.evidence(value, error)), np.isin(asked.device, kept)
            right = np.ones(int(is_known.sum()), dtype=bool)
            auroc.append(openset_score(score[is_known], right, score[~is_known]).auroc)
        rows.append(
            {
                "waveform": kind,
                "snr_db": snr_db,
                "samples": length or estimator.samples,
                "preamble": length == 0,
                "decoded": round(asked.decoded, 3),
                "image_bar": float(f"{np.median(np.hypot(std[:, 0], std[:, identity])):.3g}"),
                "leakage_bar": float(f"{np.median(np.hypot(std[:, 1], std[:, identity + 1])):.3g}"),
                "covered": round(float(np.mean(np.abs(off) < 1.96 * std[:, columns])), 3),
                "macro_f1": round(macro_f1(asked.device, guess, DEVICES), 4),
                "auroc": round(float(np.mean(auroc)), 4),
            }
        )
    return rows


def recordings(folder: Path) -> Iterator[dict[str, Any]]:
    """Image and leakage by preambles and by whole frames; how far frames scatter, and how far they say so."""
    for name in REAL:
        found = detect(open_recording(folder / name, sample_rate_hz=20e6, antennas=1, carrier_hz=5.2e9))
        frames, each = read_frames([found])
        senders = [(one.header.fcs and one.header.transmitter) or "(none)" for one in each]
        for how, whole in (("preambles", ()), ("whole frames", whole_frames([found]))):
            measured = measure(frames, "wifi", senders, whole)
            for card in measured.cards:
                own = measured.of(card.name)
                mine = own.measurement.measured & (own.whole | (not card.whole))
                row: dict[str, Any] = {"recording": name, "sender": card.name, "measured": how, "frames": card.frames}
                for flaw in ("image", "leakage"):
                    column = own.measurement.flaws.index(flaw)
                    values = own.measurement.value[mine, column]
                    bars = np.sqrt(own.measurement.covariance[mine, column, column].real)
                    row[flaw] = [round(float(part), 4) for part in (values.mean().real, values.mean().imag)]
                    row[f"{flaw}_scatter"] = round(float(np.std(values)), 4)
                    row[f"{flaw}_bar"] = round(float(np.median(bars)), 4)
                yield row | {"samples": card.samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, help="folder with the real recordings")
    parser.add_argument("--out", type=Path, help="file that keeps the last line")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    options = parser.parse_args()
    made_by = {"study": "whole", "machine": machine(), "made": made()}
    if options.recordings:
        rows = list(recordings(options.recordings))
    else:
        jobs = [(kind,) for kind in LENGTHS]
        parts = dict(run_jobs(rows_of, jobs, workers=options.workers))
        rows = [row for kind in LENGTHS for row in parts[kind]]
        made_by |= {"seed": SEED, "devices": DEVICES, "frames": ASKED * DEVICES, "unknown": UNKNOWN}
    print_table("Whole frames", list(rows[0]), [[str(value) for value in row.values()] for row in rows])
    record = json.dumps({**made_by, "rows": rows})
    if options.out is not None:
        write_text_atomic(options.out, record + "\n")
    print(record)


if __name__ == "__main__":
    main()
