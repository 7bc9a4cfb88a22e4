"""The application at an address, in a thread of its own beside the listener."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from pisa_capc.errors import ConfigError
from pisa_capc.serve.gate import Gate

CONNECTIONS = 128
CLOSE_S = 3  # that open answers have when the service ends


def bound(host: str, port: int) -> socket.socket:
    """A socket at the address, before anything else is begun."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=64)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"{host} port {port}: cannot be listened at ({error}). Choose another --port.") from error


def url_of(at: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = at.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


@contextmanager
def serving(app: Gate, at: socket.socket) -> Iterator[None]:
    """Answer requests as long as the block runs."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # addresses of who looks are nobody's business, and a link may hold a ticket
        server_header=False,
        date_header=True,
        proxy_headers=False,
        lifespan="on",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=CLOSE_S,
        h11_max_incomplete_event_size=16384,
        http="h11",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=1024,
        ws_ping_interval=20.0,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(CLOSE_S + 5)
        at.close()
