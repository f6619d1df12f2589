"""Reading and changing jobs."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

import orjson

from schedo.core.ids import parse_id, render_id
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX, SECOND
from schedo.core.model import Job
from schedo.engine.sharing import each_in_steps, in_steps
from schedo.errors import NotFound
from schedo.protocol.cursors import parse_number_cursor, render_cursor
from schedo.protocol.jobs import JobPatch
from schedo.protocol.query import (
    ATTEMPT_MAX,
    WAIT_US_DEFAULT,
    Values,
    bad_parameter,
    read_choice,
    read_instant,
    read_limit,
    read_name,
    read_number,
    read_state,
    read_unique_key,
    read_wait,
)
from schedo.protocol.responses import (
    Names,
    attempt_fields,
    job_fields,
    render_job,
    render_page,
    short_fields,
)
from schedo.store.base import JobFilter
from schedo.web.context import AppContext
from schedo.web.handlers.outputs import read_output, render_outputs
from schedo.web.http import Request, Response

_STREAMED_BYTES = 65_536  # an output above this is sent in pieces
_STREAMS = ("stdout", "stderr", "body")
_PLAIN_TEXT = b"text/plain; charset=utf-8"


async def get_job(site: AppContext, request: Request) -> Response:
    """Read a job."""
    async with site.reading():
        return await _answer_job(site, await site.engine.get(_job_id(request)))


async def list_jobs(site: AppContext, request: Request) -> Response:
    """List jobs, newest first."""
    query = request.query
    limit = read_limit(query)
    before = parse_number_cursor("jobs", query)
    which = await _read_filter(site, query)
    if which is None:
        return Response(200, render_page([]))
    async with site.reading():
        jobs = await site.engine.store.list_jobs(which, before, limit)
        names = await site.learn_names(jobs)
        items = await in_steps(each_in_steps(partial(_describe, names), jobs))
        if len(jobs) < limit:
            return Response(200, render_page(items))
        cursor = render_cursor("jobs", query, str(jobs[-1].id))
        return Response(200, render_page(items, cursor)).with_headers(request.next_link(cursor))


def _describe(names: Names, job: Job) -> dict[str, Any]:
    return job_fields(job, names, PAYLOAD_INLINE_BYTES_MAX)


async def _read_filter(site: AppContext, query: Values) -> JobFilter | None:
    """Return the filter, or None if nothing can match it."""
    schedule_id = None
    name = read_name(query, "schedule")
    if name is not None:
        schedule = await site.engine.store.get_schedule(name)
        if schedule is None:
            return None
        schedule_id = schedule.id
    return JobFilter(
        state=read_state(query),
        queue=read_name(query, "queue"),
        task=read_name(query, "task"),
        schedule_id=schedule_id,
        tag=read_name(query, "tag"),
        unique_key=read_unique_key(query),
        created_after=read_instant(query, "created_after"),
        created_before=read_instant(query, "created_before"),
    )


async def update_job(site: AppContext, request: Request) -> Response:
    """Change a waiting job's due time or priority."""
    job_id = _job_id(request)
    patch = await request.read(JobPatch)
    due_at, delay_us = patch.read_when()
    change = site.engine.reschedule(
        job_id, due_at=due_at, delay_us=delay_us, priority=patch.priority
    )
    return await _answer_change(site, change)


async def cancel_job(site: AppContext, request: Request) -> Response:
    """Cancel a job."""
    return await _answer_change(site, site.engine.cancel(_job_id(request)))


async def retry_job(site: AppContext, request: Request) -> Response:
    """Queue an ended job again."""
    return await _answer_change(site, site.engine.retry(_job_id(request)))


async def run_job(site: AppContext, request: Request) -> Response:
    """Make a waiting job due now."""
    return await _answer_change(site, site.engine.run_now(_job_id(request)))


async def wait_for_job(site: AppContext, request: Request) -> Response:
    """Wait for a job's end."""
    timeout_s = read_wait(request.query, "timeout")
    if timeout_s is None:
        timeout_s = WAIT_US_DEFAULT / SECOND
    return await answer_when_ended(site, request, _job_id(request), timeout_s)


async def answer_when_ended(
    site: AppContext, request: Request, job_id: int, timeout_s: float
) -> Response:
    """Return 200 with the ended job, or 202 with the job as it stands when the time is up."""
    request.leave()
    job = await site.run_until_drain(site.engine.wait(job_id, timeout_s), request.gone())
    async with site.reading():
        if job is None:
            job = await site.engine.get(job_id)
        return await _answer_job(site, job, 200 if job.is_final else 202)


async def explain_job(site: AppContext, request: Request) -> Response:
    """Say what a job waits for."""
    job = await site.engine.get(_job_id(request))
    why = site.engine.why(job)
    answer = {"id": render_id(job.id), "state": job.state.value, "why": why}
    return Response(200, orjson.dumps(answer))


async def list_attempts(site: AppContext, request: Request) -> Response:
    """List the attempts that did not complete the job."""
    job = await site.engine.get(_job_id(request))
    attempts = await site.engine.store.list_attempts(job.id)
    return Response(200, render_page([attempt_fields(attempt) for attempt in attempts]))


async def get_output(site: AppContext, request: Request) -> Response:
    """Read captured output: all of it as JSON, or one stream as text."""
    stream = read_choice(request.query, "stream", _STREAMS)
    attempt = read_number(request.query, "attempt", 1, ATTEMPT_MAX)
    job = await site.engine.get(_job_id(request))
    store = site.engine.store
    sizes = [
        size
        for size in await store.list_output_sizes(job.id)
        if attempt in (None, size.attempt) and stream in (None, size.stream)
    ]
    if stream is None:
        await site.unsent_room()
        pieces = render_outputs(store, job.id, sizes)
        if sum(size.head + size.tail for size in sizes) > _STREAMED_BYTES:
            return Response(200, b"", pieces=pieces)
        return Response(200, b"".join([piece async for piece in pieces]))
    if not sizes:
        raise NotFound(f"job {render_id(job.id)} has no {stream} that was kept")
    latest = max(sizes, key=lambda size: size.attempt)
    async with site.reading():
        text = b"".join([part async for part in read_output(store, job.id, latest)])
    return Response(200, text, content_type=_PLAIN_TEXT)


async def short_status(site: AppContext, request: Request) -> Response:
    """Read a command's state in the short form."""
    task_id = request.query.get("task_id")
    if task_id is None:
        raise bad_parameter("task_id", "this parameter is required")
    job = await site.engine.get(parse_id(task_id))
    return Response(200, orjson.dumps(short_fields(job)))


async def _answer_change(site: AppContext, change: Awaitable[Job]) -> Response:
    return await _answer_job(site, await change)


async def _answer_job(site: AppContext, job: Job, status: int = 200) -> Response:
    if job.payload is None:
        job.payload = await site.engine.store.load_payload(job.id)
    return Response(status, render_job(job, await site.learn_names([job])))


def _job_id(request: Request) -> int:
    return parse_id(request.params["id"])
