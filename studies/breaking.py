"""What breaks the closed form, and whether it notices: flaws that its model does not have, step by step.

    make study-breaking ARGS="--out results/studies/breaking.json"

Simulator and estimator share their physics, so a simulated set says little about where the method fails. Here ten
transmitters with the hardware of the scene `wifi` stand behind channels that are drawn anew for each frame and antenna,
and one thing after the other is done to them that the estimator does not know. What a transmitter does is in its source
frames as well; what a receiver or the air does is in the target alone. Of each step: Macro-F1 of the closed form, of a
linear discriminant (LDA) on the same flaws, of PISA and of PISA on equalised frames (CNN, trained on the same source
frames, first seed), known devices rejected at a nominal 5 %, and the share of frames that the goodness of fit suspects
at 1 %. How many clean frames it suspects is counted in the four scenes, too. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from pisa_capc import Frames, load
from pisa_capc.cli.output import print_table
from pisa_capc.core.engines import run_jobs
from pisa_capc.core.provenance import machine, made
from pisa_capc.core.randomness import generator
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.protocol import split
from pisa_capc.data.scores import macro_f1
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.model.gaussian import fit_backend
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.measurement import FlawEstimator
from pisa_capc.signal.measurement.fit import GoodnessOfFit
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.simulation.hardware import DeviceProfile, draw_profile, phase_noise_rad, sampling_offset, transmit
from pisa_capc.signal.simulation.scene import load_scene
from pisa_capc.signal.waveforms import WAVEFORMS
from studies.closed_form import SCENES

WAVEFORM, SAMPLES, ANTENNAS, DEVICES = "wifi", 320, 4, 10
PLACES, FRAMES = 3, 100  # of each device in each place; the last place is the target
SNR_DB = (15.0, 30.0)
TAPS, DECAY = 6, 0.5  # of the channel; power from tap to tap
NETWORKS, EPOCHS, BATCH = ("pisa", "pisa-equalised"), 30, 64
SUSPECTED, NOMINAL = 0.01, 0.05
LATE = 40  # samples, beyond the channel that the estimator allows for

Complex = NDArray[np.complexfloating[Any, Any]]
Random = np.random.Generator


@dataclass(frozen=True)
class Step:
    """One thing that is done, as strong as `value`. sent: to what a transmitter sends. received: to target frames."""

    what: str
    value: float
    unit: str
    sent: Callable[[Complex, DeviceProfile, float, Random], Complex] | None = None
    received: Callable[[Complex, float, Random], Complex] | None = None
    phase_noise: float = 1.0
    snr_db: tuple[float, float] | None = None


def with_memory(x: Complex, profile: DeviceProfile, value: float, random: Random) -> Complex:
    """An amplifier whose compression depends on the samples before: + v Σ_k a_k |x[n−k]|² x[n−k]."""
    bent = np.abs(x) ** 2 * x
    weights = (random.normal(size=(3, 2)) @ [1, 1j]) / np.sqrt(6)
    return np.asarray(x + value * sum(w * np.pad(bent, (k, 0))[: len(x)] for k, w in enumerate(weights, 1)))


def leaning_image(x: Complex, profile: DeviceProfile, value: float, random: Random) -> Complex:
    """An image that differs over the band: + v a x*[n−1]."""
    return np.asarray(x + value * np.exp(2j * np.pi * random.random()) * np.pad(x, (1, 0))[: len(x)].conj())


def filtered(x: Complex, profile: DeviceProfile, value: float, random: Random) -> Complex:
    """A transmit filter that rings for longer than a channel may: + v a x[n−40]."""
    return np.asarray(x + value * np.exp(2j * np.pi * random.random()) * np.pad(x, (LATE, 0))[: len(x)])


def fast_clock(x: Complex, profile: DeviceProfile, value: float, random: Random) -> Complex:
    """A sampling clock that is off by v ppm, up or down, besides the offset that the device has."""
    return np.asarray(sampling_offset(x, value * random.choice([-1.0, 1.0]), WAVEFORMS[WAVEFORM].occupied))


def quantised(y: Complex, value: float, random: Random) -> Complex:
    """v bits over four times the r.m.s. of a frame's loudest antenna."""
    scale = 4 * np.sqrt(np.mean(np.abs(y) ** 2, axis=-1).max(axis=1))[:, None, None] / 2 ** (value - 1)
    return np.asarray(scale * (np.round(y.real / scale) + 1j * np.round(y.imag / scale)))


def clipped(y: Complex, value: float, random: Random) -> Complex:
    """I and Q at v times the r.m.s. of each antenna."""
    most = value * np.sqrt(np.mean(np.abs(y) ** 2, axis=-1, keepdims=True))
    return np.asarray(np.clip(y.real, -most, most) + 1j * np.clip(y.imag, -most, most))


