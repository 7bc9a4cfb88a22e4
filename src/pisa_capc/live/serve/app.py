"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from pisa_capc.core.revisions import PACKAGE
from pisa_capc.live.serve.api import STATIC, alive, api
from pisa_capc.live.serve.gate import Gate, Rules
from pisa_capc.live.serve.hub import Hub

ABOUT = """Which devices are transmitting, and which addresses are spoofed.

Where a token is needed: `Authorization: Bearer TOKEN`. Whatever changes something needs the header `X-Pisa` too.
`/api/events` is a websocket: each message is a list of events (`decision`, `alarm`, `status`, `transmitters`), those of
`?kinds=` where it is given.
"""


def create_app(hub: Hub, rules: Rules) -> Gate:
    """The page and the API of a hub, under these rules."""
    app = FastAPI(
        title="pisa serve",
        version=PACKAGE,
        description=ABOUT,
        lifespan=_at_work,
        openapi_url="/api/openapi.json",
        docs_url=None,  # these load scripts from elsewhere
        redoc_url=None,
        exception_handlers={RequestValidationError: _misasked, 405: _other_method},
    )
    app.state.hub, app.state.rules = hub, rules
    app.include_router(alive)
    app.include_router(api)
    app.mount("/static", StaticFiles(directory=STATIC, follow_symlink=False))
    return Gate(app, rules)


@asynccontextmanager
async def _at_work(app: FastAPI) -> AsyncIterator[None]:
    task = asyncio.create_task(app.state.hub.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _other_method(request: Request, error: Exception) -> Response:
    """Which methods there are: a route of its own for each hides the others, and so does one that takes any name."""
    path, routes = request.url.path, [route for route in (*alive.routes, *api.routes) if isinstance(route, APIRoute)]
    own = [route for route in routes if route.path == path] or [one for one in routes if one.path_regex.match(path)]
    allowed = ", ".join(sorted({method for route in own for method in route.methods or ()}))
    return JSONResponse({"detail": "Method Not Allowed"}, 405, {"allow": allowed or "GET"})


async def _misasked(request: Request, error: Exception) -> Response:
    """What is wrong with a question; not the question, in which may be what no JSON can say, as NaN."""
    assert isinstance(error, RequestValidationError)
    wrong = [{key: one[key] for key in ("type", "loc", "msg")} for one in error.errors()]
    return Response(json.dumps({"detail": wrong}), 422, media_type="application/json")
