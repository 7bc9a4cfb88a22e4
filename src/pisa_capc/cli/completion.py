"""Completion of values in shells: names of parts, scenes and protocols; environments and devices of given folders.

It answers at every press of a key. So no part is imported: names are read from the decorators in the source, and code
of plugins is not run. One word has one meaning everywhere, so an option is known by its word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1]
LARGEST = 64 << 20  # bytes of a description that is read on the way


class Completed(NamedTuple):
    """A value that a shell offers."""

    value: str
    help: str | None = None
    type: str = "plain"


def registered(kind: str, *others: str) -> Callable[[Any], list[str]]:
    """Parts of a kind by their decorators, here and in the files after --plugin; then words that are no parts."""

    def names(ctx: Any) -> list[str]:
        decorator = re.compile(rf'^@(?:\w+\.)*register_{kind}\(\s*"([^"]+)"', re.M)
        given = ctx.find_root().params.get("plugin") or ()
        found = [name for path in (*_sources(kind), *given) for name in decorator.findall(_text(Path(path)))]
        return [*sorted(set(found)), *others]

    return names


def words(*known: str) -> Callable[[Any], list[str]]:
    return lambda ctx: [*known]


def files(folder: str) -> Callable[[Any], list[str]]:
    """Names of YAML files of the package, which stand beside it in a source tree."""
    return lambda ctx: [
        path.stem for at in (PACKAGE / folder, PACKAGE.parents[1] / folder) for path in sorted(at.glob("*.yaml"))
    ]


def environments(ctx: Any) -> list[str]:
    found = {capture.get("environment") for data in _described(ctx, "dataset.json") for capture in _captures(data)}
    return sorted(name for name in found if isinstance(name, str))


def devices(ctx: Any) -> list[str]:
    found = {capture.get("device") for data in _described(ctx, "dataset.json") for capture in _captures(data)}
    for model in _described(ctx, "model.json"):
        listed = model.get("devices")
        found |= set(listed) if isinstance(listed, list) and all(isinstance(name, str) for name in listed) else set()
    return sorted(name for name in found if isinstance(name, str))


METHODS, ENCODERS = registered("method", "auto"), registered("encoder")
CALIBRATIONS, REJECTIONS = registered("calibration"), registered("rejection", "auto", "none")
WAVEFORMS = registered("finder")
BY_WORD: dict[str, Callable[[Any], Iterable[str]]] = {
    "--method": METHODS,
    "--encoder": ENCODERS,
    "--calibration": CALIBRATIONS,
    "--reject": REJECTIONS,
    "--waveform": WAVEFORMS,
    "--environment": environments,
    "--source": environments,
    "--target": environments,
    "--device-name": devices,
    "--devices": devices,
    "--remove": devices,
    "--update": devices,
    "--device": words("auto", "cpu", "cuda"),
    "--engine": words("torch", "onnx"),
    "--run-on": words("local", "ray"),
    "--precision": words("auto", "float32", "bfloat16"),
    "--front": words("auto", "antenna", "common", "none"),
    "--held-out": words("random", "block"),
    "--csi-card": words("intel", "atheros", "nexmon", "picoscenes", "esp32"),
    "--format": words("cu8", "cs8", "cs16", "cf32", "cf64"),
    "SCENE": files("signal/simulation/scenes"),
    "PROTOCOL": files("protocols"),
    "FORMAT": registered("format"),
}


def complete(parameter: Any) -> None:
    """Have a shell complete the values of an option or argument that is known by its word."""
    names = BY_WORD.get(next(iter(parameter.opts), "")) or BY_WORD.get(parameter.metavar or parameter.name.upper())
    if names is None:
        return

    def shell_complete(ctx: Any, incomplete: str) -> list[Completed]:
        before, comma, last = incomplete.rpartition(",")  # of several, as E2,E3, the last is still to come
        taken = before.split(",")
        return [
            Completed(f"{before}{comma}{name}") for name in names(ctx) if name.startswith(last) and name not in taken
        ]

    parameter.shell_complete = shell_complete


def _sources(kind: str) -> Iterable[Path]:
    folders = {"method": "model/methods", "encoder": "model/encoders", "format": "signal/formats"}
    folders |= {"calibration": "decide/calibration", "rejection": "decide/calibration", "finder": "signal/detection"}
    return sorted((PACKAGE / folders[kind]).rglob("*.py"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size <= LARGEST else ""
    except (OSError, ValueError):
        return ""


def _described(ctx: Any, name: str) -> Iterable[dict[str, Any]]:
    """What the folders on the line say of themselves."""
    values = [one for value in ctx.params.values() for one in (value if isinstance(value, list | tuple) else (value,))]
    for path in (*values, *ctx.args):  # the latter where an option still lacks its value
        if isinstance(path, str | Path) and (Path(path) / name).is_file():
            try:
                found = json.loads(_text(Path(path) / name) or "{}")
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


def _captures(data: dict[str, Any]) -> list[dict[str, Any]]:
    captures = data.get("captures")
    return [one for one in captures if isinstance(one, dict)] if isinstance(captures, list) else []
