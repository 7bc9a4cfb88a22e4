"""What a result was made with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pisa_capc import revisions

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "triton")


def machine() -> dict[str, Any]:
    """Versions and hardware, without anything that names the machine."""
    import torch

    found: dict[str, Any] = {
        "pisa-capc": revisions.PACKAGE,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def processor() -> str:
    """Its kind, as Linux tells it: the name alone may stand for many generations."""
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()]
        told = {key.strip(): value.strip() for key, _, value in lines}
        return f"{told['model name']}, family {told['cpu family']}, model {told['model']}"
    except (OSError, KeyError):
        return platform.processor()
