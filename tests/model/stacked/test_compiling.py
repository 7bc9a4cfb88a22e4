"""How parts of a model are compiled for a GPU."""

from __future__ import annotations

import sys

import pytest

from pisa_capc.model.stacked import compiling


def test_what_is_asked_of_the_compiler_is_known_to_it() -> None:
    from torch._inductor import list_options  # seconds, which a worker without these tests need not spend

    assert compiling.BY_RULE.keys() <= set(list_options())


def test_the_compiler_is_loaded_once_beside_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_WARM_POOL", "0")  # no processes
    loading = compiling.load_compiler()
    assert compiling.load_compiler() is loading
    loading.join(60)
    assert not loading.is_alive()
    assert "torch._inductor.compile_fx" in sys.modules
