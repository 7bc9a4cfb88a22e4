"""Each option word has one meaning: its help begins alike in every command, and no command has an old word."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from pisa_capc import cli
from pisa_capc.cli.old import OLD_WORDS


def commands(found: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command by the words that call it."""
    for name, command in getattr(found, "commands", {}).items():
        yield " ".join((*words, name)), command
        yield from commands(command, (*words, name))


@pytest.fixture(scope="module")
def options() -> dict[str, dict[str, str]]:
    """The help of every option word, by command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["pisa", "--version"])
        with pytest.raises(SystemExit):
            cli.main()  # registers all commands
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name, command in commands(get_command(cli.app)):
        for option in command.params:
            for word in (*option.opts, *option.secondary_opts) if option.param_type_name == "option" else ():
                if not option.hidden:
                    found[word][name] = option.help or ""
    return found


def test_a_word_means_the_same_in_every_command(options: dict[str, dict[str, str]]) -> None:
    assert len(options) > 100
    assert len(options["--out"]) > 15
    for word, helps in options.items():
        beginnings = {re.split(r"[:;,.](?:\s|$)", text)[0] for text in helps.values()}
        assert len(beginnings) == 1, (word, helps)


def test_no_command_has_an_old_word(options: dict[str, dict[str, str]]) -> None:
    for old in OLD_WORDS:
        theirs = [name for name in options.get(old.word, ()) if old.of(name.replace(" once", "").split())]
        assert old.value is not None or not theirs, (old.word, theirs)
        for word in old.new:
            assert not word.startswith("--") or word in options, word
