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
from pisa_capc.live.serve import models, sigmf
from pisa_capc.live.serve.audit import Entry
from pisa_capc.live.serve.clients import KINDS
from pisa_capc.live.serve.desk import Desk
from pisa_capc.live.serve.gate import PAGE_HEADER, Rules
from pisa_capc.live.serve.keys import Token
from pisa_capc.live.serve.memory import ROWS, now
from pisa_capc.live.serve.metrics import CONTENT_TYPE, metrics
from pisa_capc.live.serve.rows import STEP_S, STEPS
from pisa_capc.live.serve.views import Projection, spectrum_db, waveform

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


async def desk_of(connection: HTTPConnection) -> Desk:
    """With everything that was heard by now.

    Not a plain function: those are called in threads of their own, and all of a desk is for one.
    """
    desk: Desk = connection.app.state.desk
    desk.catch_up()
    return desk


async def rules_of(connection: HTTPConnection) -> Rules:
    rules: Rules = connection.app.state.rules
    return rules


async def token_of(request: Request) -> Token:
    """That of the one who asks: the gate has looked at it."""
    token: Token = request.scope["token"]
    return token


At = Annotated[Desk, Depends(desk_of)]
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
async def about(desk: At, rules: Under, token: Of) -> models.About:
    """What is listened to, and the devices that the model knows."""
    ear = desk.ear
    return models.About(
        version=PACKAGE,
        source=desk.source,
        waveform_rate_hz=ear.sample_rate_hz,
        sample_rate_hz=ear.air.sample_rate_hz,
        carrier_hz=ear.air.carrier_hz,
        antennas=ear.air.antennas,
        devices=list(ear.model.devices),
        names=models.Names(**desk.keepsakes.names),
        alarms_kept=desk.alarms is not None,
        token=rules.keys is not None,
        operator=token.operator,
    )


@api.get("/api/status", tags=["listener"])
async def status(desk: At) -> models.Status:
    """How it is doing."""
    return models.Status(**desk.status())


@alive.get("/healthz", tags=["listener"], responses=models.answers(503))
async def health(desk: At) -> models.Said:
    """Whether the service is alive: ok, or no samples; 503 where the listener has ended or is stuck."""
    found = desk.ear.status().health
    if found in (ENDED, STUCK):
        raise HTTPException(503, f"the listener {'has ended' if found == ENDED else 'is stuck'}")
    return models.Said(said=found)


@api.get("/metrics", tags=["listener"], response_class=Response)
async def prometheus(desk: At) -> Response:
    """Counters, gauges and histograms, for Prometheus."""
    text = metrics(desk.ear.status(), desk.memory, desk.ear.model.devices, len(desk.clients))
    return Response(text, media_type=CONTENT_TYPE)


# Who is on the air.


@api.get("/api/transmitters", tags=["air"])
async def transmitters(desk: At, limit: Annotated[int, Query(ge=1, le=ROWS)] = 64) -> models.Transmitters:
    """Who was heard lately, the newest first, each with its last ten minutes."""
    found = [models.Transmitter(**row) for row in desk.memory.transmitters(limit)]
    return models.Transmitters(step_s=STEP_S, steps=STEPS, now=now(), transmitters=found)


@api.get("/api/decisions", tags=["air"])
async def decisions(
    desk: At,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=0)] = None,
    transmitter: Annotated[int | None, Query(ge=0)] = None,
) -> list[models.Decision]:
    """The newest decisions, the newest first: before a number, of a transmitter."""
    found = desk.memory.newest_decisions(limit, before, transmitter)
    return [models.Decision(**one.to_json()) for one in found]


@api.get("/api/annotations", tags=["air"], response_class=Response)
async def annotated(desk: At, limit: Annotated[int, Query(ge=1, le=20_000)] = 5000) -> Response:
    """The newest decisions as annotations of the stream: SigMF metadata."""
    ear, newest = desk.ear, desk.memory.newest_decisions(limit)
    used = round(int(ear.model.about["samples"]) * ear.air.sample_rate_hz / ear.sample_rate_hz)
    content = await asyncio.to_thread(sigmf.annotated, newest, ear.air, used)
    return _download(content, "decisions.sigmf-meta", META)


