"""Queues: limits, pause and resume, counts of waiting jobs."""

from __future__ import annotations

import msgspec

from schedo.core.model import Queue
from schedo.errors import Forbidden
from schedo.protocol import fields
from schedo.protocol.queues import PauseQueueRequest, QueuePatch, QueueResponse
from schedo.web.context import AppContext
from schedo.web.http import Request, Response
from schedo.web.pages import LIST_BYTES, page_response


async def list_queues(context: AppContext, request: Request) -> Response:
    await request.claim.take(LIST_BYTES)
    queues = await context.engine.list_queues()
    return await page_response(lambda status: QueueResponse.of(*status), queues)


async def update_queue(context: AppContext, request: Request) -> Response:
    patch = await request.read(QueuePatch)
    return await _respond(
        context, await context.engine.change_queue(_name(request), **patch.read())
    )


async def pause_queue(context: AppContext, request: Request) -> Response:
    asked = await request.read(PauseQueueRequest)
    until = asked.read_until(context.engine.clock.now())
    paused = await context.engine.pause_queue(_covered(request), asked.note, until)
    return await _respond(context, paused)


async def resume_queue(context: AppContext, request: Request) -> Response:
    return await _respond(context, await context.engine.resume_queue(_covered(request)))


async def _respond(context: AppContext, queue: Queue) -> Response:
    status = await context.engine.get_queue_status(queue.name)
    return Response(200, msgspec.json.encode(QueueResponse.of(*status._replace(queue=queue))))


def _covered(request: Request) -> str:
    """Return the queue's name; raise Forbidden unless the token covers all of its jobs."""
    name = _name(request)
    permission = request.permission
    if permission is not None and permission.tasks is not None:
        raise Forbidden(f"the token {permission.name!r} is for some tasks, not for a whole queue")
    request.check_job(name, "")
    return name


def _name(request: Request) -> str:
    return fields.read_name("/name", request.params["name"])
