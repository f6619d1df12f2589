"""The clock of a server that was started with --test-clock."""

from __future__ import annotations

import msgspec

from schedo.errors import Unavailable
from schedo.protocol.system import AdvanceRequest, ClockResponse
from schedo.protocol.times import render_instant
from schedo.web.auth import ClientGone
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def advance_clock(context: AppContext, request: Request) -> Response:
    """Move the clock, and respond when all that becomes due has happened.

    The move ends early if the client leaves: the next one would wait for it.
    """
    engine = context.engine
    to, wait_s = (await request.read(AdvanceRequest)).read(engine.clock.now())
    moving = engine.settling(wait_s).move_clock(to)
    running = await context.run_until_disconnect(moving, request.gone)
    if running is None and not context.draining.is_set():
        raise ClientGone
    if running is None:
        now = render_instant(engine.clock.now())
        raise Unavailable(f"the server is shutting down; its clock has moved only to {now}")
    answer = ClockResponse(render_instant(engine.clock.now()), running)
    return Response(200, msgspec.json.encode(answer))
