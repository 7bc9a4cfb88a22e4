"""Questions and answers. Everything here runs in one thread, and is short; what is not is done in another."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Header, HTTPException, Query, WebSocket
from fastapi import Path as InPath
from fastapi.responses import FileResponse, RedirectResponse, Response
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.requests import HTTPConnection, Request

from pisa_capc.core.errors import ConfigError, DataError, PisaError
from pisa_capc.core.revisions import PACKAGE
from pisa_capc.live.listen import Alarm
from pisa_capc.live.listen.alarms import utc
from pisa_capc.live.listen.events import ENDED, STUCK
from pisa_capc.live.serve import downloads, models
from pisa_capc.live.serve.audit import AuditEntry
from pisa_capc.live.serve.clients import KINDS
from pisa_capc.live.serve.gate import PAGE_HEADER, Rules
from pisa_capc.live.serve.hub import Hub
from pisa_capc.live.serve.keys import Token
from pisa_capc.live.serve.memory import ROWS, now
from pisa_capc.live.serve.metrics import CONTENT_TYPE, metrics
from pisa_capc.live.serve.rows import STEP_S, STEPS
from pisa_capc.live.serve.views import PlaneProjection, spectrum_db, waveform
from pisa_capc.signal.detection import FoundFrame

STATIC = FilePath(__file__).parent / "static"
ARCHIVE, META = "application/x-tar", "application/json"
Numbered = Annotated[int, InPath(ge=0, le=models.LARGEST)]


async def changing(given: Annotated[str, Header(alias=PAGE_HEADER, description="Anything")]) -> None:
    """For the description alone: the gate has looked at it, and for the token of an operator."""


CHANGING = [Depends(changing)]
CHANGED, GONE = models.answers(404, 408, 413), models.answers(404)
GONE_FILE = {**GONE, **models.file(ARCHIVE)}
alive = APIRouter(responses=models.answers(400, 403, 421, 422, 429))
api = APIRouter(
    dependencies=[Depends(HTTPBearer(auto_error=False)), Depends(APIKeyCookie(name="pisa-PORT", auto_error=False))],
    responses=models.answers(400, 401, 403, 421, 422, 429),
)


async def hub_of(connection: HTTPConnection) -> Hub:
    """With everything that was heard by now.

    Not a plain function: those are called in threads of their own, and all of a hub is for one.
    """
    hub: Hub = connection.app.state.hub
    hub.catch_up()
    return hub


async def rules_of(connection: HTTPConnection) -> Rules:
    rules: Rules = connection.app.state.rules
    return rules


async def token_of(request: Request) -> Token:
    """That of the one who asks: the gate has looked at it."""
    token: Token = request.scope["token"]
    return token


At = Annotated[Hub, Depends(hub_of)]
Under = Annotated[Rules, Depends(rules_of)]
Of = Annotated[Token, Depends(token_of)]


# The page.


@alive.get("/", include_in_schema=False)
async def page(request: Request, rules: Under, token: str | None = None) -> Response:
    """The page. With the one-time token of the link that the service printed, a cookie."""
    if token is None:
        return FileResponse(STATIC / "index.html", media_type="text/html; charset=utf-8")
    answer = RedirectResponse("/", 303)
    if rules.keys is not None:
        if found := rules.keys.spend(token[:512]):
            answer.headers["set-cookie"] = rules.keys.set_cookie(found)
        else:
            rules.failed(request.scope["address"])
    return answer


@alive.post("/api/login", tags=["page"], dependencies=CHANGING, responses=models.answers(401, 408, 413))
async def login(given: models.Login, request: Request, response: Response, rules: Under) -> models.Said:
    """A cookie for the token."""
    if rules.keys is None:
        return models.Said(said="no token is needed")
    found = rules.keys.token(given.token)
    if found is None:
        rules.failed(request.scope["address"])
        raise HTTPException(401, "That is not the token.")
    response.headers["set-cookie"] = rules.keys.set_cookie(found)
    return models.Said(said="welcome")


# The listener.


@api.get("/api/about", tags=["listener"])
async def about(hub: At, rules: Under, token: Of) -> models.AboutAnswer:
    """What is listened to, and the devices that the model knows."""
    listener = hub.listener
    return models.AboutAnswer(
        version=PACKAGE,
        source=hub.source,
        waveform_rate_hz=listener.sample_rate_hz,
        sample_rate_hz=listener.air.sample_rate_hz,
        carrier_hz=listener.air.carrier_hz,
        antennas=listener.air.antennas,
        devices=list(listener.model.devices),
        names=models.Names(**hub.keepsakes.names),
        alarms_kept=hub.alarms is not None,
        token=rules.keys is not None,
        operator=token.operator,
    )


@api.get("/api/status", tags=["listener"])
async def status(hub: At) -> models.StatusAnswer:
    """How it is doing."""
    return models.StatusAnswer(**hub.status())


@alive.get("/healthz", tags=["listener"], responses=models.answers(503))
async def health(hub: At) -> models.Said:
    """Whether the service is alive: ok, or no samples; 503 where the listener has ended or is stuck."""
    found = hub.listener.status().health
    if found in (ENDED, STUCK):
        raise HTTPException(503, f"the listener {'has ended' if found == ENDED else 'is stuck'}")
    return models.Said(said=found)


@api.get("/metrics", tags=["listener"], response_class=Response)
async def prometheus(hub: At) -> Response:
    """Counters, gauges and histograms, for Prometheus."""
    text = metrics(hub.listener.status(), hub.memory, hub.listener.model.devices, len(hub.clients))
    return Response(text, media_type=CONTENT_TYPE)


# Who is on the air.


@api.get("/api/transmitters", tags=["air"])
async def transmitters(hub: At, limit: Annotated[int, Query(ge=1, le=ROWS)] = 64) -> models.Transmitters:
    """Who was heard lately, the newest first, each with its last ten minutes."""
    found = [models.Transmitter(**row) for row in hub.memory.transmitters(limit)]
    return models.Transmitters(step_s=STEP_S, steps=STEPS, now=now(), transmitters=found)


@api.get("/api/decisions", tags=["air"])
async def decisions(
    hub: At,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=0)] = None,
    transmitter: Annotated[int | None, Query(ge=0)] = None,
) -> list[models.DecisionAnswer]:
    """The newest decisions, the newest first: before a number, of a transmitter."""
    found = hub.memory.newest_decisions(limit, before, transmitter)
    return [models.DecisionAnswer(**one.to_json()) for one in found]


@api.get("/api/annotations", tags=["air"], response_class=Response)
async def annotated(hub: At, limit: Annotated[int, Query(ge=1, le=20_000)] = 5000) -> Response:
    """The newest decisions as annotations of the stream: SigMF metadata."""
    listener, newest = hub.listener, hub.memory.newest_decisions(limit)
    used = round(listener.model.run.samples * listener.air.sample_rate_hz / listener.sample_rate_hz)
    content = await asyncio.to_thread(downloads.annotated, newest, listener.air, used)
    return _download(content, "decisions.sigmf-meta", META)


# One frame.


@api.get("/api/frames/{number}", tags=["frames"], responses=GONE)
async def frame(hub: At, number: Numbered) -> models.Frame:
    """Samples, spectrum and place of a recent frame."""
    kept, decision = _kept(hub, number), hub.memory.decisions.get(number)
    shape, spectrum = await asyncio.to_thread(lambda: (waveform(kept.iq), spectrum_db(kept.iq)))
    return models.Frame(
        decision=None if decision is None else models.DecisionAnswer(**decision.to_json()),
        sample_rate_hz=hub.listener.sample_rate_hz,
        samples=kept.iq.shape[1],
        cfo_hz=[float(value) if np.isfinite(value) else None for value in kept.cfo_hz],
        spectrum_db=spectrum,
        place=_place(hub.projection(), kept.embedding),
        measured=[
            models.QuantityAnswer(name=name, frame=str(own), device=str(device))
            for name, own, device in hub.listener.measured(kept)
        ],
        **shape,
    )


@api.get("/api/frames/{number}/sigmf", tags=["frames"], response_class=Response, responses=GONE_FILE)
async def frame_file(hub: At, number: Numbered) -> Response:
    """A recent frame as a SigMF archive."""
    kept, decision = _kept(hub, number), hub.memory.decisions.get(number)
    if decision is None:
        raise HTTPException(404, f"Frame {number} is no longer remembered.")
    listener = hub.listener
    content = await asyncio.to_thread(
        downloads.frame_archive, decision, kept.iq, listener.sample_rate_hz, listener.air.carrier_hz
    )
    return _download(content, f"frame-{number}.sigmf", ARCHIVE)


@api.get("/api/prototypes", tags=["frames"], responses=GONE)
async def prototypes(hub: At) -> models.Prototypes:
    """The model's devices, as far as two directions show them."""
    found = hub.projection()
    if found is None:
        raise HTTPException(404, "The model says nothing of where its devices lie.")
    pairs = zip(hub.listener.model.devices, found.devices.tolist(), strict=True)
    return models.Prototypes(
        explained=found.explained,
        devices=[models.Prototype(device=device, x=x, y=y) for device, (x, y) in pairs],
        frames=found.bank.tolist(),
    )


