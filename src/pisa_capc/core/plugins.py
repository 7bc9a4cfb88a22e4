"""Parts from outside: plugins that register encoders, methods, calibrations, formats or waveforms of their own.

A plugin is a Python file, given with `--plugin FILE.py`, in the variable PISA_PLUGINS or to `load_file`; or an
installed package whose entry points of the group `pisa_capc.plugins` name the modules to import. The code is the same.

Files that are given are loaded at once. Installed packages, and files in PISA_PLUGINS, are loaded when a registry is
asked for a name it does not know, or for all of them, so that unused plugins cost no time.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pisa_capc.core.errors import PisaError, PluginError
from pisa_capc.core.registry import PartOrigin, adopt, forget, is_loading, loading

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "pisa_capc.plugins"  # of entry points
VARIABLE = "PISA_PLUGINS"  # files, separated as in PATH

_files: dict[Path, PartOrigin] = {}  # that are loaded, by their resolved path
_searched = False  # whether installed packages were looked for
_failure: PluginError | None = None  # of one of them: what half of it has imported cannot be imported again


def load() -> None:
    """Load the plugins named in PISA_PLUGINS and those installed, each once."""
    if is_loading():  # a plugin asks for a part
        return
    for path in _named():
        if path.resolve() not in _files:
            load_file(path)
    _load_installed()


def load_file(path: str | Path) -> PartOrigin:
    """Load a plugin from a Python file; a file that has changed since is loaded again.

    Its name is the file's, its version what it sets as `__version__`, where it does.
    """
    file = Path(path).resolve()
    try:
        source = file.read_bytes()
    except OSError as error:
        raise PluginError(f"plugin {path}: cannot be read ({error.strerror}). Expected a Python file.") from error
    origin = PartOrigin(file.stem, _version(source), hashlib.sha256(source).hexdigest())
    before = _files.get(file)
    if before == origin or origin in _files.values():  # the same file, or a copy of it
        _files[file] = origin
        return origin
    if before is not None:
        forget(before)
        del _files[file]
    _execute(file, source, origin)
    _files[file] = origin
    return origin


def loaded_files() -> list[tuple[str, str]]:
    """Path and digest of the files that are loaded, for `load_same` in another process."""
    return [(str(path), origin.digest) for path, origin in _files.items()]


def load_same(files: Sequence[tuple[str, str]]) -> None:
    """Load these files, as `loaded_files` of another process gave them; another content is refused."""
    for path, digest in files:
        if load_file(path).digest != digest:
            raise PluginError(
                f"plugin {path}: differs from the file that the work began with. Leave it unchanged until the work is "
                "done, and have the same file on every machine."
            )


def is_any() -> bool:
    """Whether there is any plugin, without loading one: where there is none, no part can be from one."""
    return bool(_files or _named() or _entry_points())


def described(*origins: PartOrigin | None) -> list[dict[str, str]]:
    """The plugins that parts are from, each once, as models and records keep them."""
    known = {origin for origin in origins if origin is not None}
    return [asdict(origin) for origin in sorted(known, key=lambda origin: (origin.name, origin.digest))]


def listed(described: Sequence[Mapping[str, Any]]) -> str:
    """What messages call plugins that `described` gave: name, version, and the beginning of the digest."""
    return ", ".join(str(PartOrigin(**plugin)) for plugin in described)


def _named() -> list[Path]:
    return [Path(path) for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]


def _execute(file: Path, source: bytes, origin: PartOrigin) -> None:
    """Run the very bytes whose digest is kept."""
    name = f"pisa_plugin_{file.stem}_{origin.digest[:8]}"
    module = sys.modules[name] = ModuleType(name)  # dataclasses look their module up there
    module.__file__ = str(file)
    try:
        with loading(origin):
            exec(compile(source, str(file), "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        forget(origin)
        if not isinstance(error, Exception | SystemExit):
            raise
        raise PluginError(f"plugin {_reason(error, file)} Correct it, or leave it out.") from error


def _load_installed() -> None:
    global _searched, _failure
    if _failure is not None:
        raise _failure
    if _searched:
        return
    _searched = True
    points: dict[tuple[str, str], list[EntryPoint]] = {}
    for point in _entry_points():
        owner = (point.dist.name, point.dist.version) if point.dist else (point.name, "")
        points.setdefault(owner, []).append(point)
    for (name, version), own in sorted(points.items()):
        packages = sorted({_package(point.module) for point in own})
        origin = PartOrigin(name, version, _digest(packages))
        try:
            with loading(origin):
                for point in own:
                    point.load()
        except (Exception, SystemExit) as error:
            forget(origin)
            reason = _reason(error, *(place for package in packages for place in _places(package)))
            _failure = PluginError(f"plugin {origin.name} {origin.version}: {reason} Repair or uninstall the package.")
            raise _failure from error
        adopt(origin, packages)


@cache
def _entry_points() -> list[EntryPoint]:
    """Of all packages that are installed: looked for once, which reads a file of each."""
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


def _version(source: bytes) -> str:
    """What a file sets as `__version__`, without running it; nothing where it cannot be read, which running it says."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if "__version__" in names:
                return str(node.value.value)
    return ""


def _package(module: str) -> str:
    """The package that a module is part of: its first name that is not a mere namespace of several packages."""
    names = module.split(".")
    for length in range(1, len(names)):
        name = ".".join(names[:length])
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is not None:
            return name
    return module


def _places(package: str) -> list[Path]:
    """The folder of a package, or the file of a module."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []  # importing it will say what is wrong
    if spec is None:
        return []
    return [Path(place) for place in spec.submodule_search_locations or filter(None, [spec.origin])]


def _digest(packages: Sequence[str]) -> str:
    """SHA-256 over all files of the packages; the same for editable and other installations."""
    found = hashlib.sha256()
    for package in packages:
        for place in _places(package):
            files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
            for path in files:
                inside = path.relative_to(place.parent)
                if path.suffix != ".pyc" and not any(part.startswith(".") for part in inside.parts):
                    found.update(f"{inside.as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def _reason(error: BaseException, *places: Path) -> str:
    """'mine.py, line 3: NameError: …', with the last line of the plugin's own that led to the error."""
    text = str(error) if isinstance(error, PisaError) else f"{type(error).__name__}: {error}"
    text = text if text.endswith((".", "!", "?")) else f"{text}."
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}."
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(place == Path(frame.filename) or place in Path(frame.filename).parents for place in places)
    ]
    return f"{own[-1].filename}, line {own[-1].lineno}: {text}" if own else f"{', '.join(map(str, places))}: {text}"
