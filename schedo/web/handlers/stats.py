"""GET /v1/stats: what has ended over hours and days."""

from __future__ import annotations

import msgspec

from schedo.engine.sharing import in_steps
from schedo.protocol.tallies import StatsRequest, render_stats
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def get_stats(context: AppContext, request: Request) -> Response:
    wanted = StatsRequest.read(request.query, context.engine.clock.now())
    parts = await context.engine.read_tallies(wanted.which)
    return Response(200, msgspec.json.encode(await in_steps(render_stats(wanted, parts))))
