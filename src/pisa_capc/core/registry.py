"""Named parts of one kind: encoders, methods, calibrations, formats, waveforms. One class serves all of them.

A part is made known by a decorator and found by its name. Where a plugin brings a part, the registry remembers which
(`origin`), so that models and records can say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from pisa_capc.core.errors import ConfigError, unknown_name

T = TypeVar("T")
P = TypeVar("P")


@dataclass(frozen=True)
class PartOrigin:
    """The plugin a part is from: its name, version, and the SHA-256 of its code."""

    name: str
    version: str
    digest: str

    def __str__(self) -> str:
        return " ".join(filter(None, [self.name, self.version, f"(SHA-256 {self.digest[:12]}…)"]))


PACKAGE = ("pisa_capc",)

_loading: list[PartOrigin] = []
_every: WeakSet[Registry[Any]] = WeakSet()
_search: list[Callable[[], None]] = []


@contextmanager
def loading(origin: PartOrigin) -> Iterator[None]:
    """Parts that are registered inside the block are of this plugin."""
    _loading.append(origin)
    try:
        yield
    finally:
        _loading.pop()


def is_loading() -> bool:
    return bool(_loading)


def search_with(search: Callable[[], None]) -> None:
    """Have `search` called, which may register more, before a registry lists its parts or does not know a name."""
    _search[:] = [search]


def forget(origin: PartOrigin) -> None:
    """Take back what a plugin registered anywhere, as when loading it failed."""
    for registry in _every:
        registry.forget(origin)


def adopt(origin: PartOrigin, packages: Sequence[str]) -> None:
    """Assign the parts of these Python packages to this plugin, even if other code imported them first."""
    for registry in _every:
        registry.adopt(origin, packages)


class Registry(Generic[T]):
    """Parts by name, in the order in which they were registered.

    >>> greetings: Registry[str] = Registry("greeting")
    >>> greetings.add("short", "hi")
    >>> greetings["short"], list(greetings)
    ('hi', ['short'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}
        self._origins: dict[str, PartOrigin] = {}
        _every.add(self)

    def add(self, name: str, part: T) -> None:
        """Register `part` as `name`; a name that is taken is refused, except for a session's own part."""
        if name in self._parts and not all(_inside(one, ["__main__"]) for one in (part, self._parts[name])):
            by = f" by the plugin {self._origins[name].name}" if name in self._origins else ""
            raise ConfigError(f"{self.kind} {name!r}: the name is taken{by}. Register it under another one.")
        self._parts[name] = part
        if _loading and not _inside(part, PACKAGE):  # which a plugin may be the first to import
            self._origins[name] = _loading[-1]

    def register(self, name: str) -> Callable[[P], P]:
        """`add` as a decorator."""

        def keep(part: P) -> P:
            self.add(name, part)  # type: ignore[arg-type]
            return part

        return keep

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise ConfigError(unknown_name(self.kind, name, self._parts))
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._parts:
            _look_further()
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts())

    def __len__(self) -> int:
        return len(self.parts())

    def parts(self, search: bool = True) -> Mapping[str, T]:
        """All parts by name; without `search` only those already loaded, as for help, which must be quick."""
        if search:
            _look_further()
        return dict(self._parts)

    def origin(self, name: str) -> PartOrigin | None:
        """The plugin that brought a part; None for those of this package, and for what a script registered itself."""
        part = self._parts.get(name)
        if name not in self._origins and part is not None and not _inside(part, PACKAGE):
            _look_further()
        return self._origins.get(name)

    def forget(self, origin: PartOrigin) -> None:
        """Take back what a plugin registered, as when loading it failed."""
        for name in [name for name, found in self._origins.items() if found == origin]:
            del self._parts[name], self._origins[name]

    def adopt(self, origin: PartOrigin, packages: Sequence[str]) -> None:
        """Assign the parts of these Python packages to this plugin."""
        self._origins |= {name: origin for name, part in self._parts.items() if _inside(part, packages)}


def _look_further() -> None:
    for search in _search:
        search()


def _inside(part: object, packages: Sequence[str]) -> bool:
    """Whether a part's code stands in one of the packages."""
    code = getattr(part, "implementation", getattr(part, "__wrapped__", part))  # a flaw is an object around a function
    module = str(getattr(code, "__module__", "") or "")
    return any(module == package or module.startswith(f"{package}.") for package in packages)
