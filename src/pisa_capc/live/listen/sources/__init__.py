"""Where samples come from as they are received: a radio, a socket, a pipe, a file that grows.

A source of your own is a class under `@register_source("name")` in a plugin, see `SourceKind`.
"""

from pisa_capc.live.listen.sources import plain, soapy, zeromq  # noqa: F401  (they register what they have)
from pisa_capc.live.listen.sources.base import (
    SOURCES,
    Source,
    SourceKind,
    StreamSettings,
    encoding_of,
    open_source,
    open_stream,
    register_source,
)
from pisa_capc.live.listen.sources.plain import FileSource, StandardInput, TcpSource

__all__ = [
    "SOURCES",
    "FileSource",
    "Source",
    "SourceKind",
    "StandardInput",
    "StreamSettings",
    "TcpSource",
    "encoding_of",
    "open_source",
    "open_stream",
    "register_source",
]
