"""Plugins are loaded whole or not at all, from files and from packages."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pisa_capc import simulate
from pisa_capc.core import plugins
from pisa_capc.core.engines import run_jobs
from pisa_capc.core.errors import ConfigError, PluginError
from pisa_capc.core.registry import PartOrigin
from pisa_capc.model.encoders import ENCODERS
from pisa_capc.model.methods import METHODS, plugins_used
from pisa_capc.signal.formats import FORMATS, Format, export_dataset, import_dataset, register_format
from tests.core.plugins.tools import EXAMPLE, FORMAT, WAVEFORM, known_formats, write_encoder, write_format, write_scene
from tests.problems import small_frames

pytestmark = pytest.mark.usefixtures("own_parts")


def test_a_file_brings_parts_that_know_where_they_are_from(tmp_path: Path) -> None:
    path = write_encoder(tmp_path)
    found = plugins.load_file(path)
    assert found == PartOrigin("mine", "1.2", hashlib.sha256(path.read_bytes()).hexdigest())
    assert ENCODERS.origin("mine") == found
    assert ENCODERS.origin("cnn") is None
    assert plugins_used("pisa", "mine") == [asdict(found)]
    assert plugins_used("pisa", "cnn") == []
    assert str(found) == f"mine 1.2 (SHA-256 {found.digest[:12]}…)"


def test_a_file_and_copies_of_it_are_loaded_once(tmp_path: Path) -> None:
    path = write_encoder(tmp_path, "print('loaded')")
    (tmp_path / "copy").mkdir()
    copy = write_encoder(tmp_path / "copy", "print('loaded')")
    assert plugins.load_file(path) == plugins.load_file(str(path)) == plugins.load_file(copy)


def test_a_file_that_was_changed_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    before = plugins.load_file(write_encoder(tmp_path))
    after = plugins.load_file(write_encoder(tmp_path, "# changed"))
    assert before.digest != after.digest
    assert ENCODERS.origin("mine") == after


@pytest.mark.parametrize(
    ("more", "line", "reason"),
    [
        ("\nimport no_such_module\n", 14, "ModuleNotFoundError: No module named 'no_such_module'."),
        ("\ndef :\n", 14, "SyntaxError: invalid syntax."),
        ("\nraise SystemExit(3)\n", 14, "SystemExit: 3."),
        ("\nregister_encoder('cnn', ordinary=True)(Mine)\n", 14, "encoder 'cnn': the name is taken."),
        ("\ndef f():\n    return 1 / 0\n\nf()\n", 15, "ZeroDivisionError: division by zero."),
    ],
)
def test_a_broken_file_is_one_error_with_its_line_and_leaves_nothing_behind(
    tmp_path: Path, more: str, line: int, reason: str
) -> None:
    modules = set(sys.modules)
    path = write_encoder(tmp_path, more)
    with pytest.raises(PluginError) as found:
        plugins.load_file(path)
    assert str(found.value).startswith(f"plugin {path}, line {line}: {reason}")
    assert "mine" not in ENCODERS
    assert not any("mine" in name for name in set(sys.modules) - modules)
    assert plugins.load_file(write_encoder(tmp_path)).name == "mine"  # and corrected it can be loaded


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"absent\.py: cannot be read \(No such file or directory\)"):
        plugins.load_file(tmp_path / "absent.py")
    with pytest.raises(PluginError, match=r"cannot be read \(Is a directory\)"):
        plugins.load_file(tmp_path)


def test_two_plugins_with_parts_of_one_name_are_refused(tmp_path: Path) -> None:
    first = plugins.load_file(write_format(tmp_path))
    with pytest.raises(PluginError, match="format 'mine': the name is taken by the plugin mine_format"):
        plugins.load_file(write_format(tmp_path, "other", "register_format('mine')(Mine)"))
    assert "other" not in FORMATS
    assert FORMATS.origin("mine") == first


def test_the_variable_names_files_that_are_loaded_when_a_part_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "mine" not in FORMATS
    monkeypatch.setenv("PISA_PLUGINS", str(write_format(tmp_path)) + os.pathsep + str(write_format(tmp_path, "second")))
    assert plugins.is_any()
    assert plugins.loaded_files() == []
    assert isinstance(FORMATS["mine"], Format)
    assert list(FORMATS)[-2:] == ["mine", "second"]


def test_a_plugin_may_look_for_parts_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_format(tmp_path, more="from pisa_capc.signal.formats import FORMATS\nassert 'other' not in FORMATS\n")
    monkeypatch.setenv("PISA_PLUGINS", str(path))
    assert "mine" in FORMATS


def test_what_a_script_registers_is_of_no_plugin() -> None:
    register_format("scripted")(type("Scripted", (Format,), {}))
    assert FORMATS.origin("scripted") is None


def test_a_format_that_only_reads_says_so(tmp_path: Path) -> None:
    plugins.load_file(write_format(tmp_path))
    with pytest.raises(ConfigError, match="format 'mine' cannot be written, only read"):
        export_dataset("mine", small_frames(), tmp_path / "out")
    with pytest.raises(ConfigError, match="format 'mine' cannot be read, only written"):
        import_dataset("mine", tmp_path, tmp_path / "out")


def test_parts_of_this_package_are_of_no_plugin_that_is_the_first_to_import_them(tmp_path: Path) -> None:
    """In a new process, where nothing is imported yet: neither named after it nor forgotten with it."""
    broken = write_encoder(tmp_path, "import pisa_capc.decide.calibration, pisa_capc.model.methods\nraise ValueError\n")
    script = f"""
