"""The pauses of the whole server."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from schedo.core.model import Pause
from schedo.protocol.system import (
    PauseServerRequest,
    PausesResponse,
    ResumeServerRequest,
    ServerPause,
)
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def pause_server(context: AppContext, request: Request) -> Response:
    engine = context.engine
    scopes, note, until = (await request.read(PauseServerRequest)).read(engine.clock.now())
    return _answer(await engine.pause(scopes, note, until))


async def resume_server(context: AppContext, request: Request) -> Response:
    scopes = (await request.read(ResumeServerRequest)).read()
    return _answer(await context.engine.resume(scopes))


def _answer(pauses: Sequence[Pause]) -> Response:
    return Response(200, msgspec.json.encode(PausesResponse([*map(ServerPause.of, pauses)])))
