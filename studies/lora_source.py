"""Why networks miss on LoRa what is there: what is taken off the frames, and what is left to learn, step by step.

    make study-lora_source ARGS="--out work/lora-source --device cuda"

The scene `lora` has the channel of the place. An informed receiver tells its devices apart (`pisa limit`), yet
networks on the frames as they come hardly learn even their *source*. Each step below takes something known off every
frame and trains the same network again; only source validation is looked at to say what was in the way. Every step is a
file in `--out`, so a stopped study goes on. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc import Frames, load
from pisa_capc.cli.output import print_table
from pisa_capc.core.provenance import machine, made
from pisa_capc.data.protocol import DIRECT, split
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.evidence.evaluation import infer
from pisa_capc.model.training import Run, TrainingConfig, fit
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.waveforms import WAVEFORMS

SOURCE, TARGET = ("E2", "E3"), "E1"
SEEDS = (2026, 2027, 2028)
SEGMENT, SYMBOL = 320, 1024
BLOCK = 4096  # frames at a time

Array = NDArray[np.complex64]


def as_received(y: Array, p: Array) -> Array:
    """The frames as they come."""
    return y


def without_phase(y: Array, p: Array) -> Array:
    """y e^{−j∠⟨p, y⟩}: the phase of each antenna, which differs from frame to frame, is taken off."""
    gain = y @ p.conj()
    return y * (gain.conj() / np.abs(gain))[..., None]


def without_offset(y: Array, p: Array) -> Array:
    """Then the residual frequency offset: that of the dechirped frame's line d[n] = y[n] p*[n], by its lag-T/2 phase,
    common to the antennas."""
    d = y * p.conj()
    half = d.shape[-1] // 2
    step = np.angle(np.einsum("nat,nat->n", d[..., :half].conj(), d[..., half : 2 * half])) / half
    n = np.arange(y.shape[-1]) - (y.shape[-1] - 1) / 2
    return without_phase(y * np.exp(-1j * step[:, None] * n).astype(np.complex64)[:, None], p)


def of_unit_gain(y: Array, p: Array) -> Array:
    """Then the gain: y / ĥ, ĥ = ⟨p, y⟩/⟨p, p⟩. One tap is the channel: 50 ns of delay spread are
    a twentieth of a sample."""
    x = without_offset(y, p)
    return x / (np.einsum("nat,t->na", x, p.conj()).real / len(p))[..., None]


def dechirped(y: Array, p: Array) -> Array:
    """Then the chirp by multiplication: a constant is left of it, of LO leakage a downchirp, of the image one of twice
    the slope."""
    return of_unit_gain(y, p) * p.conj()


def without_chirp(y: Array, p: Array) -> Array:
    """Instead the chirp by subtraction, x − p, thirtyfold: what the hardware has added, and noise."""
    return 30 * (of_unit_gain(y, p) - p)


STEPS: dict[str, Callable[[Array, Array], Array]] = {
    "as received": as_received,
    "without phase": without_phase,
    "without phase and offset": without_offset,
    "of unit gain": of_unit_gain,
    "dechirped": dechirped,
    "without the chirp": without_chirp,
}


@dataclass(frozen=True)
class Trial:
    """One network on the frames of one step."""

    step: str
    method: str = "single"
    encoder: str = "transformer"
    samples: int = SEGMENT
    epochs: int = 30
    precision: str = "auto"
    learning_rate: float = 1e-3
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = [self.step, self.method, self.encoder, f"{self.samples} samples", f"{self.epochs} epochs"]
        words += [self.precision] if self.precision != "auto" else []
        words += [f"learning rate {self.learning_rate:g}"] if self.learning_rate != 1e-3 else []
        return ", ".join(words)


TRIALS = (
    *(Trial(step, encoder=encoder) for encoder in ("transformer", "cnn") for step in STEPS),
    *(Trial(step, method="pisa") for step in ("as received", "without phase and offset", "without the chirp")),
    Trial("as received", method="pisa-equalised"),
    Trial("as received", samples=SYMBOL),
    Trial("without phase and offset", samples=SYMBOL),
    Trial("as received", epochs=120),
    Trial("as received", precision="float32"),
    Trial("as received", learning_rate=3e-4),
)


def stepped(frames: Frames, trial: Trial) -> Frames:
    """The frames, changed by the step, in memory."""
    change = STEPS[trial.step]
    p = WAVEFORMS["lora"].preamble()[: trial.samples].astype(np.complex64)
    cut = frames.segment(trial.samples)
    iq = np.concatenate([change(part.iq, p).astype(np.complex64) for part in cut.batches(BLOCK)])
    names = {
        kind: np.array(getattr(cut, f"{kind}s"))[getattr(cut, kind)] for kind in ("environment", "device", "capture")
    }
    return Frames.from_arrays(
        iq,
        frame=cut.frame,
        cfo_hz=cut.cfo_hz,
        geometry=cut.geometry,
        sample_rate_hz=cut.sample_rate_hz,
        carrier_hz=cut.carrier_hz,
        **names,
    )


def try_out(frames: Frames, trial: Trial, device: str) -> dict[str, Any]:
    """Source validation and target Macro-F1 of the network, by seed."""
    changed = stepped(frames, trial)
    runs = [Run(split(changed, SOURCE, TARGET, seed), seed) for seed in SEEDS]
    training = TrainingConfig(epochs=trial.epochs, samples=trial.samples, learning_rate=trial.learning_rate)
    models = fit(
        runs, method=trial.method, encoder=trial.encoder, settings=trial.settings, training=training, device=device,
        precision=trial.precision, show=False,
    )  # fmt: skip
    found = infer(models, [run.split for run in runs], {}, device)
    target = [one.scores()[DIRECT].macro_f1 for _, one in found]
    validation = [model.run.metrics.validation_f1 for model in models]
    return {**asdict(trial), "validation": validation, "target": target}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("work/lora-source"), help="folder of finished trials")
    parser.add_argument("--data", type=Path, default=Path("work/data/lora-1024"), help="where the set is, or is made")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the frames of each capture (1.0)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--share", default="0/1", help="which part of the trials, as 1/4, for several processes")
    options = parser.parse_args()
    generate("lora", options.data, seed=2026, scale=options.scale, samples=SYMBOL)
    frames = load(options.data)
    part, parts = map(int, options.share.split("/"))
    for trial in TRIALS[part::parts]:
        path = options.out / f"{trial.name}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(path, json.dumps(try_out(frames, trial, options.device)))
            print(trial.name, path.read_text())
    found = {t.name: json.loads(p.read_text()) for t in TRIALS if (p := options.out / f"{t.name}.json").is_file()}
    rows = [[name, f"{np.mean(r['validation']):.3f}", f"{np.mean(r['target']):.3f}"] for name, r in found.items()]
    print_table("What networks learn of LoRa's source", ["frames and network", "source validation", "target"], rows)
    print(
        json.dumps(
            {"study": "lora_source", "machine": machine(), "made": made(), "scale": options.scale, "trials": found}
        )
    )


if __name__ == "__main__":
    main()