def disturbed(y: Complex, value: float, random: Random) -> Complex:
    """A narrow-band signal at any frequency, v dB below the frame."""
    turns, start = random.uniform(-0.4, 0.4, (len(y), 1, 1)), random.random((len(y), 1, 1))
    tone = np.exp(2j * np.pi * (turns * np.arange(y.shape[-1]) + start))
    power = np.mean(np.abs(y) ** 2, axis=-1, keepdims=True)
    gain = (random.normal(size=(*y.shape[:2], 1, 2)) @ [1, 1j]) / np.sqrt(2)
    return np.asarray(y + 10 ** (-value / 20) * np.sqrt(power) * gain * tone)


STEPS = (
    Step("nothing", 0, ""),
    *(Step("amplifier with memory", v, "", sent=with_memory) for v in (0.005, 0.02, 0.05, 0.1)),
    *(Step("image over frequency", v, "", sent=leaning_image) for v in (0.005, 0.02, 0.05, 0.1)),
    *(Step("long transmit filter", v, "", sent=filtered) for v in (0.01, 0.03, 0.1, 0.3)),
    *(Step("sampling clock", v, "ppm", sent=fast_clock) for v in (20.0, 40.0, 100.0, 300.0)),
    *(Step("phase noise", v, "times", phase_noise=v) for v in (3.0, 10.0, 30.0)),
    *(Step("quantisation", v, "bits", received=quantised) for v in (8.0, 6.0, 5.0, 4.0)),
    *(Step("clipping", v, "r.m.s.", received=clipped) for v in (2.0, 1.5, 1.2, 1.0)),
    *(Step("narrow-band interference", v, "dB below", received=disturbed) for v in (30.0, 20.0, 10.0, 0.0)),
    *(Step("SNR", v, "dB", snr_db=(v, v)) for v in (30.0, 20.0, 10.0, 5.0, 0.0)),
)


def frames_of(step: Step, seed: int) -> tuple[Complex, NDArray[np.int64], NDArray[np.int64]]:
    """(N, A, T), the device and the place of each."""
    spread = load_scene(WAVEFORM).hardware
    known = WAVEFORMS[WAVEFORM]
    x = known.preamble()
    parts, device, place = [], [], []
    for number in range(DEVICES):
        profile = draw_profile(spread, ANTENNAS, generator(seed, "breaking, device", number))
        sent = transmit(x, profile, known.occupied).astype(complex)
        if step.sent is not None:
            sent = step.sent(sent, profile, step.value, generator(seed, "breaking, step", step.what, number))
        for where in range(PLACES):
            random = generator(seed, "breaking, frames", number, where)
            target = where == PLACES - 1
            phase = phase_noise_rad(
                (random.normal(size=(FRAMES, len(x), 2)) @ [1, 1j]).astype(np.complex64) / np.float32(np.sqrt(2)),
                step.phase_noise * profile.white_phase_deg,
                step.phase_noise**2 * profile.linewidth_hz,
                known.sample_rate_hz,
            )
            moved = sent * np.exp(1j * phase)
            taps = (random.normal(size=(FRAMES, ANTENNAS, TAPS, 2)) @ [1, 1j]) * DECAY ** (np.arange(TAPS) / 2)
            y = sum(taps[:, :, k, None] * np.pad(moved, ((0, 0), (k, 0)))[:, None, :SAMPLES] for k in range(TAPS))
            y = np.asarray(y) / np.sqrt(np.mean(np.abs(y) ** 2, axis=(1, 2), keepdims=True))
            snr_db = random.uniform(*(step.snr_db if target and step.snr_db else SNR_DB), (FRAMES, 1, 1))
            noise = (random.normal(size=(*y.shape, 2)) @ [1, 1j]) / np.sqrt(2)
            y = y + 10 ** (-snr_db / 20) * noise
            parts.append(step.received(y, step.value, random) if target and step.received else y)
            device += [number] * FRAMES
            place += [where] * FRAMES
    return np.concatenate(parts).astype(np.complex64), np.array(device), np.array(place)


def network(method: str, step: Step, seed: int, epochs: int) -> TrainedModel:
    """Trained in all places but the last."""
    iq, device, place = frames_of(step, seed)
    frames = Frames.from_arrays(iq, device.astype(str), np.char.add("E", (place + 1).astype(str)))
    source = tuple(f"E{number + 1}" for number in range(PLACES - 1))
    run = Run(split(frames, source, f"E{PLACES}", seed, few_shot=0), seed)
    [trained] = fit(run, method=method, encoder="cnn", epochs=epochs, batch=BATCH, device="cpu", threads=1, show=False)
    return trained


def tried_together(
    steps: Sequence[Step], seed: int, networks: Sequence[str], epochs: int
) -> tuple[int, list[dict[str, float]]]:
    """Steps that have one source: each network is trained once for all of them."""
    trained = {method: network(method, steps[0], seed, epochs) for method in networks}
    found = []
    for step in steps:
        row = tried(step, seed)
        iq, device, place = frames_of(step, seed)
        target = place == PLACES - 1
        for method, model in trained.items():
            logits = embed(model, UnlabelledFrames.from_arrays(iq[target]), "cpu").logits
            row[method] = macro_f1(device[target], logits.argmax(axis=1), DEVICES)
        found.append(row)
    return STEPS.index(steps[0]), found


