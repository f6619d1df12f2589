"""The clock of a server that was started with --test-clock."""

from __future__ import annotations

import msgspec

from schedo.protocol.system import AdvanceRequest, ClockResponse
from schedo.protocol.times import render_instant
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def advance_clock(context: AppContext, request: Request) -> Response:
    """Move the clock, and respond when all that becomes due has happened."""
    engine = context.engine
    to, wait_s = (await request.read(AdvanceRequest)).read(engine.clock.now())
    running = await engine.settling(wait_s).move_clock(to)
    answer = ClockResponse(render_instant(engine.clock.now()), running)
    return Response(200, msgspec.json.encode(answer))