# Alarms.


@api.get("/api/alarms", tags=["alarms"])
async def alarms(hub: At, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[models.AlarmAnswer]:
    """The newest alarms, the newest first."""
    newest = list(hub.memory.alarms.values())[: -limit - 1 : -1]
    return [models.AlarmAnswer(**one.to_json()) for one in newest]


@api.get("/api/alarms/{number}", tags=["alarms"], responses=GONE)
async def alarm(hub: At, number: Numbered) -> models.AlarmAnswer:
    return models.AlarmAnswer(**_alarm(hub, number).to_json())


@api.post("/api/alarms/{number}/acknowledge", tags=["alarms"], dependencies=CHANGING, responses=CHANGED)
async def acknowledge(hub: At, number: Numbered, request: Request, token: Of) -> models.AlarmAnswer:
    """Acknowledge it: it ends, and its cause raises no other for a while."""
    _alarm(hub, number)
    if hub.acknowledge([number], token.holder):
        _note(hub, request, "acknowledge", {"numbers": [number]})
    return models.AlarmAnswer(**_alarm(hub, number).to_json())


@api.post("/api/acknowledge", tags=["alarms"], dependencies=CHANGING, responses=CHANGED)
async def acknowledge_all(
    hub: At, given: models.Acknowledging, request: Request, token: Of
) -> list[models.AlarmAnswer]:
    """The same of several."""
    found = hub.acknowledge([_alarm(hub, number).number for number in given.numbers], token.holder)
    if found:
        _note(hub, request, "acknowledge", {"numbers": [one.number for one in found]})
    return [models.AlarmAnswer(**one.to_json()) for one in found]


@api.get("/api/alarms/{number}/snippet", tags=["alarms"], response_class=Response, responses=GONE_FILE)
async def snippet(hub: At, number: Numbered) -> Response:
    """The frames that raised it, as a SigMF archive."""
    name = _alarm(hub, number).snippet
    if hub.alarms is None or name is None:
        raise HTTPException(404, f"Alarm {number} has no snippet.")
    try:
        content = await asyncio.to_thread(downloads.snippet, hub.alarms, name)
    except DataError as error:
        raise HTTPException(404, str(error)) from error
    return _download(content, f"alarm-{number}.sigmf", ARCHIVE)


# Names.


@api.get("/api/names", tags=["names"])
async def names(hub: At) -> models.Names:
    return models.Names(**hub.keepsakes.names)


@api.put("/api/names", tags=["names"], dependencies=CHANGING, responses=CHANGED)
async def name(given: models.Naming, hub: At, request: Request) -> models.Names:
    """Call a device or an address something."""
    heard = {row.newest.claimed for row in hub.memory.rows.values()}
    known = hub.listener.model.devices if given.kind == "device" else heard
    if given.key not in known and given.key not in hub.keepsakes.names[given.kind]:
        raise HTTPException(404, f"There is no such {given.kind}.")
    try:
        hub.keepsakes.name(given.kind, given.key, given.name)
    except ConfigError as error:
        raise HTTPException(422, str(error)) from error
    hub.changed = True
    _note(hub, request, "name", given.model_dump())
    return models.Names(**hub.keepsakes.names)


@api.post("/api/enrol", tags=["names"], dependencies=CHANGING, responses={**CHANGED, **models.answers(409)})
async def enrol(given: models.Enrolment, hub: At, request: Request) -> models.Enrolled:
    """Add a device to the model, by the recent frames of a transmitter that is not known."""
    row = next((row for row in hub.memory.rows.values() if row.id == given.transmitter), None)
    if row is None:
        raise HTTPException(404, "That transmitter is no longer remembered.")
    _note(hub, request, "enrol", given.model_dump())  # before: where the service ends meanwhile, it may be kept
    try:
        out = await hub.enrol(row, given.name, given.anyway)
    except PisaError as error:
        _note(hub, request, "enrol refused", given.model_dump())
        raise HTTPException(409, str(error)) from error
    return models.Enrolled(device=given.name, model=None if out is None else out.name)


@api.get("/api/audit", tags=["names"])
async def audit(hub: At, token: Of, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[models.Entry]:
    """Who named, enrolled and acknowledged, the newest first; for operators."""
    if not token.operator:
        raise HTTPException(403, "This token is for looking; who has changed something is for operators.")
    return [models.Entry(**one.to_json()) for one in hub.audit.newest(limit)]


# Events.


@api.websocket("/api/events")
async def events(socket: WebSocket, kinds: str = ",".join(KINDS)) -> None:
    """Events as they come: messages are lists of objects, with their kind in `event`."""
    hub = await hub_of(socket)
    chosen = frozenset(kinds.split(",")) & frozenset(KINDS)
    first = [hub.status()] if "status" in chosen else []
    await hub.clients.serve(socket, chosen, first, socket.scope["token"])


def _note(hub: Hub, request: Request, action: str, asked: dict[str, Any]) -> None:
    scope = request.scope
    hub.audit.write(AuditEntry(utc(time.time()), scope["token"].holder, scope["address"], action, asked))


def _kept(hub: Hub, number: int) -> FoundFrame:
    found = hub.listener.frame(number)
    if found is None:
        raise HTTPException(404, f"The samples of frame {number} are no longer kept; those of recent frames are.")
    return found


def _place(projection: PlaneProjection | None, embedding: Any) -> models.Place | None:
    if projection is None or embedding is None or len(embedding) != len(projection.mean):
        return None
    x, y = projection.of(embedding)
    return models.Place(x=x, y=y) if np.isfinite(x) and np.isfinite(y) else None


def _alarm(hub: Hub, number: int) -> Alarm:
    found = hub.memory.alarms.get(number)
    if found is None:
        raise HTTPException(404, f"There is no alarm {number}, or it is no longer remembered.")
    return found


def _download(content: bytes, name: str, kind: str) -> Response:
    """A file that a browser keeps and never shows as a page. name: ours, never one of others."""
    return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
