"""Modules are found by the names they had: the same module, and a warning at the line that uses the name."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import pisa_capc
from pisa_capc.cli.output import warnings_as_notes
from pisa_capc.core.moved import MOVED, new_name
from pisa_capc.core.plugins import load_file

BACK = {new: old for old, new in MOVED.items()}


@pytest.fixture(autouse=True)
def _forget_old_names() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if new_name(name):
            del sys.modules[name]


def old_name(module: str) -> str | None:
    """The name that a module of today had."""
    head, tail = module.removeprefix("pisa_capc."), ""
    while head and head not in BACK:
        head, dot, last = head.rpartition(".")
        tail = f"{dot}{last}{tail}"
    return f"pisa_capc.{BACK[head]}{tail}" if head else None


@pytest.mark.parametrize("old", MOVED)
def test_every_old_name_gives_the_module_itself_and_a_warning(old: str) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        module = import_module(f"pisa_capc.{old}")
    assert module is import_module(f"pisa_capc.{MOVED[old]}")
    last = found[-1]
    assert last.category is DeprecationWarning
    assert str(last.message).startswith(f"pisa_capc.{old} is now pisa_capc.{MOVED[old]}. ")


def test_every_module_that_has_moved_is_found_by_its_old_name() -> None:
    """The list alone decides it: what is in a package has moved with it. What was never elsewhere has no old name."""
    root = Path(pisa_capc.__file__).parent
    names = [".".join(path.relative_to(root).with_suffix("").parts) for path in root.rglob("*.py")]
    old_names = {module: old for name in names if (old := old_name(module := name.removesuffix(".__init__")))}
    assert {module: new_name(old) for module, old in old_names.items()} == {
        module: f"pisa_capc.{module}" for module in old_names
    }
    assert len(set(old_names.values())) == len(old_names) > 250


PROGRAM = """
import pisa_capc
from pisa_capc.frames import Frames                                     # line 2
import pisa_capc.simulate.scene
import pisa_capc.training.fit                                           # line 4
from pisa_capc.training import fit
from pisa_capc.formats.csi import intel                                 # line 6
from pisa_capc.model import PISA
from importlib.util import find_spec                                    # line 8
from pisa_capc import Frames as same, scores
import pisa_capc.model.training
print(Frames is same is pisa_capc.data.frames.Frames)
print(pisa_capc.simulate.__name__)  # importing the module has not put it in the place of the function
print(fit is pisa_capc.fit is pisa_capc.model.training.fit)
print(intel.__name__, PISA.__module__, scores.__name__)
print(find_spec("pisa_capc.store.nothing"))
"""


def test_an_old_program_runs_and_is_told_what_to_change() -> None:
    """In a new process, where no test has imported anything."""
    run = [sys.executable, "-W", "always::DeprecationWarning", "-c", PROGRAM.strip()]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "True",
        "simulate",
        "True",
        "pisa_capc.signal.formats.csi.intel pisa_capc.model.networks.pisa pisa_capc.data.scores",
        "None",
    ]
    warned = re.findall(r"^<string>:(\d+): DeprecationWarning: (\S+) is now", done.stderr, re.M)
    assert list(dict.fromkeys(warned)) == [
        ("2", "pisa_capc.frames"),
        ("3", "pisa_capc.simulate"),
        ("3", "pisa_capc.simulate.scene"),
        ("4", "pisa_capc.training"),
        ("4", "pisa_capc.training.fit"),
        ("6", "pisa_capc.formats"),
        ("6", "pisa_capc.formats.csi"),
        ("7", "pisa_capc.model.PISA"),
        ("9", "pisa_capc.scores"),
    ]


@pytest.mark.usefixtures("own_parts")
def test_old_names_in_a_plugin_are_a_note_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("from pisa_capc.encoders import Encoder\n", encoding="utf-8")
    with warnings_as_notes():
        load_file(tmp_path / "mine.py")
    assert capsys.readouterr().err.splitlines() == [
        "note: pisa_capc.encoders is now pisa_capc.model.encoders. The old name goes with the next version."
    ]


@pytest.mark.parametrize(
    ("package", "kind"),
    [
        ("signal.formats", "format"),
        ("signal.waveforms", "waveform"),
        ("model.encoders", "encoder"),
        ("model.methods", "method"),
        ("decide.calibration", "calibration"),
        ("evidence.checks", "check"),
    ],
)
def test_register_is_the_function_that_has_the_name_of_its_kind(package: str, kind: str) -> None:
    module = import_module(f"pisa_capc.{package}")
    new = getattr(module, f"register_{kind}")
    assert module.register.__wrapped__ is new is getattr(pisa_capc, f"register_{kind}")
    with pytest.warns(
        DeprecationWarning, match=f"{package}.register is now pisa_capc.{package}.register_{kind}. "
    ) as at:
        module.register("passing")
    assert at[0].filename == __file__


OLD_CLASSES = {
    "Detection": "FoundFrame",
    "signal.detection.Detection": "FoundFrame",
    "live.listen.Decision": "FoundFrame",
    "live.listen.Plan": "live.listen.ListenPlan",
    "live.listen.Choices": "live.listen.LiveChoices",
    "signal.recordings.Watched": "signal.recordings.WatchedRecording",
    "signal.phy.wifi.Signal": "signal.phy.wifi.SignalField",
}


def _get(name: str) -> object:
    package, _, own = f"pisa_capc.{name}".rpartition(".")
    return getattr(import_module(package), own)


@pytest.mark.parametrize("old", OLD_CLASSES)
def test_a_class_is_found_by_the_name_that_it_had(old: str) -> None:
    new = _get(OLD_CLASSES[old])
    with pytest.warns(DeprecationWarning, match=f"pisa_capc.{old} is now .*{OLD_CLASSES[old].split('.')[-1]}") as found:
        assert _get(old) is new
    assert found[0].filename == __file__
