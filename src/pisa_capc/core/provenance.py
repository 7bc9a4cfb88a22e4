"""What a result was made with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pisa_capc.core import revisions

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "triton")


def machine() -> dict[str, Any]:
    """Versions and hardware, without anything that names the machine."""
    import torch

    found: dict[str, Any] = {
        "pisa-capc": revisions.PACKAGE,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
    if (named := processor()) is not None:
        found["processor"] = named
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def processor(info: Path = Path("/proc/cpuinfo")) -> str | None:
    """What computes, where Linux says it: some that go by one name differ by a factor of two, so with its numbers."""
    try:
        lines = info.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return None
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "model name" not in said:
        return None
    numbers = [f"{name} {said[key]}" for name, key in (("family", "cpu family"), ("model", "model")) if key in said]
    return ", ".join([said["model name"], *numbers])
