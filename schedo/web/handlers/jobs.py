"""Jobs: read, list, change, cancel, retry, wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from schedo.core.ids import newest_at, parse_id, render_id
from schedo.core.job_filter import JobFilter, Order
from schedo.core.keep import NOT_KEPT
from schedo.core.leases import STREAMS
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX, SECOND
from schedo.core.model import Job
from schedo.core.remote_reasons import ALONE
from schedo.core.states import WAITING
from schedo.errors import NotFound
from schedo.protocol.invocations import ShortResponse
from schedo.protocol.job_filters import read_filter, read_order
from schedo.protocol.jobs import (
    AttemptResponse,
    JobPatch,
    JobResponse,
    RetryJobRequest,
    job_fields,
    render_job,
    search_fields,
)
from schedo.protocol.query import (
    ATTEMPT_MAX,
    WAIT_US_DEFAULT,
    Values,
    bad_parameter,
    parse_number_cursor,
    parse_pair_cursor,
    read_choice,
    read_fields,
    read_limit,
    read_name,
    read_number,
    read_wait,
    render_cursor,
)
from schedo.protocol.why import WhyResponse
from schedo.store.base import Reader
from schedo.web.context import AppContext
from schedo.web.elsewhere import name_missing
from schedo.web.handlers.outputs import OutputSource, read_output, render_outputs
from schedo.web.holding import Found
from schedo.web.http import JSON_TYPE, PIECE_BYTES, Request, Response
from schedo.web.pages import page_response

# What requests claim: for a job with its payload and result, and for a job of a list.
JOB_BYTES = 1_048_576
_LISTED_JOB_BYTES = 10_240
_PLAIN_TEXT = b"text/plain; charset=utf-8"


async def get_job(context: AppContext, request: Request) -> Response:
    return await _respond_job(context, await _load_job(context, request))


async def list_jobs(context: AppContext, request: Request) -> Response:
    query = request.query
    limit = read_limit(query)
    shown = read_fields(query, "a job", JobResponse.__struct_fields__)
    order = read_order(query)
    read = _read_due if order is None else partial(_read_created, order)
    which = await _read_filter(context, query)
    if which is None:
        return await page_response(job_fields, ())
    await request.claim.take(limit * _LISTED_JOB_BYTES)
    found = await read(context.engine.store, query, which, limit)
    names = await context.load_schedule_names(found.jobs)

    def describe(job: Job) -> dict[str, Any]:
        fields = job_fields(job, names, PAYLOAD_INLINE_BYTES_MAX)
        return fields if shown is None else {name: fields[name] for name in shown if name in fields}

    if found.last is None:
        return await page_response(describe, found.jobs)
    cursor = render_cursor("jobs", query, found.last)
    facts = {} if len(found.jobs) == limit else search_fields(found.searched_to, found.looked_at)
    return await page_response(describe, found.jobs, cursor, (request.next_link(cursor),), facts)


class _Page(NamedTuple):
    """Jobs of a list; last: what the cursor of the next page stands for, if there is one."""

    jobs: list[Job]
    looked_at: int
    last: str | None = None
    searched_to: int = 0


async def _read_created(
    order: Order, store: Reader, query: Values, which: JobFilter, limit: int
) -> _Page:
    """Return a page in the order of creation."""
    after = parse_number_cursor("jobs", query)
    jobs, reached, looked_at = await store.list_jobs(which, after, limit, order)
    if reached is None:
        return _Page(jobs, looked_at)
    return _Page(jobs, looked_at, str(reached), newest_at(reached))


async def _read_due(store: Reader, query: Values, which: JobFilter, limit: int) -> _Page:
    """Return a page of jobs that wait for an instant, the soonest first."""
    after = parse_pair_cursor("jobs", query)
    jobs, reached, looked_at = await store.list_due(which, after, limit)
    if reached is None:
        return _Page(jobs, looked_at)
    at, job_id = reached
    return _Page(jobs, looked_at, f"{at}-{job_id}", at)


async def _read_filter(context: AppContext, query: Values) -> JobFilter | None:
    """Return the filter; None if no job can match, because the schedule does not exist."""
    schedule_id = None
    name = read_name(query, "schedule")
    if name is not None:
        schedule = await context.engine.store.get_schedule(name)
        if schedule is None:
            return None
        schedule_id = schedule.id
    return read_filter(query, schedule_id, context.engine.clock.now())


async def update_job(context: AppContext, request: Request) -> Response:
    job_id = await _check_job(context, request)
    patch = await request.read(JobPatch)
    due_at, delay_us = patch.read_when()
    change = context.engine.reschedule(
        job_id, due_at=due_at, delay_us=delay_us, priority=patch.priority
    )
    return await _respond_changed(context, request, change)


async def cancel_job(context: AppContext, request: Request) -> Response:
    job_id = await _check_job(context, request)
    return await _respond_changed(context, request, context.engine.cancel(job_id))


async def retry_job(context: AppContext, request: Request) -> Response:
    job_id = await _check_job(context, request)
    due_at = (await request.read(RetryJobRequest)).read_when()
    return await _respond_changed(context, request, context.engine.retry(job_id, due_at))


async def run_job(context: AppContext, request: Request) -> Response:
    job_id = await _check_job(context, request)
    return await _respond_changed(context, request, context.engine.run_now(job_id))


async def delete_job(context: AppContext, request: Request) -> Response:
    await context.engine.delete(await _check_job(context, request))
    return Response(204, b"")


async def wait_for_job(context: AppContext, request: Request) -> Response:
    timeout_s = read_wait(request.query, "timeout")
    if timeout_s is None:
        timeout_s = WAIT_US_DEFAULT / SECOND
    return await respond_when_ended(context, request, _job_id(request), timeout_s)


async def respond_when_ended(
    context: AppContext,
    request: Request,
    job_id: int,
    timeout_s: float,
    waiter: asyncio.Future[Job] | None = None,
) -> Response:
    """Return 200 with the ended job, or 202 with its current record after the timeout.

    Raise Moved if this server is replaced meanwhile.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    request.claim.release()
    ending = context.engine.wait(job_id, timeout_s, waiter)
    job = await context.run_until_drain(ending, request.gone())
    left_s = until - loop.time()
    if context.holding is not None and job is not None and not job.is_final:
        context.holding.move_wait([job_id], left_s, _respond_moved)
    await request.claim.take(JOB_BYTES, None)
    if job is None:
        job = await context.engine.get(job_id)
    return await _respond_job(context, job, 200 if job.is_final else 202)


