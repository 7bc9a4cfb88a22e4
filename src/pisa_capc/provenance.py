"""What a result was made with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
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
