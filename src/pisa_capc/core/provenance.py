"""What a result was made with."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
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


def made() -> dict[str, str]:
    """When, and with which commit of this code where it is in a repository; one with changes ends in +."""
    found = {"time": datetime.now(UTC).isoformat(timespec="seconds")}
    return found if (known := commit()) is None else {"commit": known, **found}


@cache
def commit(folder: Path = Path(__file__).parent) -> str | None:
    """The commit that the code in a folder is of; None where no repository has it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True).stdout

    try:
        if not git("ls-files", "."):  # a repository around an installed package is another's
            return None
        changed = git("status", "--porcelain", "--untracked-files=no", "..")
        return git("rev-parse", "HEAD").strip() + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None


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
