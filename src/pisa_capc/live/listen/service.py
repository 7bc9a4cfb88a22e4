"""A listener as a service: signals that always end it, and a watchdog that knows whether it is at work.

Python runs a signal's handler in the main thread, between two of its steps; a main thread that waits for a disk or a
pipe never comes to it. So a thread of its own hears of signals too, and ends the process where nothing else does.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from pisa_capc.live.listen.events import STUCK

END_S = 15.0  # from the first signal to the end of the process, whatever hangs
BEAT_S = 1.0  # between signs of life
ENDING = (signal.SIGTERM, signal.SIGINT)


class Healthy(Protocol):
    @property
    def health(self) -> str: ...


@contextmanager
def service(
    listener: Healthy, end: Callable[[], None], reload: Callable[[], None], end_s: float = END_S
) -> Iterator[None]:
    """SIGTERM and Ctrl-C call `end`, SIGHUP calls `reload` in a thread, systemd hears that all is well.

    The process ends with status 1 where the block lasts longer than `end_s` after the first signal, or at the second.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    handlers: dict[int, Callable[..., Any]] = {number: lambda *_: end() for number in ENDING}
    if hasattr(signal, "SIGHUP"):  # Windows has none
        handlers[signal.SIGHUP] = lambda *_: threading.Thread(target=reload, daemon=True).start()
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    woken_before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(heard, listener, end, end_s), name="service", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(told)  # ends the watcher
        watcher.join()
        os.close(heard)


def _watch(heard: int, listener: Healthy, end: Callable[[], None], end_s: float) -> None:
    notify("READY=1")
    until = None
    while True:
        if select.select([heard], [], [], BEAT_S)[0]:
            numbers = os.read(heard, 64)
            if not numbers:
                return notify("STOPPING=1")
            for number in numbers:
                if number in ENDING:
                    if until is not None:
                        _leave("a second signal")
                    until = time.monotonic() + end_s
                    end()
        if listener.health != STUCK:
            notify("WATCHDOG=1")
        if until is not None and time.monotonic() > until:
            _leave(f"nothing ended within {end_s:g} s of the signal")


def _leave(why: str) -> None:
    """End the process at once; what was kept last is what it goes on from."""
    with suppress(Exception):
        print(f"note: {why}; leaving at once. What every thread was doing:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(file=sys.stderr)
    os._exit(1)


def notify(text: str) -> None:
    """Tell systemd, where it began this process with `Type=notify`; see sd_notify(3)."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if name.startswith(("/", "@")):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.sendto(text.encode(), name.replace("@", "\0", 1) if name[0] == "@" else name)
