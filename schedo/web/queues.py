"""Queues: their limits, and what waits in them."""

from __future__ import annotations

import orjson

from schedo.core.model import Queue
from schedo.engine.sharing import each_in_steps, in_steps
from schedo.web.messages import Answer, Request
from schedo.web.site import Site
from schedo.wire import fields
from schedo.wire.answers import queue_fields, render_page
from schedo.wire.queues import QueuePatch


async def list_queues(site: Site, request: Request) -> Answer:
    """List queues."""
    queues = await site.engine.list_queues()
    items = await in_steps(each_in_steps(lambda status: queue_fields(*status), queues))
    return Answer(200, render_page(items))


async def update_queue(site: Site, request: Request) -> Answer:
    """Set a queue's limits."""
    patch = await request.read(QueuePatch)
    return await _answer(site, await site.engine.change_queue(_name(request), **patch.read()))


async def pause_queue(site: Site, request: Request) -> Answer:
    """Pause a queue."""
    return await _answer(site, await site.engine.pause_queue(_name(request)))


async def resume_queue(site: Site, request: Request) -> Answer:
    """Resume a queue."""
    return await _answer(site, await site.engine.resume_queue(_name(request)))


async def _answer(site: Site, queue: Queue) -> Answer:
    for status in await site.engine.list_queues():
        if status.queue.name == queue.name:
            return Answer(200, orjson.dumps(queue_fields(*status._replace(queue=queue))))
    counted_at = site.engine.clock.now()
    return Answer(200, orjson.dumps(queue_fields(queue, 0, {}, counted_at)))


def _name(request: Request) -> str:
    return fields.read_name("/name", request.params["name"])
