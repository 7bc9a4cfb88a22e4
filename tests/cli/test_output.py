"""How tables are printed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pisa_capc import cli
from pisa_capc.cli.output import print_table, say
from pisa_capc.core.progress import PlainConsole, visible
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (a fixture)


def test_methods_can_be_read_where_they_are_piped(pisa: Command) -> None:  # noqa: F811
    table = pisa("methods").out
    assert max(map(len, table.splitlines())) <= 100
    words = " ".join(table.split())
    assert "pisa-objective PISA's objective without its topology" in words  # a name is not broken
    assert "from: Sun and Saenko, Deep CORAL, ECCV Workshops 2016 source environments, at least: 2 mmd" in words
    assert "needs besides: frames that begin with a preamble that is known: " in words
    assert "or LoRa (1 MS/s) or Wi-Fi (20 MS/s)" in words


def test_a_table_of_numbers_is_not_squeezed_where_nobody_says_how_wide_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # of the terminal that a pipe was started from
    print_table("Numbers", ["what", *"abcdefgh"], [["x", *["0.1234 ± 0.5678"] * 8]])
    assert capsys.readouterr().out.count("0.1234 ± 0.5678") == 8


NAMES = ["room[/b]", "[red]D1", "a\x1b[2Jb", "bell\x07", ":smile:", "[link=http://x]y[/link]"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_printed_as_they_are_with_control_codes_written_out(name: str, capsys) -> None:
    print_table(name, ["capture", "frames"], [[name, "3"]])
    say(f"{name}.npz: 3 frames")
    PlainConsole(stderr=True).print(f"note: {name}", soft_wrap=True)
    out, err = capsys.readouterr()
    assert out.count(visible(name)) == 3, out
    assert err == f"note: {visible(name)}\n"
    assert "\x1b" not in out + err


def test_text_of_people_is_left_as_it_is() -> None:
    assert visible("Büro 3, 会议室\n[x]") == "Büro 3, 会议室\n[x]"
    assert visible("\x9b2J\u202e\r") == r"\x9b2J\u202e\r"


def test_what_commands_print_is_json_or_said_the_one_way() -> None:
    safe = ("json.dumps(", "visible(", "'")
    for path in Path(cli.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("print", "typer.echo"):
                text = ast.unparse(call.args[0])
                assert text.startswith(safe) or text == "f'pisa-capc {PACKAGE}'", f"{path.name}: print({text})"
