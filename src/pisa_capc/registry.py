"""Named parts of one kind: encoders, methods, calibrations, formats, waveforms. One class serves all of them.

A part is made known by a decorator and found by its name. Where a plugin brings a part, the registry remembers which
(`origin`), so that models and records can say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from pisa_capc.errors import ConfigError, unknown_name

T = TypeVar("T")
P = TypeVar("P")


@dataclass(frozen=True)
class Origin:
    """The plugin a part is from: its name, version, and the SHA-256 of its code."""

    name: str
    version: str
    digest: str


_loading: list[Origin] = []


@contextmanager
def loading(origin: Origin) -> Iterator[None]:
    """Parts that are registered inside the block are of this plugin."""
    _loading.append(origin)
    try:
        yield
    finally:
        _loading.pop()


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
        self._origins: dict[str, Origin] = {}

    def add(self, name: str, part: T) -> None:
        """Make `part` known as `name`; a name that is taken is refused."""
        if name in self._parts:
            by = f" by the plugin {self._origins[name].name}" if name in self._origins else ""
            raise ConfigError(f"{self.kind} {name!r}: the name is taken{by}. Register it under another one.")
        self._parts[name] = part
        if _loading:
            self._origins[name] = _loading[-1]

    def register(self, name: str) -> Callable[[P], P]:
        """`add` as a decorator."""

        def keep(part: P) -> P:
            self.add(name, part)  # type: ignore[arg-type]
            return part

        return keep

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            raise ConfigError(unknown_name(self.kind, name, self._parts))
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def parts(self) -> Mapping[str, T]:
        """All parts by name."""
        return dict(self._parts)

    def origin(self, name: str) -> Origin | None:
        """The plugin that brought a part; None for those of this package."""
        return self._origins.get(name)

    def forget(self, origin: Origin) -> None:
        """Take back what a plugin registered, as when loading it failed."""
        for name in [name for name, found in self._origins.items() if found == origin]:
            del self._parts[name], self._origins[name]
