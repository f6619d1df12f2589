"""Workers as people see them, and what people may say to them."""

from __future__ import annotations

from typing import Any

import orjson

from schedo.core.ids import parse_id
from schedo.core.limits import SECOND
from schedo.core.workers import WorkerOffer
from schedo.engine.asks import ProgressLine, WorkerSeen
from schedo.engine.sharing import each_in_steps, in_steps
from schedo.web.messages import Answer, Request
from schedo.web.site import Site
from schedo.wire import fields
from schedo.wire.answers import render_page
from schedo.wire.routes import amount_fields
from schedo.wire.times import render_duration, render_instant


async def list_workers(site: Site, request: Request) -> Answer:
    """List workers by name."""
    workers = sorted(site.engine.sessions.list(), key=lambda seen: seen.name)
    items = await in_steps(each_in_steps(worker_fields, workers))
    return Answer(200, render_page(items))


async def get_worker(site: Site, request: Request) -> Answer:
    """Read a worker."""
    return _answer(site.engine.sessions.get(_name(request)))


async def cordon_worker(site: Site, request: Request) -> Answer:
    """Give a worker no more."""
    return _answer(site.engine.sessions.cordon(_name(request), True))


async def uncordon_worker(site: Site, request: Request) -> Answer:
    """Give a worker work again."""
    return _answer(site.engine.sessions.cordon(_name(request), False))


async def drain_worker(site: Site, request: Request) -> Answer:
    """Ask a worker to finish and to leave."""
    return _answer(site.engine.sessions.drain(_name(request)))


async def get_progress(site: Site, request: Request) -> Answer:
    """Read what the worker says about a running attempt."""
    job = await site.engine.get(parse_id(request.params["id"]))
    lines = site.engine.sessions.progress_of(job.id)
    return Answer(200, render_page([_progress_fields(line) for line in lines]))


def as_offer(seen: WorkerSeen) -> WorkerOffer:
    """Return what the worker offers, to hold it against a route."""
    return WorkerOffer(
        seen.name,
        seen.slots,
        tasks=seen.tasks,
        queues=seen.queues,
        labels=seen.labels,
        resources=seen.resources,
    )


def worker_fields(seen: WorkerSeen) -> dict[str, Any]:
    """Return the answer for a worker; tasks and queues are left out if it takes any."""
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
        "silence": None
        if seen.silence_s is None
        else render_duration(round(seen.silence_s * SECOND)),
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


def _answer(seen: WorkerSeen) -> Answer:
    return Answer(200, orjson.dumps(worker_fields(seen)))


def _without_nulls(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if value is not None}


def _instant(us: int | None) -> str | None:
    return None if us is None else render_instant(us)


def _name(request: Request) -> str:
    return fields.read_name("/name", request.params["name"])
