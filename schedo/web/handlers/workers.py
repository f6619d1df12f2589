"""Workers: status, progress, and the commands cordon, uncordon and drain."""

from __future__ import annotations

import msgspec

from schedo.core.ids import parse_id
from schedo.core.worker_messages import WorkerStatus
from schedo.protocol import fields
from schedo.protocol.workers import ProgressResponse, WorkerResponse
from schedo.web.context import AppContext
from schedo.web.http import Request, Response
from schedo.web.pages import LIST_BYTES, page_response


async def list_workers(context: AppContext, request: Request) -> Response:
    await request.claim.take(LIST_BYTES)
    workers = sorted(context.engine.sessions.list(), key=lambda seen: seen.name)
    return await page_response(WorkerResponse.of, workers)


async def get_worker(context: AppContext, request: Request) -> Response:
    return _respond(context.engine.sessions.get(_name(request)))


async def cordon_worker(context: AppContext, request: Request) -> Response:
    return _respond(await context.engine.sessions.cordon(_name(request), True))


async def uncordon_worker(context: AppContext, request: Request) -> Response:
    return _respond(await context.engine.sessions.cordon(_name(request), False))


async def drain_worker(context: AppContext, request: Request) -> Response:
    return _respond(await context.engine.sessions.drain(_name(request)))


async def get_progress(context: AppContext, request: Request) -> Response:
    await request.claim.take(LIST_BYTES)
    job = await context.engine.get(parse_id(request.params["id"]))
    lines = context.engine.sessions.progress_of(job.id)
    return await page_response(ProgressResponse.of, lines)


def _respond(seen: WorkerStatus) -> Response:
    return Response(200, msgspec.json.encode(WorkerResponse.of(seen)))


def _name(request: Request) -> str:
    return fields.read_name("/name", request.params["name"])
