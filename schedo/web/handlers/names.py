"""GET /v1/names: the names that the server knows, for completion and search."""

from __future__ import annotations

import hashlib
from itertools import islice

import msgspec

from schedo.protocol import names
from schedo.protocol.names import NamesResponse
from schedo.web.context import AppContext
from schedo.web.http import Request, Response
from schedo.web.pages import LIST_BYTES

_IF_NONE_MATCH = b"if-none-match"


async def list_names(context: AppContext, request: Request) -> Response:
    await request.claim.take(LIST_BYTES)
    engine = context.engine
    queues = await engine.list_queues()
    stored = await engine.store.list_names(names.SCHEDULES_MAX, names.TAGS_MAX)
    response = NamesResponse(
        queues=[status.queue.name for status in islice(queues, names.QUEUES_MAX)],
        tasks=engine.tasks.list(names.TASKS_MAX),
        schedules=stored.schedules,
        workers=sorted(seen.name for seen in engine.sessions.list(names.WORKERS_MAX)),
        tags=stored.tags,
    )
    body = msgspec.json.encode(response)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if request.find_header(_IF_NONE_MATCH) == tag:
        return Response(304, b"", ((b"etag", tag.encode()),))
    return Response(200, body, ((b"etag", tag.encode()),))
