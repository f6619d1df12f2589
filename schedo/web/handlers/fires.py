"""When schedules fire: one schedule, and all of them in a range of time."""

from __future__ import annotations

import msgspec

from schedo.core.fires import count_fires
from schedo.core.fires import list_fires as fires_of
from schedo.core.limits import FIRES_LISTED_MAX
from schedo.engine.sharing import in_steps
from schedo.protocol import fields
from schedo.protocol.fires import FireMapRequest, FiresRequest, FiresResponse
from schedo.web.context import AppContext
from schedo.web.http import Request, Response
from schedo.web.pages import LIST_BYTES


async def list_schedule_fires(context: AppContext, request: Request) -> Response:
    wanted = FiresRequest.read(request.query, context.engine.clock.now())
    schedule = await context.engine.get_schedule(fields.read_name("/name", request.params["name"]))
    rule, (first, last) = schedule.rule, wanted
    fires = await in_steps(fires_of(rule, schedule.id, first, last, FIRES_LISTED_MAX))
    response = FiresResponse.of(schedule, fires, count_fires(rule, first, last))
    return Response(200, msgspec.json.encode(response))


async def list_fires(context: AppContext, request: Request) -> Response:
    wanted = FireMapRequest.read(request.query, context.engine.clock.now())
    await request.claim.take(LIST_BYTES)
    return Response(200, await context.fire_maps.get(context.engine, wanted))
