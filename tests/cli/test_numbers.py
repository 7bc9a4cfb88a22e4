"""Numbers that are none are refused, whichever option or file they are in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from pisa_capc.cli import app
from pisa_capc.core.errors import ConfigError, DataError, PisaError
from pisa_capc.core.quantities import HIGHEST_HZ, frequency
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


def test_no_option_takes_what_is_not_finite(pisa: Command) -> None:  # noqa: F811
    assert pisa("--version").code == 0  # commands are registered
    every = options(typer.main.get_command(app))
    found = [(words, option) for words, option in every if "float" in str(option.type_descriptor.annotation)]
    assert len(found) > 25
    taken = []
    for words, option in found:
        for text in BAD:
            try:
                option.callback(None, option, float(text))
                taken.append((words, option.name, text))
            except typer.BadParameter:
                pass
    assert not taken
    wrong = pisa("identify", "run", "roof.cf32", "--sample-rate", "nan")
    assert wrong.code == 2
    assert "nan is not finite" in wrong.err


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
