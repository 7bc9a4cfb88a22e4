"""Python's compiled modules, for the processes of a benchmark.

An ordinary installation keeps them beside the packages from the first start on. Where a machine is told not to
(PYTHONDONTWRITEBYTECODE), every process compiles PyTorch's Python anew, and a start would mostly measure that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

TRAINING = ("benchmarks.train", "torch._dynamo", "torch._inductor.compile_fx")  # what a training imports


@contextmanager
def kept_bytecode() -> Iterator[None]:
    """Processes that are started within it find the modules of a training compiled, and keep what else they import."""
    if not sys.dont_write_bytecode:
        yield
        return
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"PYTHONPYCACHEPREFIX": folder}):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # under `python -B` it is not there
        subprocess.run([sys.executable, "-c", f"import {', '.join(TRAINING)}"], check=True)
        yield