def _respond_moved(found: Sequence[Found]) -> Response:
    return Response(found[0].status, found[0].body)


async def explain_job(context: AppContext, request: Request) -> Response:
    job, others = await _load_job(context, request), ALONE
    if context.cluster is not None and job.state in WAITING:
        others = await context.cluster.explain_workers(job.ready_key)
        job = await context.engine.get(job.id)  # it may have started meanwhile
    hint = "" if others.offer_task else context.engine.tasks.suggest(job.task)
    response = WhyResponse.of(job, context.engine.why(job, others), hint)
    return name_missing(Response(200, msgspec.json.encode(response)), others.missing)


async def list_attempts(context: AppContext, request: Request) -> Response:
    job = await _load_job(context, request)
    attempts = await context.engine.store.list_attempts(job.id)
    return await page_response(AttemptResponse.of, attempts)


async def get_output(context: AppContext, request: Request) -> Response:
    """Read captured output: all of it as JSON, or one stream as text."""
    stream = read_choice(request.query, "stream", STREAMS)
    attempt = read_number(request.query, "attempt", 1, ATTEMPT_MAX)
    job = await _load_job(context, request)
    engine = context.engine
    source: OutputSource = engine.dropped if job.kept_until == NOT_KEPT else engine.store
    sizes = [
        size
        for size in await source.list_output_sizes(job.id)
        if attempt in (None, size.attempt) and stream in (None, size.stream)
    ]
    content_type = JSON_TYPE
    if stream is None:
        pieces = render_outputs(source, job.id, sizes)
    elif not sizes:
        raise NotFound(f"job {render_id(job.id)} has no {stream} that was kept")
    else:
        content_type = _PLAIN_TEXT
        sizes = [max(sizes, key=lambda size: size.attempt)]
        pieces = read_output(source, job.id, sizes[0])
    if sum(size.head + size.tail for size in sizes) > PIECE_BYTES:
        return Response(200, b"", content_type=content_type, pieces=pieces)
    text = b"".join([piece async for piece in pieces])
    return Response(200, text, content_type=content_type)


async def short_status(context: AppContext, request: Request) -> Response:
    task_id = request.query.get("task_id")
    if task_id is None:
        raise bad_parameter("task_id", "this parameter is required")
    await request.claim.take(JOB_BYTES)
    job = await context.engine.get(parse_id(task_id))
    shown = ShortResponse.of(job)
    if request.permission is not None and request.permission.hides_payloads:
        shown.command = UNSET  # it is a part of the payload
    return Response(200, msgspec.json.encode(shown))


async def _check_job(context: AppContext, request: Request) -> int:
    """Return the id of the job to change; raise Forbidden if the token does not cover the job."""
    if request.permission is not None and request.permission.is_restricted:
        job = await _load_job(context, request)
        request.check_job(job.queue, job.task)
    return _job_id(request)


async def _load_job(context: AppContext, request: Request) -> Job:
    await request.claim.take(JOB_BYTES)
    return await context.engine.get(_job_id(request))


async def _respond_changed(
    context: AppContext, request: Request, change: Awaitable[Job]
) -> Response:
    job = await change
    if job.payload is None:
        await request.claim.take(JOB_BYTES, None)
    return await _respond_job(context, job)


async def _respond_job(context: AppContext, job: Job, status: int = 200) -> Response:
    if job.payload is None:
        with suppress(NotFound):  # the job has ended and was not kept
            job.payload = await context.engine.store.load_payload(job.id)
    return Response(status, render_job(job, await context.load_schedule_names([job])))


def _job_id(request: Request) -> int:
    return parse_id(request.params["id"])
