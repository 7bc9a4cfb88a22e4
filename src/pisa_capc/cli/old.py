"""Words of the command line that earlier versions had. They work for one version, with a note of what to write now.

This is the only place that knows them: they are replaced before a command reads its options, and no help shows them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from pisa_capc.core.progress import console as notes


@dataclass(frozen=True)
class OldWord:
    """An option of earlier versions.

    commands: that had it, as "calibrate fit"; those inside a command that is named have it too. value: the only value
    of `word` that is old; without one all are. new: what is written now, with its value where it has changed; empty
    where the option is gone. flag: `word` has no value. why: of an option that is gone.
    """

    commands: tuple[str, ...]
    word: str
    new: tuple[str, ...] = ()
    value: str | None = None
    flag: bool = False
    why: str = ""

    @property
    def note(self) -> str:
        old = self.word if self.value is None else f"{self.word} {self.value}"
        why = self.why or f"write {' '.join(self.new)}"
        return f"{old} goes with the next version; {why}."

    def of(self, words: Sequence[str]) -> bool:
        """Whether it is of the command that these words begin with."""
        return any(tuple(words[: len(own)]) == own for own in (tuple(name.split()) for name in self.commands))


NO_GUARD = "there is no guard any more, and the usual calibration needs none"
INSTEAD_OF_SAFE = "the usual calibration, careful, gains as much without further trainings"
UCAPC = ("--calibration", "ucapc")
NO_PRIOR = ("--set", "calibration.prior=none")
OLD_WORDS = (
    OldWord(("train", "calibrate"), "--guard", flag=True, why=NO_GUARD),
    OldWord(("train", "calibrate"), "--no-guard", flag=True, why=NO_GUARD),
    OldWord(("calibrate",), "--preset", value="safe", why=INSTEAD_OF_SAFE),
    OldWord(("calibrate",), "--method", value="safe", why=INSTEAD_OF_SAFE),
    OldWord(("calibrate",), "--preset", UCAPC, value="paper"),
    OldWord(("calibrate",), "--preset", ("--calibration", "direct"), value="direct"),
    OldWord(("calibrate stream",), "--preset", (*UCAPC, *NO_PRIOR), value="without-prior"),
    OldWord(("calibrate",), "--preset", (*UCAPC, "--prior", "none"), value="without-prior"),
    OldWord(("calibrate",), "--preset", (*UCAPC, "--group", "none"), value="without-grouping"),
    OldWord(("calibrate",), "--method", ("--calibration",)),
    OldWord(("export-model",), "--int8", why="export in eight bits gained little and is gone"),
    OldWord(("measure", "check"), "--figure", ("--plot",)),
    OldWord(("identify", "verify"), "--figures", ("--plot",)),
    OldWord(("identify",), "--window", ("--within",)),
    OldWord(("verify",), "--alpha", ("--alarm-alpha",)),
    OldWord(("verify", "listen", "serve"), "--spacing", ("--test-every",)),
    OldWord(("import",), "--device", ("--device-name",)),
    OldWord(("import",), "--card", ("--csi-card",)),
    OldWord(("enrol",), "--label", ("--device-name",)),
    OldWord(("simulate", "bench run", "bench select"), "--engine", ("--run-on",)),
    OldWord(("figures", "bench tables", "bench figures"), "--format", ("--as",)),
)


def renewed(arguments: Sequence[str], command: Sequence[str], valued: Callable[[], Collection[str]]) -> list[str]:
    """The arguments of a command in today's words; every old one is noted on standard error.

    command: its name, as ["bench", "run"]. valued: gives its options that take a value, which stays as it is.

    >>> renewed(["--epochs", "5"], ["train"], lambda: ["--epochs"])
    ['--epochs', '5']
    """
    known = [old for old in OLD_WORDS if old.of(command)]
    words = {old.word for old in known}
    if not any(argument.partition("=")[0] in words for argument in arguments):
        return list(arguments)
    return list(_renewed(arguments, known, valued()))


def _renewed(arguments: Sequence[str], known: Sequence[OldWord], valued: Collection[str]) -> Iterator[str]:
    left = iter(arguments)
    for argument in left:
        word, equals, value = argument.partition("=")
        found = [old for old in known if old.word == word]
        if argument == "--":
            yield from (argument, *left)
        elif not found:
            yield from (argument, *itertools.islice(left, argument in valued))
        else:
            given = [value] if equals else [] if found[0].flag else [*itertools.islice(left, 1)]
            old = next((old for old in found if old.value in (None, *given)), None)
            if old is None:
                yield from (word, *given)
                continue
            notes.print(f"note: {old.note}", highlight=False, markup=False, soft_wrap=True)
            yield from old.new
            if old.value is None and old.new:
                yield from given
