"""What a source of samples is, and the registry of them.

A source writes bytes into a `Ring`, in a thread of its own, and never waits for its readers, unless the source
loses nothing by waiting. Its messages go to `note`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeVar

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.moved import warn_of
from pisa_capc.core.quantities import frequency
from pisa_capc.core.registry import Registry
from pisa_capc.live.listen.ring import Ring
from pisa_capc.signal.recordings.encoding import ENDINGS, Encoding

POLL_S = 0.1  # how soon a stop is noticed
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 10.0  # before connecting again
USUAL = "cf32"  # what GNU Radio sends

Note = Callable[[str], None]


class Source(Protocol):
    """patient: whether it loses nothing by waiting. connected: whether it is."""

    patient: bool
    connected: bool

    @property
    def name(self) -> str: ...

    def read_into(self, ring: Ring, stop: threading.Event, note: Note) -> None:
        """Write what is received into the ring, until the source ends or `stop` is set."""
        ...


@dataclass(frozen=True)
class StreamSettings:
    """What is known of a stream; None: not yet.

    antennas: interleaved; assumed_antennas: where nothing says how many. follow: wait at the end of a file for more.
    wait: let the source wait in the place of missing samples.
    """

    sample_rate_hz: float | None = None
    carrier_hz: float | None = None
    antennas: int | None = None
    encoding: Encoding | None = None
    follow: bool = False
    wait: bool = False
    assumed_antennas: int = 1

    def __post_init__(self) -> None:
        for name, value in (("sample rate", self.sample_rate_hz), ("carrier", self.carrier_hz)):
            if value is not None:
                frequency(value, name)

    @property
    def layout(self) -> tuple[int, Encoding]:
        """Antennas and format; GNU Radio's where nothing says otherwise."""
        return self.antennas or self.assumed_antennas, self.encoding or Encoding.named(USUAL)

    def with_what_is_said(self, source: str, said: StreamSettings) -> StreamSettings:
        """Completed by what a source says itself; what was given goes before it, but for the number of antennas."""
        if self.antennas is not None and said.antennas not in (None, self.antennas):
            raise ConfigError(f"{source}: has {said.antennas} antenna(s); --antennas says {self.antennas}.")
        names = ("sample_rate_hz", "carrier_hz", "antennas", "encoding")
        return replace(self, **{name: getattr(said, name) for name in names if getattr(self, name) is None})


class SourceKind:
    """What can be listened to, as KIND:REST. A subclass under `@register_source("kind")` gives `shape` and `opened`.

    shape: how it is named, for people.
    """

    shape: ClassVar[str]

    def opened(self, rest: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
        """The source, before anything is received, and the stream with the source's own settings."""
        raise NotImplementedError


SOURCES: Registry[SourceKind] = Registry("source")
K = TypeVar("K", bound=type[SourceKind])


def register_source(name: str) -> Callable[[K], K]:
    """Make a kind of source known, so that `pisa listen NAME:…` and `pisa serve NAME:…` open it."""

    def add(cls: K) -> K:
        if not hasattr(cls, "shape"):
            raise ConfigError(f"source {name!r}: {cls.__name__} has no shape, as 'tcp:HOST:PORT'.")
        SOURCES.add(name, cls())
        return cls

    return add


def open_stream(text: str, given: StreamSettings) -> tuple[Source, StreamSettings]:
    """The source that a text names, as tcp:HOST:PORT, and what is known of its samples."""
    name, colon, rest = ("stdin", ":", "") if text == "-" else text.partition(":")
    if not colon or name not in SOURCES:
        *others, last = [kind.shape for kind in SOURCES.parts().values()]
        raise ConfigError(f"source {text!r}: expected {', '.join(others)} or {last}.")
    source, stream = SOURCES[name].opened(rest, given)
    antennas, encoding = stream.layout
    return source, replace(stream, antennas=antennas, encoding=encoding)


def open_source(text: str, *, antennas: int, encoding: Encoding, follow: bool = False, wait: bool = False) -> Source:
    """`open_stream` of samples that are known."""
    return open_stream(text, StreamSettings(antennas=antennas, encoding=encoding, follow=follow, wait=wait))[0]


def encoding_of(text: str, format: str | None) -> Encoding:
    """The format of the samples of a source, as it is named, or as the source says."""
    warn_of("encoding_of", "open_stream, which gives the format as well")
    ending = text.rpartition(".")[2].lower()
    return Encoding.named(format or (ending if text.startswith("file:") and ending in ENDINGS else USUAL))
