"""Plugins for tests."""

from __future__ import annotations

from pathlib import Path

from pisa_capc.signal.formats import FORMATS

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin"
ENCODER = """
from torch import nn
from pisa_capc.model.encoders import register_encoder

__version__ = "1.2"

@register_encoder("mine", ordinary=True)
class Mine(nn.Conv1d):
    title = "Mine"

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 32, 5, padding=2)
"""
FORMAT = """
from pisa_capc.signal.formats import Format, register_format

@register_format("{name}")
class Mine(Format):
    pass
"""  # without torch, so that a process that loads it is there at once
WAVEFORM = """
import numpy as np
from pisa_capc.signal.waveforms import Waveform, register_waveform

@register_waveform("tone")
class Tone(Waveform):
    title, sample_rate_hz, occupied, longest_samples = "Tone", 3e6, 0.5, 320

    def preamble(self):
        return np.exp(2j * np.pi * np.arange(320) / 16)
"""


def write_encoder(folder: Path, more: str = "") -> Path:
    path = folder / "mine.py"
    path.write_text(ENCODER + more, encoding="utf-8")
    return path


def write_format(folder: Path, name: str = "mine", more: str = "") -> Path:
    path = folder / f"{name}_format.py"
    path.write_text(FORMAT.format(name=name) + more, encoding="utf-8")
    return path


def write_scene(folder: Path, waveform: str, sample_rate_hz: float) -> Path:
    """Two devices that send a waveform in the places of the Wi-Fi scene."""
    path = folder / "scene.yaml"
    signal = f"kind: {waveform}, carrier_hz: 2.45e+9, sample_rate_hz: {sample_rate_hz}, frame_interval_s: 0.01"
    path.write_text(f"waveform: {{{signal}}}\ndevices: 2\nabsent: []\n", encoding="utf-8")
    return path


def known_formats(_: int) -> list[str]:
    """As a worker has them, without looking for more."""
    return list(FORMATS._parts)