from pisa_capc.core import plugins, registry
from pisa_capc.core.errors import PluginError
try:
    plugins.load_file({str(broken)!r})
except PluginError:
    origin = plugins.load_file({str(EXAMPLE / "pisa_capc_example.py")!r})
from pisa_capc.model import encoders, methods
from pisa_capc.signal import formats, waveforms
from pisa_capc.decide import calibration
assert {{"cnn", "transformer"}} <= set(encoders.ENCODERS)
for known in registry._every:
    print(known.kind, [name for name in known if known.origin(name) is not None])
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert sorted(line for line in found.stdout.splitlines() if not line.endswith("[]")) == [
        "calibration ['sharpened']", "encoder ['strided']", "format ['text']", "method ['smoothed']",
        "waveform ['zadoff-chu']",
    ], found.stderr  # fmt: skip


def test_every_registry_knows_how_to_forget() -> None:
    """Whatever kinds of parts there are: adding one and taking it back leaves it as it was."""
    from pisa_capc.core import registry

    origin = PartOrigin("passing", "", "0")
    for known in list(registry._every):
        before = dict(known._parts)
        with registry.loading(origin):
            known.add("passing", object())
        assert known.origin("passing") == origin
        registry.forget(origin)
        assert known._parts == before


def test_worker_processes_have_the_plugins_of_the_one_that_started_them(tmp_path: Path) -> None:
    path = write_format(tmp_path)
    plugins.load_file(path)
    assert all("mine" in names for names in run_jobs(known_formats, [(1,), (2,)], workers=2))
    path.write_text(path.read_text(encoding="utf-8") + "# changed", encoding="utf-8")
    with pytest.raises(PluginError, match="differs from the file that the work began with"):
        list(run_jobs(known_formats, [(1,), (2,)], workers=2))


def test_the_workers_of_a_simulation_send_the_waveform_of_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "tone.py").write_text(WAVEFORM, encoding="utf-8")
    scene = write_scene(tmp_path, "tone", 3e6)
    how = {"scale": 0.001, "scene": scene, "show_progress": False}
    plugins.load_file(tmp_path / "tone.py")
    alone, both = (simulate("wifi", tmp_path / str(n), workers=n, **how) for n in (1, 2))
    np.testing.assert_array_equal(alone.iq, both.iq)