# One frame.


@api.get("/api/frames/{number}", tags=["frames"], responses=GONE)
async def frame(desk: At, number: Numbered) -> models.Frame:
    """Samples, spectrum and place of a recent frame."""
    iq, cfo_hz = _kept(desk, number)
    decision = desk.memory.decisions.get(number)
    shape, spectrum = await asyncio.to_thread(lambda: (waveform(iq), spectrum_db(iq)))
    return models.Frame(
        decision=None if decision is None else models.Decision(**decision.to_json()),
        sample_rate_hz=desk.ear.sample_rate_hz,
        samples=iq.shape[1],
        cfo_hz=[float(value) if np.isfinite(value) else None for value in cfo_hz],
        spectrum_db=spectrum,
        place=_place(desk.projection(), desk.ear.embedding(number)),
        **shape,
    )


@api.get("/api/frames/{number}/sigmf", tags=["frames"], response_class=Response, responses=GONE_FILE)
async def frame_file(desk: At, number: Numbered) -> Response:
    """A recent frame as a SigMF archive."""
    iq, _ = _kept(desk, number)
    decision = desk.memory.decisions.get(number)
    if decision is None:
        raise HTTPException(404, f"Frame {number} is no longer remembered.")
    ear = desk.ear
    content = await asyncio.to_thread(sigmf.frame_archive, decision, iq, ear.sample_rate_hz, ear.air.carrier_hz)
    return _download(content, f"frame-{number}.sigmf", ARCHIVE)


@api.get("/api/prototypes", tags=["frames"], responses=GONE)
async def prototypes(desk: At) -> models.Prototypes:
    """The model's devices, as far as two directions show them."""
    found = desk.projection()
    if found is None:
        raise HTTPException(404, "The model says nothing of where its devices lie.")
    pairs = zip(desk.ear.model.devices, found.devices.tolist(), strict=True)
    return models.Prototypes(
        explained=found.explained,
        devices=[models.Prototype(device=device, x=x, y=y) for device, (x, y) in pairs],
        frames=found.bank.tolist(),
    )


# Alarms.


