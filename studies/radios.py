"""Real radios: three Plutos whose waveform is known from a file, and five sensors of one model that are on-off keyed.

    git clone https://github.com/IshaChid76/RF-Fingerprinting-of-5G-Cellular-Devices
    git clone https://github.com/JustinHolzer/RFfingerprint
    git clone https://github.com/merbanan/rtl_433_tests
    make study-radios ARGS="--data FOLDER --out results/studies/radios.json"

FOLDER holds `pluto/`, the captures of the first (matlab/5G_SDR_Waveforms/txPluto*_rxPluto0_txfile50_*.mat) with what
was sent, of the second (modulate_waveform/50_UL_FRC_1Frames_5MHzBW_16QAM.mat); and `sl109h/`, of the third
(tests/oregon_scientific/sl109h). No network is trained, and nothing is chosen by a score. The last line is one JSON
object.

Plutos: each capture in turn is left out, and the devices are learnt from the others; a frame is a part of a capture.
Sensors: the earlier half of the recordings is learnt and the later one asked, and the warm ones are learnt and those
below `COLD_C` asked. A recording that cannot be measured counts as wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from pisa_capc import load
from pisa_capc.core.progress import progress
from pisa_capc.core.provenance import machine, made
from pisa_capc.core.randomness import generator
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.model.gaussian import fit_backend
from pisa_capc.signal.formats import ImportOptions, import_dataset
from pisa_capc.signal.formats.cuts import open_reference
from pisa_capc.signal.measurement.keyed import QUANTITIES, KeyedEstimator
from pisa_capc.signal.measurement.reference import measure_against

SENT = "50_UL_FRC_1Frames_5MHzBW_16QAM.mat"
PLUTOS = "txPluto{device}_rxPluto0_txfile50_{capture}.mat"
FLAWS = ("image", "leakage", "compression")
ALL = "all"
COLD_C = 10.0
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pluto/ and sl109h/")
    parser.add_argument("--out", type=Path, help="write the record here")
    given = parser.parse_args()
    sets: dict[str, Any] = {}
    with TemporaryDirectory() as folder, progress("radios", 2) as bar:
        for name, study in (("pluto", plutos), ("sl109h", sensors)):
            sets[name] = study(given.data / name, Path(folder))
            bar.advance(note=name)
    record = {"study": "radios", "sets": sets, "seed": SEED, "draws": DRAWS, "cold_c": COLD_C}
    record |= {"machine": machine(), "made": made()}
    if given.out is not None:
        write_text_atomic(given.out, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