@pytest.mark.slow
def test_workers_on_ray_have_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{root / 'src'}:{root}")
    plugins.load_file(write_format(tmp_path))
    assert all("mine" in names for names in run_jobs(known_formats, [(1,), (2,)], "ray", workers=1))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages with one plugin, pkg, as pip leaves it behind."""
    site = tmp_path / "site"
    write_package(site)
    monkeypatch.syspath_prepend(site)
    before = plugins._searched, plugins._failure
    plugins._searched, plugins._failure = False, None
    plugins._entry_points.cache_clear()
    yield site
    plugins._searched, plugins._failure = before
    plugins._entry_points.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "pkg"]:
        del sys.modules[name]


def write_package(site: Path, more: str = "") -> None:
    (site / "pkg").mkdir(parents=True, exist_ok=True)
    (site / "pkg" / "__init__.py").write_text("", encoding="utf-8")
    (site / "pkg" / "parts.py").write_text(FORMAT.format(name="packaged") + more, encoding="utf-8")
    about = site / "pkg-2.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 2.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[pisa_capc.plugins]\nany = pkg.parts\n", encoding="utf-8")


def test_installed_packages_are_loaded_when_a_part_is_looked_for(installed: Path) -> None:
    assert plugins.is_any()
    assert "packaged" not in FORMATS._parts
    assert "packaged" in FORMATS
    found = FORMATS.origin("packaged")
    assert found is not None
    assert (found.name, found.version, len(found.digest)) == ("pkg", "2.0", 64)


def test_a_package_that_somebody_imported_first_is_still_a_plugin(installed: Path) -> None:
    import pkg.parts  # type: ignore[import-not-found]  # noqa: F401

    found = FORMATS.origin("packaged")
    assert found is not None
    assert found.name == "pkg"


def test_the_digest_of_a_package_is_of_all_its_files_and_of_nothing_else(installed: Path) -> None:
    before = plugins._digest(["pkg"])
    (installed / "pkg" / "__pycache__").mkdir()
    (installed / "pkg" / "__pycache__" / "parts.cpython-311.pyc").write_bytes(b"compiled")
    (installed / "pkg-2.0.dist-info" / "INSTALLER").write_text("pip", encoding="utf-8")
    assert plugins._digest(["pkg"]) == before
    (installed / "pkg" / "scene.yaml").write_text("a: 1", encoding="utf-8")
    assert plugins._digest(["pkg"]) != before


def test_a_broken_package_is_one_error_whenever_it_is_needed(installed: Path) -> None:
    write_package(installed, "raise ValueError('no good')")
    assert FORMATS["npz"] is not None  # what is there is found without it
    for _ in range(2):
        with pytest.raises(PluginError, match=r"plugin pkg 2\.0: .*parts\.py, line 7: ValueError: no good\. Repair or"):
            FORMATS["packaged"]
    assert "packaged" not in FORMATS._parts


def test_a_package_whose_module_is_absent_is_named(installed: Path) -> None:
    (installed / "pkg-2.0.dist-info" / "entry_points.txt").write_text(
        "[pisa_capc.plugins]\nany = absent.parts\n", encoding="utf-8"
    )
    with pytest.raises(PluginError, match=r"plugin pkg 2\.0: .*No module named 'absent'"):
        list(METHODS)


def test_looking_at_the_help_loads_neither_torch_nor_a_plugin(installed: Path) -> None:
    script = (
        "import sys\nfrom pisa_capc.cli import main\nsys.argv = ['pisa', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    print([n for n in ('torch', 'pkg.parts') if n in sys.modules])"
    )
    path = os.pathsep.join([str(installed), *sys.path])
    found = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert found.stdout.endswith("[]\n"), found.stderr


def test_a_session_can_define_its_own_part_again() -> None:
    for _ in range(2):  # as a notebook whose cell is run twice
        register_format("scripted")(type("Scripted", (Format,), {"__module__": "__main__"}))
    with pytest.raises(ConfigError, match="format 'npz': the name is taken"):
        register_format("npz")(type("Scripted", (Format,), {"__module__": "__main__"}))


@pytest.mark.slow
def test_more_parts_break_no_test_that_goes_through_a_registry() -> None:
    """And those of the example have every property that is tested of all."""
    environment = {**os.environ, plugins.VARIABLE: str(EXAMPLE / "pisa_capc_example.py")}
    tests = [
        "tests/model/methods",
        "tests/model/encoders/test_encoders.py",
        "tests/model/inference",
        "tests/signal/formats",
        "tests/cli",
    ]
    tests += [
        "tests/decide/calibration/test_every_calibration.py",
        "tests/signal/waveforms",
        "tests/signal/simulation",
        "tests/test_figures.py",
    ]
    tests += [
        "tests/evidence/benchmark/test_protocols.py",
        "tests/evidence/benchmark/test_tables.py",
        "tests/test_figures.py",
    ]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", *tests], env=environment, cwd=EXAMPLE.parents[1], text=True,
        capture_output=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-3000:]
