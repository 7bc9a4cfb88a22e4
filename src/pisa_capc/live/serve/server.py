"""The application at an address, in a thread of its own beside the listener."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.live.serve.connections import AT_ONCE, IDLE_S, FewLines, LimitedSocket, room
from pisa_capc.live.serve.gate import Gate

CLOSE_S = 3  # that open answers have when the service ends
LOGS = ("uvicorn", "asyncio", "websockets")


@dataclass(frozen=True)
class Tls:
    """Files in PEM: the certificate with those that it rests on, and its key, which may be in the same file."""

    certificate: Path
    key: Path | None = None

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for path in filter(None, (self.certificate, self.key)):
            try:
                path.open("rb").close()
            except OSError as error:
                raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
        try:
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")  # nobody is there to type one
        except (ssl.SSLError, ValueError) as error:
            raise DataError(
                f"--certificate {self.certificate}: expected a certificate in PEM and its key, which has "
                f"no password ({error}). Give the key with --key."
            ) from error


def bound(host: str, port: int) -> LimitedSocket:
    """A socket at the address, before anything else is begun."""
    most = room()
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return LimitedSocket(socket.create_server((host, port), family=family, backlog=AT_ONCE), most)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"{host} port {port}: cannot be listened at ({error}). Choose another --port.") from error


def url_of(at: socket.socket, tls: Tls | None = None) -> str:
    """Where a browser on this machine finds it."""
    host, port = at.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}/"


@contextmanager
def serving(app: Gate, at: LimitedSocket, tls: Tls | None = None) -> Iterator[None]:
    """Answer requests as long as the block runs."""
    app.listening = at
    config = uvicorn.Config(
        app,
        loop="asyncio",  # which asks the socket itself for connections; others take its descriptor
        backlog=AT_ONCE,
        callback_notify=at.sweep,
        timeout_notify=0,  # every second
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
        log_config=None,
        log_level="warning",
        access_log=False,  # addresses of who looks are nobody's business, and a link may hold a ticket
        server_header=False,
        date_header=True,
        proxy_headers=False,  # `Rules` knows whom it may believe
        lifespan="on",
        timeout_keep_alive=int(IDLE_S),
        timeout_graceful_shutdown=CLOSE_S,
        h11_max_incomplete_event_size=16384,
        http="h11",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=1024,
        ws_ping_interval=20.0,
    )
    server = uvicorn.Server(config)
    log = logging.StreamHandler()
    log.addFilter(FewLines())
    for name in LOGS:
        logging.getLogger(name).addHandler(log)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(CLOSE_S + 5)
        at.close()
        for name in LOGS:
            logging.getLogger(name).removeHandler(log)