@api.get("/api/alarms", tags=["alarms"])
async def alarms(desk: At, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[models.Alarm]:
    """The newest alarms, the newest first."""
    newest = list(desk.memory.alarms.values())[: -limit - 1 : -1]
    return [models.Alarm(**one.to_json()) for one in newest]


@api.get("/api/alarms/{number}", tags=["alarms"], responses=GONE)
async def alarm(desk: At, number: Numbered) -> models.Alarm:
    return models.Alarm(**_alarm(desk, number).to_json())


@api.post("/api/alarms/{number}/acknowledge", tags=["alarms"], dependencies=CHANGING, responses=CHANGED)
async def acknowledge(desk: At, number: Numbered, request: Request, token: Of) -> models.Alarm:
    """Say that somebody has seen to it: it ends, and its cause raises no other for a while."""
    _alarm(desk, number)
    if desk.acknowledge([number], token.holder):
        _note(desk, request, "acknowledge", {"numbers": [number]})
    return models.Alarm(**_alarm(desk, number).to_json())


@api.post("/api/acknowledge", tags=["alarms"], dependencies=CHANGING, responses=CHANGED)
async def acknowledge_all(desk: At, given: models.Acknowledging, request: Request, token: Of) -> list[models.Alarm]:
    """The same of several."""
    found = desk.acknowledge([_alarm(desk, number).number for number in given.numbers], token.holder)
    if found:
        _note(desk, request, "acknowledge", {"numbers": [one.number for one in found]})
    return [models.Alarm(**one.to_json()) for one in found]


@api.get("/api/alarms/{number}/snippet", tags=["alarms"], response_class=Response, responses=GONE_FILE)
async def snippet(desk: At, number: Numbered) -> Response:
    """The frames that raised it, as a SigMF archive."""
    name = _alarm(desk, number).snippet
    if desk.alarms is None or name is None:
        raise HTTPException(404, f"Alarm {number} has no snippet.")
    try:
        content = await asyncio.to_thread(sigmf.snippet, desk.alarms, name)
    except DataError as error:
        raise HTTPException(404, str(error)) from error
    return _download(content, f"alarm-{number}.sigmf", ARCHIVE)


# Names.


@api.get("/api/names", tags=["names"])
async def names(desk: At) -> models.Names:
    return models.Names(**desk.keepsakes.names)


@api.put("/api/names", tags=["names"], dependencies=CHANGING, responses=CHANGED)
async def name(given: models.Naming, desk: At, request: Request) -> models.Names:
    """Call a device or an address something."""
    heard = {row.newest.address for row in desk.memory.rows.values()}
    known = desk.ear.model.devices if given.kind == "device" else heard
    if given.key not in known and given.key not in desk.keepsakes.names[given.kind]:
        raise HTTPException(404, f"There is no such {given.kind}.")
    try:
        desk.keepsakes.name(given.kind, given.key, given.name)
    except ConfigError as error:
        raise HTTPException(422, str(error)) from error
    desk.changed = True
    _note(desk, request, "name", given.model_dump())
    return models.Names(**desk.keepsakes.names)


@api.post("/api/enrol", tags=["names"], dependencies=CHANGING, responses={**CHANGED, **models.answers(409)})
async def enrol(given: models.Enrolment, desk: At, request: Request) -> models.Enrolled:
    """Add a device to the model, by the recent frames of a transmitter that is not known."""
    row = next((row for row in desk.memory.rows.values() if row.id == given.transmitter), None)
    if row is None:
        raise HTTPException(404, "That transmitter is no longer remembered.")
    try:
        out = await desk.enrol(row, given.name, given.anyway)
    except PisaError as error:
        raise HTTPException(409, str(error)) from error
    _note(desk, request, "enrol", given.model_dump())
    return models.Enrolled(device=given.name, model=None if out is None else out.name)


@api.get("/api/audit", tags=["names"])
async def audit(desk: At, token: Of, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[models.Entry]:
    """Who named, enrolled and acknowledged, the newest first; for operators."""
    if not token.operator:
        raise HTTPException(403, "This token is for looking; who has changed something is for operators.")
    return [models.Entry(**one.to_json()) for one in desk.audit.newest(limit)]


# Events.


@api.websocket("/api/events")
async def events(socket: WebSocket, kinds: str = ",".join(KINDS)) -> None:
    """Events as they come: messages are lists of objects, each of which says its kind in `event`."""
    desk = await desk_of(socket)
    chosen = frozenset(kinds.split(",")) & frozenset(KINDS)
    first = [desk.status()] if "status" in chosen else []
    await desk.clients.serve(socket, chosen, first)


def _note(desk: Desk, request: Request, action: str, asked: dict[str, Any]) -> None:
    scope = request.scope
    desk.audit.write(Entry(utc(time.time()), scope["token"].holder, scope["address"], action, asked))


def _kept(desk: Desk, number: int) -> tuple[Any, Any]:
    found = desk.ear.frame(number)
    if found is None:
        raise HTTPException(404, f"The samples of frame {number} are no longer kept; those of recent frames are.")
    return found


def _place(projection: Projection | None, embedding: Any) -> models.Place | None:
    if projection is None or embedding is None or len(embedding) != len(projection.mean):
        return None
    x, y = projection.of(embedding)
    return models.Place(x=x, y=y) if np.isfinite(x) and np.isfinite(y) else None


def _alarm(desk: Desk, number: int) -> Alarm:
    found = desk.memory.alarms.get(number)
    if found is None:
        raise HTTPException(404, f"There is no alarm {number}, or it is no longer remembered.")
    return found


def _download(content: bytes, name: str, kind: str) -> Response:
    """A file that a browser keeps and never shows as a page. name: ours, never one of others."""
    return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
