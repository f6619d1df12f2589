"""Workers: status, progress, and the commands cordon, uncordon and drain."""

from __future__ import annotations

from typing import Any

import orjson

from schedo.core.ids import parse_id
from schedo.core.limits import SECOND
from schedo.core.worker_messages import ProgressLine, WorkerStatus
from schedo.core.worker_pool import WorkerSpec
from schedo.protocol import fields
from schedo.protocol.requirements import amount_fields
from schedo.protocol.times import render_duration, render_instant
from schedo.web.context import AppContext
from schedo.web.http import Request, Response
from schedo.web.pages import answer_page


async def list_workers(context: AppContext, request: Request) -> Response:
    workers = sorted(context.engine.sessions.list(), key=lambda seen: seen.name)
    return await answer_page(worker_fields, workers)


async def get_worker(context: AppContext, request: Request) -> Response:
    return _answer(context.engine.sessions.get(_name(request)))


async def cordon_worker(context: AppContext, request: Request) -> Response:
    return _answer(context.engine.sessions.cordon(_name(request), True))


async def uncordon_worker(context: AppContext, request: Request) -> Response:
    return _answer(context.engine.sessions.cordon(_name(request), False))


async def drain_worker(context: AppContext, request: Request) -> Response:
    return _answer(context.engine.sessions.drain(_name(request)))


async def get_progress(context: AppContext, request: Request) -> Response:
    job = await context.engine.get(parse_id(request.params["id"]))
    lines = context.engine.sessions.progress_of(job.id)
    return await answer_page(_progress_fields, lines)


def spec_of(seen: WorkerStatus) -> WorkerSpec:
    """Return the spec of a worker, to match it with requirements."""
    return WorkerSpec(
        seen.name,
        seen.slots,
        tasks=seen.tasks,
        queues=seen.queues,
        labels=seen.labels,
        resources=seen.resources,
    )


def worker_fields(seen: WorkerStatus) -> dict[str, Any]:
    """Return the fields of a worker, without tasks and queues if it takes any."""
    answer: dict[str, Any] = {
        "name": seen.name,
        "kind": seen.kind,
        "state": seen.state,
        "slots": seen.slots,
        "running": seen.running,
        "free": max(0, seen.slots - seen.running),
        "tasks": None if seen.tasks is None else sorted(seen.tasks),
        "queues": None if seen.queues is None else sorted(seen.queues),
        "labels": dict(seen.labels),
        "resources": amount_fields(seen.resources),
        "resources_used": amount_fields(seen.resources_used),
        "version": seen.version,
        "connected_at": _instant(seen.connected_at),
        "last_seen_at": _instant(seen.last_seen_at),
        "session_timeout": None
        if seen.session_timeout_s is None
        else render_duration(round(seen.session_timeout_s * SECOND)),
        "health": seen.health,
    }
    return _without_nulls(answer)


def _progress_fields(line: ProgressLine) -> dict[str, Any]:
    key, percent, message, log, partial = line.progress
    answer = {
        "at": render_instant(line.at),
        "attempt": key.attempt,
        "percent": percent,
        "message": message,
        "log": log,
        "stdout": partial,
    }
    return _without_nulls(answer)


def _answer(seen: WorkerStatus) -> Response:
    return Response(200, orjson.dumps(worker_fields(seen)))


def _without_nulls(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if value is not None}


def _instant(us: int | None) -> str | None:
    return None if us is None else render_instant(us)


def _name(request: Request) -> str:
    return fields.read_name("/name", request.params["name"])
