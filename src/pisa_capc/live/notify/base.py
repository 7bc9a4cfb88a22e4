"""What a sink of alarms is, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, TypeVar
from urllib.parse import SplitResult, urlsplit

from pisa_capc.core.errors import ConfigError, MissingExtraError
from pisa_capc.core.registry import Registry
from pisa_capc.live.listen.events import Alarm

TIMEOUT_S = 10.0  # for whatever a sink waits for
LONGEST = 1 << 16  # bytes of a file of URLs
APPRISE = "apprise"  # takes the URLs that no other sink knows


class AlarmSink:
    """Where alarms go, as NAME:REST. A subclass under `@register_sink("name")` gives `shape` and `send`.

    A sink is used by one thread, which may wait for it: nothing else does. `send` and `idle` raise what went wrong, and
    are called again later. Each must end in about `TIMEOUT_S`.

    shape: how it is named, for people. name: this one, without its password.
    """

    shape: ClassVar[str]

    def __init__(self, url: str) -> None:
        self.url, self.name = url, shown(url)

    def send(self, alarm: Alarm) -> None:
        """Deliver a report of an alarm; of each number the newest report is the one that holds."""
        raise NotImplementedError

    def idle(self) -> None:
        """Called at the start, and now and then while there is nothing to deliver."""

    def close(self) -> None:
        """Called at the end; errors are not reported."""


ALARM_SINKS: Registry[type[AlarmSink]] = Registry("alarm sink")
K = TypeVar("K", bound=type[AlarmSink])


def register_sink(name: str) -> Callable[[K], K]:
    """Make a kind of sink known, so that `--notify NAME:…` of `pisa listen` and `pisa serve` delivers to it."""

    def add(cls: K) -> K:
        if not hasattr(cls, "shape"):
            raise ConfigError(f"alarm sink {name!r}: {cls.__name__} has no shape, as 'exec:COMMAND'.")
        ALARM_SINKS.add(name, cls)
        return cls

    return add


def open_sink(url: str) -> AlarmSink:
    """The sink that a URL names; those that no part here knows are for Apprise."""
    name, colon, _ = url.partition(":")
    shapes = ", ".join(dict.fromkeys(kind.shape for kind in ALARM_SINKS.parts().values()))
    if not colon or not name:
        raise ConfigError(f"--notify {shown(url)}: expected {shapes}.")
    if name in ALARM_SINKS and name != APPRISE:
        return ALARM_SINKS[name](url)
    if find_spec(APPRISE) is None:
        raise MissingExtraError(APPRISE, "notify", f"--notify {name}:… is none of {shapes}, so it")
    return ALARM_SINKS[APPRISE](url)


def urls_of(given: list[str]) -> list[str]:
    """URLs as they are given; @FILE stands for the lines of a file, which keeps passwords off the command line."""
    found = list[str]()
    for one in given:
        if not one.startswith("@"):
            found.append(one)
            continue
        path = Path(one[1:])
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(LONGEST + 1)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--notify {one}: cannot be read ({error}). Give a file with a URL per line.") from error
        if len(text) > LONGEST:
            raise ConfigError(f"--notify {one}: more than {LONGEST:,} characters. Give a file with a URL per line.")
        found += [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return found


def shown(url: str) -> str:
    """A URL for people, without what may be secret: user and password, and all behind the host but for MQTT's path.

    >>> shown("mqtt://me:secret@broker/pisa/roof"), shown("https://hooks.example/T0/B1/xyz"), shown("exec:page me")
    ('mqtt://broker/pisa/roof', 'https://hooks.example/…', 'exec:page')
    """
    scheme, colon, rest = url.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}{colon}{(rest.split() or [''])[0]}"
    authority, _, path = rest[2:].partition("/")
    host = authority.rpartition("@")[2].partition("?")[0]
    if scheme.startswith("mqtt"):
        return f"{scheme}://{host}" + (f"/{path.partition('?')[0]}" if path else "")
    if scheme not in ("http", "https"):  # of Apprise: the first part may be a token
        return f"{scheme}://…"
    return f"{scheme}://{host}/…" if path else f"{scheme}://{host}"


def parsed(url: str, port: int) -> tuple[SplitResult, str, int]:
    """A URL, its host and its port; a bad one is an error that shows no password."""
    try:
        parts = urlsplit(url)
        host, number = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"--notify {shown(url)}: is no URL ({error}).") from error
    if not host:
        raise ConfigError(f"--notify {shown(url)}: has no host. Give it as {parts.scheme}://HOST.")
    return parts, host, number or port
