"""A small MQTT broker of one connection at a time, that confirms what it is told to."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress


class Broker:
    """messages: (topic, content, kept) in the order of their arrival. code: what CONNECT is answered with.

    drop_after: closes each connection after so many messages.
    """

    def __init__(self, code: int = 0, user: str | None = None, drop_after: int | None = None) -> None:
        self.messages: list[tuple[str, bytes, bool]] = []
        self.will: tuple[str, bytes] | None = None
        self.connections = self.pings = 0
        self.ended_well = False
        self._code, self._user, self._drop_after = code, user, drop_after
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self.connections += 1
                with connection, suppress(OSError, IndexError):
                    self._talk(connection.makefile("rwb", buffering=0))

    def _talk(self, file: socket.SocketIO) -> None:  # type: ignore[name-defined]
        here = 0
        while True:
            kind, body = self._packet(file)
            if kind == 0x10:
                code = self._connect(body)
                file.write(bytes([0x20, 2, 0, code]))
                if code:
                    return
            elif kind & 0xF0 == 0x30:
                if self._drop_after is not None and here >= self._drop_after:
                    return
                here += 1
                size = struct.unpack(">H", body[:2])[0]
                topic, number, content = body[2 : 2 + size], body[2 + size : 4 + size], body[4 + size :]
                assert kind & 0x06 == 0x02, "at least once"
                self.messages.append((topic.decode(), content, bool(kind & 1)))
                file.write(bytes([0x40, 2]) + number)
            elif kind == 0xC0:
                self.pings += 1
                file.write(bytes([0xD0, 0]))
            else:
                self.ended_well = kind == 0xE0
                return

    @staticmethod
    def _packet(file: socket.SocketIO) -> tuple[int, bytes]:  # type: ignore[name-defined]
        kind, length, shift = file.read(1)[0], 0, 0
        while True:
            byte = file.read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        body = b""
        while len(body) < length:
            body += file.read(length - len(body))
        return kind, body

    def _connect(self, body: bytes) -> int:
        assert body[:7] == b"\x00\x04MQTT\x04"
        flags, parts, at = body[7], list[bytes](), 10
        while at < len(body):
            size = struct.unpack(">H", body[at : at + 2])[0]
            parts.append(body[at + 2 : at + 2 + size])
            at += 2 + size
        self.will = parts[1].decode(), parts[2]
        said = ":".join(part.decode() for part in parts[3:]) if flags & 0x80 else None
        return 4 if self._user is not None and said != self._user else self._code
