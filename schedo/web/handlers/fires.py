"""When schedules fire: one schedule, all of them, and a cron expression that is not one yet."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from schedo.core.fires import count_fires
from schedo.core.fires import list_fires as fires_of
from schedo.core.limits import FIRES_LISTED_MAX, FIRES_SHOWN, SECOND
from schedo.engine.sharing import in_steps
from schedo.protocol import fields
from schedo.protocol.cron import CronRequest, CronResponse, TogetherResponse
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
    if context.fire_maps is None:
        from schedo.web.fire_maps import FireMaps  # few servers need it

        context.fire_maps = FireMaps()
    return Response(200, await context.fire_maps.get(context.engine, wanted))


async def explain_cron(context: AppContext, request: Request) -> Response:
    asked = await request.read(CronRequest)
    when = asked.read()
    first, last = asked.read_range(context.engine.clock.now())
    fires = await in_steps(fires_of(when.rule, 0, first, last, asked.count))
    response = CronResponse.of(when, fires)
    if asked.coincidences:
        seconds = [fire.at // SECOND for fire in fires[:FIRES_SHOWN]]
        response.together = await _list_together(context, asked.name, seconds)
    return Response(200, msgspec.json.encode(response))


async def _list_together(
    context: AppContext, name: str, seconds: Sequence[int]
) -> list[TogetherResponse]:
    from schedo.core.fire_map import list_together
    from schedo.web.fire_maps import load_rules

    known = await load_rules(context.engine, except_for=name)
    found = await in_steps(list_together(known.users, seconds))
    return [TogetherResponse.of(each) for each in found]
