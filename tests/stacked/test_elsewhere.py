"""Kernels that other processes compile."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import make_backend  # noqa: E402

from pisa_capc.stacked import elsewhere  # noqa: E402

HOPPER = GPUTarget("cuda", 90, 32)


def request(kernel: str, types: dict[str, str], constants: dict[str, Any]) -> dict[str, Any]:
    """A launch as Triton describes it."""
    names = [*types, *constants]
    options = {**vars(make_backend(HOPPER).parse_options({"num_warps": 2}))}
    how = {
        "signature": {name: types.get(name, "constexpr") for name in names},
        "constant_keys": [[names.index(name)] for name in constants],
        "constant_vals": [*constants.values()],
        "attrs_keys": [[names.index(name)] for name, kind in types.items() if kind.startswith("*")],
        "attrs_vals": [[["tt.divisibility", 16]] for kind in types.values() if kind.startswith("*")],
        "options": options,
    }
    return {"kernel": kernel, "how": json.dumps(how), "target": [*vars(HOPPER).values()]}


POINTERS = dict.fromkeys(["x", "moments", "weight", "sums"], "*fp32")
SUMS = request("window_sums", POINTERS, {"INPUTS": 2, "TAPS": 3, "C": 32, "PADDED": 16})


def compiled(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.cubin"))


def test_a_kernel_is_compiled_elsewhere_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    found = elsewhere.Compilers(1)
    found.ask(SUMS)
    found.ask(SUMS)
    found.ask({**SUMS, "kernel": "no_such_kernel"})
    assert sorted(found.finish()) == [
        "AttributeError: module 'pisa_capc.stacked.kernels' has no attribute 'no_such_kernel'\n",
        "compiled\n",
    ]
    assert compiled(tmp_path) == ["window_sums.cubin"]


def test_a_compiler_that_is_gone_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere.sys, "executable", "/bin/false")
    found = elsewhere.Compilers(2)
    for number in range(3):
        found.ask({**SUMS, "kernel": f"kernel_{number}"})
    assert found.finish() == ["", "", ""]


def test_compilers_are_shared_until_they_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Process:
        def __init__(self, command: list[str], **how: Any) -> None:
            started.append(command)

        def communicate(self) -> None:
            pass

    monkeypatch.setattr(subprocess, "Popen", Process)
    found = elsewhere.compilers()
    assert found is not None
    assert elsewhere.compilers() is found
    assert 1 <= len(started) <= elsewhere.COMPILERS
    elsewhere.let_go(found)
    again = elsewhere.compilers()
    assert again is not None
    assert again is not found
    elsewhere.let_go(again)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_launch_is_left_out_until_its_kernel_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pisa_capc.stacked import kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    moments, weight = torch.eye(16, device="cuda")[None], torch.ones(1, 32, 2, 3, device="cuda")
    sums = torch.full((1, 1, 2, 32), -1.0, device="cuda")
    found = elsewhere.Compilers(1)

    def launch() -> None:
        kernels.window_sums[(1,)](weight, moments, weight, sums, INPUTS=2, TAPS=3, C=32, PADDED=16)

    with found.asked():
        launch()
    assert found.finish() == ["compiled\n"]
    assert (sums == -1).all()
    before = compiled(tmp_path)
    launch()
    assert compiled(tmp_path) == before == ["window_sums.cubin"]
    assert (sums[0, 0, 1] == 6).all()
