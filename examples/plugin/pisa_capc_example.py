"""A plugin of PISA-CAPC with a part of each kind: encoder, training method, calibration, format and waveform.

Installed as a package (`pip install examples/plugin`) its parts are known to every command; as a file they are where it
is given: `pisa train … --plugin examples/plugin/pisa_capc_example.py --encoder strided`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from pisa_capc import Frames
from pisa_capc.core.errors import ConfigError
from pisa_capc.data.store import CaptureSpec
from pisa_capc.data.store.files import atomic, fill, find_captures, new_folder, reading
from pisa_capc.decide.calibration import Peer, SourceStatistics, Transduced, register_calibration
from pisa_capc.model.encoders import register_encoder
from pisa_capc.model.methods import Batch, register_method
from pisa_capc.model.methods.single import SingleMethod, SingleSettings
from pisa_capc.model.objective import cross_entropy
from pisa_capc.signal.formats import ExportOptions, Format, ImportOptions, Plan, Samples, described, register_format
from pisa_capc.signal.waveforms import Waveform, register_waveform

__version__ = "0.1.0"


@register_encoder("strided", ordinary=True)
class Strided(nn.Sequential):
    """Three convolutions of kernel 5, two of stride 2, with dropout: (N, channels, T) → (N, 32, T/4)."""

    title = "Strided"

    def __init__(self, channels: int) -> None:
        widths = (channels, 16, 32, 32)
        layers: list[nn.Module] = []
        for (inputs, outputs), stride in zip(pairwise(widths), (2, 2, 1), strict=True):
            conv = nn.Conv1d(inputs, outputs, 5, stride=stride, padding=2)
            layers += [conv, nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(0.05)]
        super().__init__(*layers)


@dataclass(frozen=True)
class SmoothedSettings(SingleSettings):
    """smoothing: share of the label that all devices get equally."""

    smoothing: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smoothing >= 1:
            raise ConfigError(f"smoothing: expected from 0 to below 1, found {self.smoothing}.")


@register_method("smoothed")
class SmoothedMethod(SingleMethod):
    """Single with smoothed labels: (1 − ε) L_ce + ε/C Σ_c L_ce(·, c).

    The network is Single's. With ε = 0 this is Single.
    """

    title = "Smoothed Single"
    citation = "Szegedy et al., CVPR 2016"
    Settings = SmoothedSettings
    settings: SmoothedSettings
    terms = ("cls", "uniform")

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        logits: Tensor = model(batch.iq).logits  # (R, B, C)
        share = self.settings.smoothing
        uniform = -logits.log_softmax(-1).mean((1, 2))
        return {"cls": (1 - share) * cross_entropy(logits, batch.label), "uniform": share * uniform}


@register_calibration("sharpened")
@dataclass(frozen=True)
class Sharpened(Peer):
    """p = softmax(κ ℓ): the classifier's decisions, κ times as sure of them."""

    title = "Sharpened"
    factor: float = 2.0

    def transduce(self, embedding: Tensor, logits: Tensor, source: SourceStatistics) -> Transduced:
        scores = self.factor * logits  # (N, C)
        return Transduced(scores, scores.softmax(dim=1))


@register_waveform("zadoff-chu")
class ZadoffChu(Waveform):
    """Two periods of a Zadoff–Chu sequence of 80 chips, two samples a chip: constant envelope, flat spectrum.

    x[n] = exp(−jπ u n²/N), interpolated exactly: it repeats, so its Fourier series is all there is of it.
    """

    title = "Zadoff–Chu"
    sample_rate_hz = 5e6
    occupied = 0.6
    longest_samples = 320

    def preamble(self) -> np.ndarray[Any, np.dtype[np.complex128]]:
        chips, root = 80, 7
        series = np.fft.fftshift(np.fft.fft(np.exp(-1j * np.pi * root * np.arange(chips) ** 2 / chips)))
        period = np.fft.ifft(np.fft.ifftshift(np.pad(series, chips // 2)))
        return np.tile(period / np.sqrt(np.mean(np.abs(period) ** 2)), 2)


PATTERN = "{environment}/{device}/{capture}.txt"
EXPECTED = "text with a line per frame, as its first line says"


@register_format("text")
class Text(Format):
    """A text file per capture: `# antennas 4`, then a line per frame with I and Q of every sample in turn."""

    def plan(self, source: Path, options: ImportOptions) -> Plan:
        defaults = {"environment": options.environment, "device": "", "capture": options.capture}
        shapes: dict[CaptureSpec, tuple[int, int]] = {}
        files: dict[CaptureSpec, Path] = {}
        for path, names in find_captures(source, options.pattern or PATTERN, defaults):
            with reading(path, EXPECTED):
                iq = _read(path)
            spec = CaptureSpec(names["environment"], names["device"], names["capture"], len(iq))
            files[spec], shapes[spec] = path, (iq.shape[1], iq.shape[2])
        dataset = described(shapes, options, sample_rate_hz=20e6, carrier_hz=5.825e9)

        def read(spec: CaptureSpec) -> Samples:
            with reading(files[spec], EXPECTED):
                return _read(files[spec]), None

        return Plan(dataset, read)

    def export(self, frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
        new_folder(out)
        keys = np.stack([frames.environment, frames.device, frames.capture])
        kinds = [tuple(map(int, kind)) for kind in np.unique(keys, axis=1).T]
        names = [(frames.environments[e], frames.devices[d], frames.captures[c]) for e, d, c in kinds]
        for kind, name in zip(kinds, fill(options.pattern or PATTERN, names), strict=True):
            part = frames.select(np.all(kind == keys.T, axis=1))
            numbers = part.iq.reshape(len(part), -1).view(np.float32)
            with atomic(out / name) as temporary:
                np.savetxt(temporary, numbers, fmt="%.9g", header=f"antennas {frames.antennas}")
            done()


def _read(path: Path) -> np.ndarray[Any, np.dtype[np.complex64]]:
    """(n, A, T)"""
    with path.open(encoding="utf-8") as file:
        antennas = int(file.readline().removeprefix("# antennas"))
        numbers = np.loadtxt(file, dtype=np.float32, ndmin=2)
    return numbers.view(np.complex64).reshape(len(numbers), antennas, -1)
