"""Which precision products are taken in."""

from __future__ import annotations

import pytest
import torch

from pisa_capc.model.stacked import precision


def allowed() -> str:
    found: str = torch.backends.mkldnn.matmul.fp32_precision
    return found


def test_quick_products_are_those_of_float32() -> None:
    x = torch.randn(64, 40, 40, generator=torch.Generator().manual_seed(1))
    exact = x.double() @ x.double()
    with precision.quick_float32():
        quick = torch.bmm(x, x)
    assert (quick - exact).abs().max() < 1e-4
    assert (x.bfloat16() @ x.bfloat16() - exact).abs().max() > 1e-2  # which is what must not happen


def test_other_products_stay_as_they_were() -> None:
    before = allowed()
    with pytest.raises(KeyError), precision.quick_float32():
        raise KeyError
    assert allowed() == before


def test_the_last_of_several_threads_puts_things_back() -> None:
    before, first, second = allowed(), precision.quick_float32(), precision.quick_float32()
    first.__enter__()
    second.__enter__()
    within = allowed()
    first.__exit__(None, None, None)
    assert allowed() == within
    second.__exit__(None, None, None)
    assert allowed() == before


def test_a_setting_that_is_inherited_is_inherited_again() -> None:
    try:
        torch.backends.fp32_precision = "ieee"
        with precision.quick_float32():
            pass
        torch.backends.fp32_precision = "tf32"
        assert allowed() == "tf32"
    finally:
        torch.backends.fp32_precision = "none"


def test_nothing_is_allowed_where_it_would_change_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_stays_float32", lambda: False)
    before = allowed()
    with precision.quick_float32():
        assert allowed() == before


def test_a_processor_that_takes_bfloat16_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    product = torch.bmm

    def with_matrix_units(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float32 and allowed() == "bf16":
            return product(a.bfloat16(), b.bfloat16()).float()
        return product(a, b)

    monkeypatch.setattr(torch, "bmm", with_matrix_units)
    assert not precision._stays_float32.__wrapped__()
