"""Events to pages and programs: each has a queue of its own, and who does not read it is dropped."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from pisa_capc.live.serve.keys import Token

MOST = 32  # clients
WAITING = 64  # messages that may wait for one
SEND_S = 10.0
KINDS = ("decision", "alarm", "status", "transmitters")
BUSY = f"{MOST} clients are served already; come back later"
FULL, SLOW, UNWANTED = 1013, 1008, 1008  # codes of RFC 6455, and its registry


@dataclass(eq=False)
class Client:
    """kinds: of the events that it wants."""

    kinds: frozenset[str]
    token: Token
    queue: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(WAITING))
    slow: asyncio.Event = field(default_factory=asyncio.Event)
    displaced: asyncio.Event = field(default_factory=asyncio.Event)


class Clients:
    """Everybody who gets events."""

    def __init__(self) -> None:
        self._all: dict[Client, None] = {}  # the oldest first
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._all)

    def wanted(self, kind: str) -> bool:
        return any(kind in client.kinds for client in self._all)

    def tell(self, events: Sequence[dict[str, Any]]) -> None:
        """Put events into every queue, as one message for each set of kinds, without waiting."""
        messages: dict[frozenset[str], str] = {}
        for client in self._all:
            if client.kinds not in messages:
                chosen = [event for event in events if event["event"] in client.kinds]
                messages[client.kinds] = json.dumps(chosen, ensure_ascii=False) if chosen else ""
            message = messages[client.kinds]
            if not message:
                continue
            try:
                client.queue.put_nowait(message)
            except asyncio.QueueFull:
                client.slow.set()

    def _room_for(self, token: Token) -> bool:
        """Whether there is room for one more. Where there is none, a viewer makes some for an operator; else one of the
        same kind who has at least two more, so that the two do not displace each other for ever.
        """
        if len(self._all) < MOST:
            return True
        count = Counter(one.token.holder for one in self._all)
        more = [one for one in self._all if count[one.token.holder] > count[token.holder] + 1]
        viewers = [one for one in self._all if not one.token.operator]
        displaced = (viewers if token.operator else []) or [one for one in more if one.token.operator == token.operator]
        if not displaced:
            return False
        client = max(displaced, key=lambda one: count[one.token.holder])  # the first of them is the oldest
        del self._all[client]
        client.displaced.set()
        return True

    async def serve(
        self, socket: WebSocket, kinds: frozenset[str], first: Sequence[dict[str, Any]], token: Token
    ) -> None:
        """Send events until the client leaves, or is too slow. first: the events that it begins with."""
        await socket.accept()
        if not self._room_for(token):
            await socket.close(FULL, BUSY)
            return
        client = Client(kinds, token)
        client.queue.put_nowait(json.dumps(first, ensure_ascii=False))
        self._all[client] = None
        ends = (_send(socket, client), _heed(socket), client.slow.wait(), client.displaced.wait())
        tasks = [asyncio.create_task(one) for one in ends]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._all.pop(client, None)
            for task in tasks:
                task.cancel()
        late = client.slow.is_set()
        self.dropped += late
        if socket.application_state is WebSocketState.CONNECTED and socket.client_state is WebSocketState.CONNECTED:
            code, why = UNWANTED, "nothing is expected here"
            if late:
                code, why = SLOW, "too slow: events were waiting"
            elif client.displaced.is_set():
                code, why = FULL, BUSY
            await asyncio.wait_for(socket.close(code, why), SEND_S)


async def _send(socket: WebSocket, client: Client) -> None:
    with suppress(WebSocketDisconnect, RuntimeError, OSError):  # who has left is noticed by `_heed`, too
        while True:
            message = await client.queue.get()
            try:
                await asyncio.wait_for(socket.send_text(message), SEND_S)
            except TimeoutError:
                client.slow.set()
                return


async def _heed(socket: WebSocket) -> None:
    """Until the client leaves, or says something: it has nothing to say."""
    try:
        await socket.receive_text()
    except (WebSocketDisconnect, KeyError, RuntimeError):
        return
