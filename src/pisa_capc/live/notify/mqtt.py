"""MQTT 3.1.1, as far as alarms need it: connect with a last will, publish at least once, stay connected.

    PREFIX/availability             online or offline, kept by the broker
    PREFIX/events                   every report of every alarm, as JSON
    PREFIX/devices/DEVICE/KIND      the newest report of this kind about an enrolled device, kept by the broker

PREFIX is pisa/HOST, where HOST is the name of this machine, or the path of the URL. Topics are named after enrolled
devices alone: senders decide what other names there are. Packets are those of the OASIS standard, section 3.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import unquote

from pisa_capc.core.errors import DataError
from pisa_capc.live.listen.events import Alarm
from pisa_capc.live.notify.base import TIMEOUT_S, AlarmSink, parsed, register_sink

CONNECT, CONNACK, PUBLISH, PUBACK, PINGREQ, PINGRESP, DISCONNECT = 0x10, 0x20, 0x30, 0x40, 0xC0, 0xD0, 0xE0
QOS1, RETAIN = 0x02, 0x01
KEEP_ALIVE_S = 60
ANSWER = 1024  # bytes of an answer, at most
LONGEST = 128  # characters of a part of a topic
REFUSED = {
    1: "the broker does not speak MQTT 3.1.1",
    2: "the broker refuses the client's name",
    3: "the broker is not available",
    4: "wrong user name or password",
    5: "not authorised",
}
ONLINE, OFFLINE = b"online", b"offline"


@register_sink("mqtts")
@register_sink("mqtt")
class Mqtt(AlarmSink):
    """Publishes alarms; see the module for the topics."""

    shape = "mqtt://[USER:PASSWORD@]HOST[:PORT][/PREFIX]"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        tls = url.startswith("mqtts:")
        parts, self._host, self._port = parsed(url, 8883 if tls else 1883)
        self._user = None if parts.username is None else unquote(parts.username)
        self._password = None if parts.password is None else unquote(parts.password)
        self._tls = ssl.create_default_context() if tls else None
        own = [topic_part(unquote(part)) for part in parts.path.split("/") if part]
        self.prefix = "/".join(own or ["pisa", topic_part(socket.gethostname())])
        self._socket: socket.socket | None = None
        self._number = 0

    def send(self, alarm: Alarm) -> None:
        text = json.dumps(alarm.to_json()).encode()
        self.publish(f"{self.prefix}/events", text)
        if alarm.device is not None:
            kind = alarm.kind.replace(" ", "-")
            self.publish(f"{self.prefix}/devices/{topic_part(alarm.device)}/{kind}", text, kept=True)

    def idle(self) -> None:
        """Connect, or show that the connection is still used."""
        self._exchanged(lambda to: self._asked(to, bytes([PINGREQ, 0]), PINGRESP))

    def publish(self, topic: str, content: bytes, kept: bool = False) -> None:
        """At least once: the broker has confirmed it."""
        self._exchanged(lambda to: self._publish(to, topic, content, kept))

    def close(self) -> None:
        try:
            if self._socket is not None:
                self._publish(self._socket, f"{self.prefix}/availability", OFFLINE, kept=True)
                self._socket.sendall(bytes([DISCONNECT, 0]))
        finally:
            self._drop()

    def _publish(self, to: socket.socket, topic: str, content: bytes, kept: bool) -> None:
        self._number = self._number % 0xFFFF + 1
        number = struct.pack(">H", self._number)
        kind = PUBLISH | QOS1 | RETAIN * kept
        if self._asked(to, _packet(kind, _text(topic.encode()) + number + content), PUBACK) != number:
            raise DataError("the broker confirmed another message than was sent")

    def _exchanged(self, exchange: Callable[[socket.socket], object]) -> None:
        """Talk to the broker. A connection that was lost in the meantime is made again, once."""
        while True:
            fresh = self._socket is None
            try:
                exchange(self._connected())
                return
            except (OSError, DataError):
                self._drop()
                if fresh:
                    raise

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection((self._host, self._port), TIMEOUT_S)
            if self._tls is not None:
                self._socket = self._tls.wrap_socket(self._socket, server_hostname=self._host)
            code = self._asked(self._socket, self._hello(), CONNACK)[1]
            if code:
                raise DataError(REFUSED.get(code, f"the broker refuses the connection, code {code}"))
            self._publish(self._socket, f"{self.prefix}/availability", ONLINE, kept=True)
        return self._socket

    def _hello(self) -> bytes:
        """CONNECT: a clean session whose last will is that it is offline."""
        flags = 0x02 | 0x04 | 0x08 | 0x20  # clean session; will, at least once, kept
        payload = [f"pisa-{secrets.token_hex(6)}".encode(), f"{self.prefix}/availability".encode(), OFFLINE]
        if self._user is not None:
            flags |= 0x80
            payload.append(self._user.encode())
            if self._password is not None:
                flags |= 0x40
                payload.append(self._password.encode())
        head = _text(b"MQTT") + bytes([4, flags]) + struct.pack(">H", KEEP_ALIVE_S)
        return _packet(CONNECT, head + b"".join(map(_text, payload)))

    def _asked(self, to: socket.socket, packet: bytes, expected: int) -> bytes:
        to.sendall(packet)
        kind = _received(to, 1)[0]
        length = shift = 0
        for _ in range(4):
            byte = _received(to, 1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if kind & 0xF0 != expected or length > ANSWER or (expected != PINGRESP and length < 2):
            raise DataError("what answers is no MQTT broker")
        return _received(to, length)

    def _drop(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._socket = None


def _packet(kind: int, body: bytes) -> bytes:
    """Its kind, its length in groups of seven bits, the lowest first, and its body."""
    length, head = len(body), bytes([kind])
    while length > 0x7F:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length]) + body


def _text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def _received(of: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = of.recv(size - len(found))
        if not part:
            raise DataError("the broker closed the connection")
        found += part
    return found


def topic_part(name: str) -> str:
    """A name as a part of a topic, without what MQTT gives a meaning.

    >>> topic_part("meter/4 #2")
    'meter_4 _2'
    """
    return re.sub(r"[/+#$\x00-\x1f\x7f-\x9f]", "_", name)[:LONGEST] or "_"
