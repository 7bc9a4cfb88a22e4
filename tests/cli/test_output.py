"""How tables are printed."""

from __future__ import annotations

import pytest

from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (a fixture)


def test_methods_can_be_read_where_they_are_piped(pisa: Command) -> None:  # noqa: F811
    table = pisa("methods").out
    assert max(map(len, table.splitlines())) <= 100
    words = " ".join(table.split())
    assert "pisa-objective PISA's objective without its topology" in words  # a name is not broken
    assert "from: Sun and Saenko, Deep CORAL, ECCV Workshops 2016 source environments, at least: 2 dann" in words
    assert "needs besides: frames that begin with a preamble that is known: LoRa (1 MS/s)" in words


def test_a_table_of_numbers_is_not_squeezed_where_nobody_says_how_wide_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pisa_capc.cli.output import print_table

    monkeypatch.setenv("COLUMNS", "80")  # of the terminal that a pipe was started from
    print_table("Numbers", ["what", *"abcdefgh"], [["x", *["0.1234 ± 0.5678"] * 8]])
    assert capsys.readouterr().out.count("0.1234 ± 0.5678") == 8
