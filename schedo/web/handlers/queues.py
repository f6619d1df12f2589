"""Queues: their limits, and what waits in them."""

from __future__ import annotations

import orjson

from schedo.core.model import Queue
from schedo.engine.sharing import each_in_steps, in_steps
from schedo.protocol import fields
from schedo.protocol.queues import QueuePatch
from schedo.protocol.responses import queue_fields, render_page
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def list_queues(site: AppContext, request: Request) -> Response:
    """List queues."""
    queues = await site.engine.list_queues()
    items = await in_steps(each_in_steps(lambda status: queue_fields(*status), queues))
    return Response(200, render_page(items))


async def update_queue(site: AppContext, request: Request) -> Response:
    """Set a queue's limits."""
    patch = await request.read(QueuePatch)
    return await _answer(site, await site.engine.change_queue(_name(request), **patch.read()))


async def pause_queue(site: AppContext, request: Request) -> Response:
    """Pause a queue."""
    return await _answer(site, await site.engine.pause_queue(_name(request)))


async def resume_queue(site: AppContext, request: Request) -> Response:
    """Resume a queue."""
    return await _answer(site, await site.engine.resume_queue(_name(request)))


async def _answer(site: AppContext, queue: Queue) -> Response:
    for status in await site.engine.list_queues():
        if status.queue.name == queue.name:
            return Response(200, orjson.dumps(queue_fields(*status._replace(queue=queue))))
    counted_at = site.engine.clock.now()
    return Response(200, orjson.dumps(queue_fields(queue, 0, {}, counted_at)))


def _name(request: Request) -> str:
    return fields.read_name("/name", request.params["name"])
