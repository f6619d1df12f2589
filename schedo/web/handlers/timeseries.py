"""GET /v1/timeseries: figures over the last 15 minutes or 24 hours."""

from __future__ import annotations

import msgspec

from schedo.core.limits import MINUTE
from schedo.engine.sharing import in_steps
from schedo.protocol.query import bad_parameter
from schedo.protocol.timeseries import TimeseriesRequest, render_timeseries
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def get_timeseries(context: AppContext, request: Request) -> Response:
    wanted = TimeseriesRequest.read(request.query)
    series, now = context.engine.series, context.engine.clock.now()
    await series.load()
    place = None
    if wanted.queue is not None:
        if wanted.queue not in series.queues:
            measured = ", ".join(series.queues) or "none yet"
            raise bad_parameter("queue", f"it is not measured by name; these are: {measured}")
        place = series.queues.index(wanted.queue)
    ring = series.minutes if wanted.window.row_us == MINUTE else series.seconds
    rows = await in_steps(ring.fold(*wanted.place(now)))
    response = render_timeseries(wanted, rows, place, series.queues, now)
    return Response(200, msgspec.json.encode(response))
