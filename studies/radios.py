"""Real radios: three Plutos whose waveform is known from a file, five sensors of one model that are on-off keyed, and
two recordings of Wi-Fi.

    git clone https://github.com/IshaChid76/RF-Fingerprinting-of-5G-Cellular-Devices
    git clone https://github.com/JustinHolzer/RFfingerprint
    git clone https://github.com/merbanan/rtl_433_tests
    git clone https://github.com/jhshi/openofdm
    make study-radios ARGS="--data FOLDER --out results/studies/radios.json"

FOLDER holds `pluto/`, the captures of the first (matlab/5G_SDR_Waveforms/txPluto*_rxPluto0_txfile50_*.mat) with what
was sent, of the second (modulate_waveform/50_UL_FRC_1Frames_5MHzBW_16QAM.mat); `sl109h/`, of the third
(tests/oregon_scientific/sl109h); and `openofdm/`, the folder testing_inputs of the fourth. No network is trained, and
nothing is chosen by a score. The last line is one JSON object.

Plutos: each capture in turn is left out, and the devices are learnt from the others; a frame is a part of a capture.
Sensors: the earlier half of the recordings is learnt and the later one asked, and the warm ones are learnt and those
below `COLD_C` asked. A recording that cannot be measured counts as wrong.
Wi-Fi: how far apart the flaws of groups of frames are, in standard errors of their means: of one radio within a
recording, of two radios, and of one radio by cable and over the air.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from benchmarks.report import begin
from numpy.typing import NDArray
from scipy.stats import beta

from pisa_capc import detect, load, measure, open_recording
from pisa_capc.core.errors import DataError
from pisa_capc.core.progress import progress
from pisa_capc.core.provenance import machine, made
from pisa_capc.core.randomness import generator
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.model.gaussian import fit_backend
from pisa_capc.signal.detection.dataset import read_frames
from pisa_capc.signal.formats import ImportOptions, import_dataset
from pisa_capc.signal.formats.cuts import open_reference
from pisa_capc.signal.measurement.keyed import QUANTITIES, KeyedEstimator
from pisa_capc.signal.measurement.reference import measure_against

SENT = "50_UL_FRC_1Frames_5MHzBW_16QAM.mat"
PLUTOS = "txPluto{device}_rxPluto0_txfile50_{capture}.mat"
FLAWS = ("image", "leakage", "compression")
ALL = "all"
COLD_C = 10.0
OPENOFDM = {  # recording: the file of openofdm, or as it may be kept
    "cable": ("conducted/dot11a_6mbps_qos_data_e4_90_7e_15_2a_16_e8_de_27_90_6e_42.dat", "conducted-11a-6mbps.cs16"),
    "air": ("radiated/dot11n_6.5mbps.dat", "radiated-11n-6.5mbps.cs16"),
}
ACCESS_POINT = "e8:de:27:90:6e:42"
DRAWS, SEED = 2000, 2026  # of recordings, for intervals

Real = NDArray[np.float64]
Numbers = NDArray[np.int64]


def decided(value: Real, error: Real, device: Numbers, place: Numbers, learnt: Real, asked: Real) -> Numbers:
    """(asked,) devices by the Gaussian back-end, learnt from some frames; −1 for one that could not be measured."""
    good = np.isfinite(value).all(axis=1)
    source, target = learnt & good, asked & good
    scale = np.sqrt(np.mean([np.var(value[source & (device == k)], axis=0) for k in np.unique(device[source])], axis=0))
    x, r = value / scale, error / np.multiply.outer(scale, scale)
    known, number = np.unique(device[source], return_inverse=True)
    backend = fit_backend(x[source], r[source], number, place[source], [str(k) for k in known])
    found = np.full(len(value), -1)
    found[target] = known[backend.log_likelihood(backend.evidence(x[target], r[target])).argmax(axis=1)]
    return found[asked]


def scored(truth: Numbers, answer: Numbers) -> dict[str, Any]:
    """Macro-F1 over the devices that were asked, with a 95 % interval by a bootstrap over recordings, and how many are
    right, with that of Clopper and Pearson."""
    kinds, classes = np.unique(truth), int(max(truth.max(), answer.max())) + 1

    def f1(t: Numbers, a: Numbers) -> float:
        return float(
            np.mean([2 * np.sum((t == k) & (a == k)) / max(1, np.sum(t == k) + np.sum(a == k)) for k in kinds])
        )

    rng = generator(SEED, "radios", classes)
    drawn = [rng.integers(0, len(truth), len(truth)) for _ in range(DRAWS)]
    right, n = int(np.sum(truth == answer)), len(truth)
    share = [float(beta.ppf(0.025, right, n - right + 1)) if right else 0.0]
    share.append(float(beta.ppf(0.975, right + 1, n - right)) if right < n else 1.0)
    low, high = np.quantile([f1(truth[rows], answer[rows]) for rows in drawn], [0.025, 0.975]).tolist()
    return {"macro_f1": f1(truth, answer), "interval": [low, high], "right": right, "of": n, "right_interval": share}


def plutos(data: Path, work: Path) -> dict[str, Any]:
    """Each capture in turn is left out."""
    captures = work / "captures"
    captures.mkdir()
    for path in sorted(data.glob("txPluto*.mat")):
        (captures / path.name).symlink_to(path.resolve())
    import_dataset("iq", captures, work / "plutos", ImportOptions(pattern=PLUTOS))
    frames = load(work / "plutos")
    found = measure_against(frames, open_reference(data / SENT, frames.sample_rate_hz))
    measured = found.measurement.without(["compression-5"])
    capture = found.sender * len(found.places) + found.place
    results = {}
    for names in (*[(name,) for name in FLAWS], FLAWS):
        columns = [measured.flaws.index(name) for name in names]
        theta, covariance = measured.value[:, columns], measured.covariance[:, columns][:, :, columns] / 2
        value = np.concatenate([theta.real, theta.imag], axis=1).astype(np.float64)
        bars = np.block([[covariance.real, -covariance.imag], [covariance.imag, covariance.real]])
        bars = bars * np.maximum(1, measured.misfit)[:, None, None]
        answer = np.empty(len(value), dtype=np.int64)
        for left_out in np.unique(capture):
            asked = capture == left_out
            answer[asked] = decided(value, bars, found.sender, capture, ~asked, asked)
        results[names[0] if len(names) == 1 else ALL] = scored(found.sender, answer)
    image = measured.value[:, measured.flaws.index("image")]
    rows = [
        {
            "device": found.names[int(found.sender[own][0])],
            "capture": found.places[int(found.place[own][0])],
            "image": [[float(v.real), float(v.imag)] for v in image[own]],
            "cfo_hz": float(np.mean(found.cfo_hz[own])),
            "snr_db": float(np.mean(measured.snr_db[own])),
            "misfit": float(np.mean(measured.misfit[own])),
        }
        for own in (capture == k for k in np.unique(capture))
    ]
    return {"captures": rows, "leave one capture out": results}


def sensors(data: Path, work: Path) -> dict[str, Any]:
    """The ids and temperatures are those that rtl_433 decoded."""
    import_dataset("iq", data, work / "sensors", ImportOptions())
    frames = load(work / "sensors")
    found = KeyedEstimator(frames.sample_rate_hz).measure(frames.iq)
    when, temperature = heard(data, list(frames.devices), frames.device, frames.frame)
    order = np.argsort(when, kind="stable")
    early = np.zeros(len(order), dtype=bool)
    early[order[: len(order) // 2]] = True
    cold = temperature < COLD_C
    device, place = frames.device.astype(np.int64), np.zeros(len(order), dtype=np.int64)
    chosen = {
        "all": list(QUANTITIES),
        "without offset": [name for name in QUANTITIES if name != "offset"],
        "offset alone": ["offset"],
    }
    results: dict[str, Any] = {}
    for name, learnt, asked in (("early to late", early, ~early), ("warm to cold", ~cold, cold)):
        results[name] = {"learnt": int(learnt.sum())}
        for kind, names in chosen.items():
            columns = [found.names.index(own) for own in names]
            part = found.value[:, columns], found.covariance[:, columns][:, :, columns]
            results[name][kind] = scored(device[asked], decided(*part, device, place, learnt, asked))
    rows = [
        {
            "device": frames.devices[device[n]],
            "hours": float((when[n] - when.min()) / 3600),
            "temperature_c": float(temperature[n]),
            "pulses": int(found.pulses[n]),
            "value": [float(v) for v in found.value[n]],
        }
        for n in order
    ]
    return {"quantities": list(found.names), "recordings": rows, "results": results}


def heard(data: Path, devices: Sequence[str], device: Numbers, frame: Numbers) -> tuple[Real, Real]:
    """(N,) time and temperature of each frame: recordings of a device are numbered in the order of their names."""
    by_device: dict[str, list[tuple[float, float]]] = {name: [] for name in devices}
    for path in sorted(data.glob("*.cu8")):
        events = [json.loads(line) for line in path.with_suffix(".json").read_text().splitlines() if line.strip()]
        names = {f"{event['model']}-{event['id']}" for event in events}
        if len(names) == 1:
            by_device[names.pop()].append((float(path.name.partition(".")[0]), float(events[0]["temperature_C"])))
    found = np.array([by_device[devices[k]][n] for k, n in zip(device, frame, strict=True)])
    return found[:, 0], found[:, 1]


def wifi(data: Path, work: Path) -> dict[str, Any]:
    """Preambles of every frame of both recordings, and how far groups of them are apart."""
    rows = [row for place, names in OPENOFDM.items() for row in preambles(place, _one_of(data, names), work)]

    def group(place: str, access_point: bool, half: int | None = None) -> list[dict[str, Any]]:
        own = [row for row in rows if row["recording"] == place and (row["sender"] == ACCESS_POINT) == access_point]
        middle = len(own) // 2
        return own if half is None else [own[:middle], own[middle:]][half]

    pairs = {
        "cable: its data frames and its answers": (group("cable", True), group("cable", False)),
        "cable: earlier and later data frames": (group("cable", True, 0), group("cable", True, 1)),
        "air: earlier and later frames": (group("air", True, 0), group("air", True, 1)),
        "air: its frames and those of others": (group("air", True), group("air", False)),
        "cable and air": (group("cable", True), group("air", True)),
    }
    return {"frames": rows, "pairs": {name: apart(*pair) for name, pair in pairs.items()}}


def _one_of(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder}: holds neither {' nor '.join(names)}. Clone https://github.com/jhshi/openofdm.")


def preambles(place: str, path: Path, work: Path) -> list[dict[str, Any]]:
    """Flaws, offset and sender of every frame of a recording; a frame whose sender cannot be read has none."""
    samples = work / f"{place}.cs16"
    samples.symlink_to(path.resolve())
    frames, each = read_frames([detect(open_recording(samples, sample_rate_hz=20e6, antennas=1, carrier_hz=5.2e9))])
    senders = [str((one.header.fcs and one.header.transmitter) or "") for one in each]
    found = measure(frames, "wifi", [name or "(none)" for name in senders], ())
    columns = {flaw: found.measurement.flaws.index(flaw) for flaw in ("image", "leakage")}
    return [
        {
            "recording": place,
            "sender": sender,
            "kind": one.header.kind,
            "cfo_hz": float(found.cfo_hz[n]),
            "snr_db": float(found.measurement.snr_db[n].mean()),
            **{
                flaw: [float(part(found.measurement.value[n, column])) for part in (np.real, np.imag)]
                for flaw, column in columns.items()
            },
        }
        for n, (sender, one) in enumerate(zip(senders, each, strict=True))
    ]


def apart(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Distance of the means of two groups of frames: of a flaw √(Δᵀ(S₁/n₁ + S₂/n₂)⁻¹Δ), S their scatter."""
    found: dict[str, Any] = {"frames": [len(first), len(second)]}
    for flaw in ("image", "leakage"):
        one, two = (np.array([row[flaw] for row in rows]) for rows in (first, second))
        delta = one.mean(axis=0) - two.mean(axis=0)
        scatter = np.cov(one.T) / len(one) + np.cov(two.T) / len(two)
        found[flaw] = float(np.linalg.norm(delta))
        found[f"{flaw}_errors"] = float(np.sqrt(delta @ np.linalg.solve(scatter, delta)))
    offset = [np.array([row["cfo_hz"] for row in rows]) for rows in (first, second)]
    found["cfo_hz"] = float(abs(offset[0].mean() - offset[1].mean()))
    found["cfo_errors"] = found["cfo_hz"] / float(np.sqrt(sum(own.var(ddof=1) / len(own) for own in offset)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pluto/, sl109h/ and openofdm/")
    parser.add_argument("--out", type=Path, help="write the record here")
    given = parser.parse_args()
    sets: dict[str, Any] = {}
    parts = {"pluto": plutos, "sl109h": sensors, "openofdm": wifi}
    if absent := [name for name in parts if not (given.data / name).is_dir()]:
        raise DataError(
            f"{given.data}: holds no {', '.join(absent)}. `python -m studies.radios --help` says what is where."
        )
    with TemporaryDirectory() as folder, progress("radios", len(parts)) as bar:
        for name, study in parts.items():
            sets[name] = study(given.data / name, Path(folder))
            bar.advance(note=name)
    record = {"study": "radios", "sets": sets, "seed": SEED, "draws": DRAWS, "cold_c": COLD_C}
    record |= {"machine": machine(), "made": made()}
    if given.out is not None:
        write_text_atomic(given.out, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    begin(main)
