"""Numbers that are none are refused, whichever option or file they are in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from pisa_capc.cli import app
from pisa_capc.core.errors import ConfigError, DataError, PisaError
from pisa_capc.core.quantities import FREQUENCIES, HIGHEST_HZ, LARGEST, MOST, frequency, size
from pisa_capc.data.geometry import square
from pisa_capc.data.store.dataset import Dataset
from pisa_capc.signal.recordings import About, open_recording
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (fixture)

BAD = ("nan", "inf", "-inf", "1e999")


def options(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every option and argument of every command, as the command line gets them."""
    context: Any = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from options(command, (*words, name))
        else:
            yield from (((*words, name), option) for option in command.params)


@cache
def numeric() -> tuple[tuple[tuple[str, ...], Any], ...]:
    """Those whose values are numbers."""
    every = options(typer.main.get_command(app))
    kinds = [(words, option, str(option.type_descriptor.annotation)) for words, option in every]
    return tuple((words, option) for words, option, kind in kinds if "float" in kind or "int" in kind)


def test_no_option_takes_what_is_not_finite(pisa: Command) -> None:  # noqa: F811
    assert pisa("--version").code == 0  # commands are registered
    assert len(numeric()) > 60
    taken = []
    for words, option in numeric():
        for text in BAD:
            try:
                option.callback(None, option, float(text))
                taken.append((words, option.name, text))
            except typer.BadParameter:
                pass
    assert not taken
    wrong = pisa("identify", "run", "roof.cf32", "--sample-rate", "nan")
    assert wrong.code == 2
    assert "--sample-rate nan: expected Hz" in wrong.err


@pytest.mark.usefixtures("pisa")
@settings(deadline=None, max_examples=60)
@given(
    st.one_of(
        st.floats().map(str),
        st.integers().map(str),
        st.sampled_from([*BAD, "1e12", "-0.0", "5e-324", str(2**53 + 2), str(10**400), "", " ", "0x10", "1_0", "٣"]),
    )
)
def test_any_option_is_a_number_that_its_quantity_may_be_or_is_refused_in_one_line(text: str) -> None:
    group = typer.main.get_command(app)
    refused = []
    for words, option in numeric():
        try:
            found = option.process_value(typer.Context(group), [text] if option.multiple else text)  # type: ignore[arg-type]
        except typer.BadParameter as error:
            refused.append(error.message)
            continue
        for number in found if isinstance(found, list | tuple) else [found]:
            assert math.isfinite(number), (words, option.name)
            assert abs(number) <= MOST.get(option.name, LARGEST), (words, option.name)
            if option.name in FREQUENCIES:
                assert frequency(number, "it") == number
            if option.name in MOST:
                assert size(number, "it", MOST[option.name]) == number
    assert all(message and "\n" not in message and len(message) < 600 for message in refused)


@given(st.one_of(st.floats(), st.integers(), st.text(max_size=5), st.none(), st.booleans()))
def test_a_size_is_whole_positive_and_bounded(value: Any) -> None:
    try:
        number = size(value, "antennas", 256)
    except ConfigError:
        with pytest.raises(DataError, match="expected a whole number"):
            About("roof", 1e6, None, value, 10)
    else:
        assert number in range(1, 257)


@given(st.one_of(st.floats(), st.integers(), st.text(max_size=5), st.none(), st.just(10**400)))
def test_a_frequency_is_finite_positive_and_below_a_terahertz(value: Any) -> None:
    try:
        number = frequency(value, "carrier")
    except ConfigError:
        with pytest.raises(DataError, match="expected Hz"):
            About("roof", value, None, 1, 10)
        if value is not None:
            with pytest.raises(DataError):
                About("roof", 1e6, value, 1, 10)
    else:
        assert math.isfinite(number)
        assert 0 < number < HIGHEST_HZ


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, 1e13])
@pytest.mark.parametrize("field", ["core:sample_rate", "core:frequency"])
def test_sigmf_with_a_frequency_that_is_none_is_one_line(tmp_path: Path, field: str, bad: float) -> None:
    np.zeros(100, dtype=np.complex64).tofile(tmp_path / "roof.sigmf-data")
    info: dict[str, Any] = {"core:datatype": "cf32_le", "core:version": "1.2.0", "core:sample_rate": 1e6}
    capture: dict[str, Any] = {"core:sample_start": 0, "core:frequency": 1e9}
    (info if field in info else capture)[field] = bad
    content = {"global": info, "captures": [capture], "annotations": []}
    (tmp_path / "roof.sigmf-meta").write_text(json.dumps(content))
    with pytest.raises(PisaError) as error:
        open_recording(tmp_path / "roof.sigmf-meta")
    assert "\n" not in str(error.value)
    assert "roof" in str(error.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_dataset_has_frequencies(bad: float) -> None:
    for rates in ((bad, 1e9), (1e6, bad)):
        with pytest.raises(DataError, match="expected Hz"):
            Dataset(square(), *rates, 320, ())
