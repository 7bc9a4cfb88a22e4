"""Plugins for tests."""

from __future__ import annotations

from pathlib import Path

from pisa_capc.formats import FORMATS

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
ENCODER = """
from torch import nn
from pisa_capc.encoders import register

__version__ = "1.2"

@register("mine", ordinary=True)
class Mine(nn.Conv1d):
    title = "Mine"

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 32, 5, padding=2)
"""
FORMAT = """
from pisa_capc.formats import Format, register

@register("{name}")
class Mine(Format):
    pass
"""  # without torch, so that a process that loads it is there at once


def write_encoder(folder: Path, more: str = "") -> Path:
    path = folder / "mine.py"
    path.write_text(ENCODER + more, encoding="utf-8")
    return path


def write_format(folder: Path, name: str = "mine", more: str = "") -> Path:
    path = folder / f"{name}_format.py"
    path.write_text(FORMAT.format(name=name) + more, encoding="utf-8")
    return path


def known_formats(_: int) -> list[str]:
    """As a worker has them, without looking for more."""
    return list(FORMATS._parts)
