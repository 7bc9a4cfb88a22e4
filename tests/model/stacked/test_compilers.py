"""Kernels that other processes compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import make_backend  # noqa: E402

from pisa_capc.model.stacked import compilers  # noqa: E402

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


@pytest.fixture
def found() -> Iterator[compilers.Compilers]:
    own = compilers.Compilers()
    yield own
    own.close()


def test_a_kernel_is_compiled_elsewhere_and_once(
    found: compilers.Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    found.start(1)
    assert found.ask(SUMS)
    assert found.ask(SUMS)
    assert found.ask({**SUMS, "kernel": "no_such_kernel"})
    assert sorted(found.wait()) == [
        "AttributeError: module 'pisa_capc.model.stacked.kernels' has no attribute 'no_such_kernel'\n",
        "compiled\n",
    ]
    assert compiled(tmp_path) == ["window_sums.cubin"]


def test_a_chain_has_the_next_tile_fetched_on_a_gpu(
    found: compilers.Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what it reads and of what is added: only the code for a GPU shows it, since it changes no result."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    low = dict.fromkeys(["x", "skip", "y", "kept"], "*bf16")
    wide = dict.fromkeys(["scale", "shift", "weight", "partial", "counts", "first_weight"], "*fp32")
    order = ["x", "scale", "shift", "skip", "weight", "y", "kept", "partial", "counts", "used", "first_weight"]
    kinds = {name: (low | wide | {"used": "*i32"})[name] for name in order}
    shape = {"LENGTH": 320, "C": 16, "TAPS": 3, "DILATION": 1, "SPAN": 2, "CHUNK": 4, "PARTS": 1, "WHOLE": True}
    how = {"NORM": True, "WITH_SKIP": True, "KEEP": False, "INPUTS": 0, "FIRST_TAPS": 0, "SEEN": 16, "BLOCK": 64}
    found.start(1)
    for fetches in (False, True):
        more = {"PRECISION": "tf32", "FETCH": fetches}
        assert found.ask(request("chain_convolve", kinds | {"frames": "i32"}, shape | how | more))
    assert found.wait() == ["compiled\n"] * 2
    assert sorted(path.read_text().count("prefetch.global.L2") for path in tmp_path.rglob("*.ptx")) == [0, 2]


def test_a_kernel_that_is_in_the_cache_is_known_to_be_there(tmp_path: Path) -> None:
    """In a process of its own: here kernels may be interpreted."""
    program = """
import json, sys
from pisa_capc.model.stacked import compilers
request, other = (json.loads(line) for line in sys.stdin)
print(compilers.nothing_compiled(), compilers.is_compiled(request))
compilers.compile_kernel(request)
print(compilers.nothing_compiled(), compilers.is_compiled(request), compilers.is_compiled(other))
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    other = request("window_sums", POINTERS, {"INPUTS": 2, "TAPS": 5, "C": 32, "PADDED": 16})
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=f"{json.dumps(SUMS)}\n{json.dumps(other)}",
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path / "new")},
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["True False", "False True False"]


@pytest.mark.parametrize("before", [0, 1])
def test_compilers_that_have_nothing_to_do_are_not_started(
    before: int, found: compilers.Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compilers.sys, "executable", "/bin/cat")
    for number in range(before):
        (tmp_path / f"kernel{number}").mkdir()
    found.expect()
    assert (len(found._processes) > 0) == (before == 0)


def test_a_kernel_is_the_same_one_after_its_way_through_json() -> None:
    backend = make_backend(HOPPER)
    options = backend.parse_options({"num_warps": 2, "maxnreg": 128})
    read = json.loads(json.dumps(vars(options)))
    assert backend.parse_options(compilers.restored(read)).hash() == options.hash()
    assert backend.parse_options(read).hash() != options.hash()


def test_a_compiler_that_is_gone_is_done_without(found: compilers.Compilers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers.sys, "executable", "/bin/false")
    for number in range(3):
        assert found.ask({**SUMS, "kernel": f"kernel_{number}"})
    assert found.wait() == ["", "", ""]


def test_where_no_process_can_be_started_kernels_are_compiled_here(
    found: compilers.Compilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers.sys, "executable", "/no/such/python")
    assert not found.ask(SUMS)
    assert found.wait() == []


def test_compilers_are_those_that_are_there_and_end_with_whoever_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers.sys, "executable", "/bin/cat")
    with compilers.compilers() as outer:
        assert outer is not None
        outer.start()
        processes = [*outer._processes]
        assert 1 <= len(processes) <= compilers.COMPILERS
        with compilers.compilers() as inner:
            assert inner is outer
        assert outer._processes == processes
    assert all(process.returncode is not None for process in processes)
    with suppress(ZeroDivisionError), compilers.compilers() as broken:
        assert broken is not None
        broken.start()
        processes = [*broken._processes]
        raise ZeroDivisionError
    assert all(process.returncode is not None for process in processes)
    assert compilers._running is None


def test_only_our_kernels_are_asked_for_and_only_meanwhile(
    found: compilers.Compilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[dict[str, Any]] = []
    there = [False]
    monkeypatch.setattr(found, "ask", lambda request: not requests.append(request))
    monkeypatch.setattr(compilers, "is_compiled", lambda request: there[0])
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(get_current_target=lambda: HOPPER))

    def launch(module: str, **compile: str) -> bool:
        """What Triton does before it compiles."""
        hook = triton.knobs.runtime.jit_cache_hook
        fn = SimpleNamespace(module=module, name="window_sums")
        return bool(hook and hook(key="", repr="", fn=fn, compile=compile, is_manual_warmup=False))

    ours = "pisa_capc.model.stacked.kernels.window"
    with suppress(ZeroDivisionError), found.asked():
        assert launch(ours, specialization_data="{}")
        assert not launch(ours)  # a version that does not say what it needs
        assert not launch("somebody.else", specialization_data="{}")
        there[0] = True
        assert not launch(ours, specialization_data="{}")  # Triton has it
        raise ZeroDivisionError
    assert requests == [{"kernel": "window_sums", "how": "{}", "target": ["cuda", 90, 32]}]
    assert not launch(ours, specialization_data="{}")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_launch_is_left_out_until_its_kernel_is_there(
    found: compilers.Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pisa_capc.model.stacked import kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    moments, weight = torch.eye(16, device="cuda")[None], torch.ones(1, 32, 2, 3, device="cuda")
    sums = torch.full((1, 1, 2, 32), -1.0, device="cuda")

    def launch() -> None:
        kernels.window_sums[(1,)](weight, moments, weight, sums, INPUTS=2, TAPS=3, C=32, PADDED=16)

    with found.asked():
        launch()
    assert found.wait() == ["compiled\n"]
    assert (sums == -1).all()
    before = compiled(tmp_path)
    launch()
    assert compiled(tmp_path) == before == ["window_sums.cubin"]
    assert (sums[0, 0, 1] == 6).all()