def clean_frames(scene: str, seed: int, scale: float) -> float:
    """Share of the frames of a scene that are suspected though nothing is done to them."""
    with tempfile.TemporaryDirectory() as folder:
        generate(scene, folder, seed=seed, scale=scale, show_progress=False, workers=1)
        frames = load(folder).segment()
        fit_of = GoodnessOfFit(WAVEFORMS[SCENES[scene]], frames.iq.shape[-1])
        return float(np.mean(fit_of.chance(frames.iq) < SUSPECTED))


def tried(step: Step, seed: int) -> dict[str, float]:
    """Learnt in all places but the last, asked there. wrong: of all frames; and of those nothing was said about."""
    iq, device, place = frames_of(step, seed)
    found = FlawEstimator(WAVEFORMS[WAVEFORM], SAMPLES).measure(iq)
    value, own = found.features()
    source, target = place < PLACES - 1, place == PLACES - 1
    names = [str(number) for number in range(DEVICES)]
    backend = fit_backend(value[source], own[source], device[source], place[source], names)
    evidence = backend.evidence(value[target], own[target])
    guess = backend.log_likelihood(evidence).argmax(axis=1)
    suspected = GoodnessOfFit(WAVEFORMS[WAVEFORM], SAMPLES).chance(iq[target]) < SUSPECTED
    linear = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(value[source], device[source])
    return {
        "closed_form": macro_f1(device[target], guess, DEVICES),
        "lda": macro_f1(device[target], linear.predict(value[target]), DEVICES),
        "rejected": float(np.mean(backend.p_value(evidence) < NOMINAL)),
        "suspected": float(np.mean(suspected)),
        "wrong": float(np.mean(guess != device[target])),
        "wrong_unsuspected": float(np.mean((guess != device[target]) & ~suspected)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2026, 2027, 2028], help="of devices and frames")
    parser.add_argument("--out", type=Path, help="file that keeps the last line")
    parser.add_argument("--networks", nargs="*", default=NETWORKS, help=f"to be trained ({' '.join(NETWORKS)})")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"of each network ({EPOCHS})")
    parser.add_argument("--scale", type=float, default=0.1, help="of the scenes, for clean frames (0.1)")
    parser.add_argument(
        "--kept", type=Path, help="record with the scores of networks that were trained before; then none is trained"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    options = parser.parse_args()
    kept = None if options.kept is None else json.loads(options.kept.read_text())
    if kept is not None:
        options.networks, options.epochs = (), kept["epochs"]
    own = [[step] for step in STEPS if step.sent is not None or step.phase_noise != 1]
    alike = [step for step in STEPS if step.sent is None and step.phase_noise == 1]
    groups = [alike, *own]
    first_seed = options.seeds[0]  # of networks
    jobs = [
        (group, seed, options.networks if seed == first_seed else (), options.epochs)
        for seed in options.seeds
        for group in groups
    ]
    by_step: dict[str, list[dict[str, float]]] = {}
    with_first = {STEPS.index(group[0]): group for group in groups}
    for first, found in run_jobs(tried_together, jobs, workers=options.workers):
        for step, row in zip(with_first[first], found, strict=True):
            by_step.setdefault(f"{step.what} {step.value}", []).append(row)
    steps, rows = [], []
    for step in STEPS:
        runs = by_step[f"{step.what} {step.value}"]
        names = max(runs, key=len)
        means = {name: round(float(np.mean([run[name] for run in runs if name in run])), 4) for name in names}
        if kept is not None:
            [before] = [one for one in kept["steps"] if (one["what"], one["value"]) == (step.what, step.value)]
            means |= {name: before[name] for name in NETWORKS}
        steps.append({"what": step.what, "value": step.value, "unit": step.unit, **means})
        rows.append([step.what, f"{step.value:g} {step.unit}", *(f"{value:.3f}" for value in means.values())])
    print_table("What breaks the closed form", ["what", "how much", *means], rows, left=("what", "how much"))
    clean = {scene: round(clean_frames(scene, options.seeds[0], options.scale), 4) for scene in SCENES}
    record = json.dumps(
        {"study": "breaking", "machine": machine(), "made": made(), "seeds": options.seeds,
         "network_seeds": options.seeds[:1], "epochs": options.epochs,
         "networks_made": made() if kept is None else kept.get("networks_made", kept["made"]),
         "batch": BATCH, "scale": options.scale, "clean": clean, "steps": steps}
    )  # fmt: skip
    if options.out is not None:
        write_text_atomic(options.out, record + "\n")
    print(record)


if __name__ == "__main__":
    main()
