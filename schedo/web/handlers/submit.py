"""Submits jobs: one, a broadcast, or in the short form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import repeat
from typing import Any

import msgspec
import orjson

from schedo.core.built_in import show_payload
from schedo.core.ids import parse_id
from schedo.core.model import Job, JobSpec
from schedo.core.worker_messages import WorkerStatus
from schedo.engine.broadcasts import broadcast_specs
from schedo.engine.call_results import Accepted
from schedo.engine.waiters import after_job_is_made
from schedo.errors import BadJson, Invalid, SchedoError
from schedo.protocol.invocations import ShortRequest, ShortResponse
from schedo.protocol.jobs import JobRequest, job_fields, job_id_in
from schedo.protocol.query import bad_parameter, read_wait
from schedo.web.context import AppContext
from schedo.web.handlers.batches import replay_many, submit_many
from schedo.web.handlers.invocations import invoke_short
from schedo.web.handlers.jobs import respond_when_ended
from schedo.web.handlers.trace_headers import read_trace
from schedo.web.holding import Moved
from schedo.web.http import Request, Response, problem_response
from schedo.web.idempotency import HEADER, IdempotentRequest, StoreResponse, make_record

Fields = dict[str, Any]
Result = Accepted[Fields] | SchedoError


async def create_job(context: AppContext, request: Request) -> Response:
    """Submit one job; with ?wait= the response comes at its end."""
    wait_s = read_wait(request.query, "wait")
    if wait_s is None:
        return await _submit(context, request, job_fields)
    waiters: list[asyncio.Future[Job]] = []  # none if the response is a replay

    def view(job: Job) -> Fields:
        waiters.append(ends.enter_context(context.engine.expect_end(job.id)))
        return job_fields(job)

    with ExitStack() as ends:
        response = await _submit(context, request, view, may_broadcast=False)
        if response.status >= 400:
            return response
        job_id, headers = parse_id(job_id_in(response.body)), response.headers
        del response  # nothing large is kept during the wait
        request = request._replace(body=b"")
        waiter = waiters[0] if waiters else None
        try:
            with after_job_is_made():
                ended = await respond_when_ended(context, request, job_id, wait_s, waiter)
        except Moved as moved:
            moved.headers = headers
            raise
    return ended._replace(headers=headers)


async def _submit(
    context: AppContext,
    request: Request,
    view: Callable[[Job], Fields],
    *,
    may_broadcast: bool = True,
) -> Response:
    idempotent = IdempotentRequest(request)
    job = await _read_job(request, idempotent.see)
    spec = job.to_spec(*read_trace(request))
    context.check_work(request, spec)
    if job.broadcast:
        if not may_broadcast:
            raise bad_parameter("wait", "a broadcast cannot be combined with wait")

        # Before the look-up of the key: after it, nothing may come before the submit.
        workers = await _list_workers(context, request)

        async def submit_all(record_of: StoreResponse | None) -> Response:
            specs = broadcast_specs(workers, spec)
            return await submit_many(context, specs, record_of, home_shards=request.home_shards)

        async with context.batches.taken(1):
            response = await idempotent.perform(
                context, submit_all, lambda body: replay_many(repeat(spec), body)
            )
        # A status of its own, because the body has another shape than that of one job.
        return response._replace(status=207) if response.status == 200 else response

    warnings = context.warn_of_unknown(spec)

    def render(results: Sequence[Result]) -> Response:
        return _render_one(results[0], spec, request.id, warnings)

    async def submit(record_of: StoreResponse | None) -> Response:
        record = make_record(record_of, render)
        submitting = context.engine.submit(
            [spec],
            view=view,
            make_record=record,
            may_replace=request.may_replace,
            home_shards=request.home_shards,
        )
        return render(await submitting)

    response = await idempotent.perform(context, submit)
    if response.status >= 400:
        return response
    return response.with_headers(request.location(f"/v1/jobs/{job_id_in(response.body)}"))


async def _read_job(request: Request, see: Callable[[Any], None]) -> JobRequest:
    """Return the job in the body; the error for an array names the operation that takes one."""
    try:
        return await request.read(JobRequest, see)
    except Invalid as error:
        is_array = request.body.lstrip().startswith(b"[")
        if isinstance(error, BadJson) or not is_array:
            raise
        detail = f"{error.problems[0].detail}; POST /v1/jobs:batch takes an array of jobs"
        raise Invalid.field("", detail) from None


async def _list_workers(context: AppContext, request: Request) -> list[WorkerStatus]:
    """Return the workers for which this server makes the jobs of a broadcast.

    In a cluster, one server makes those for all remote workers, and each those for its own; if the
    request has a key, in a part of its own.
    """
    workers = context.engine.sessions.list()
    if request.confirms:
        return [worker for worker in workers if worker.kind != "remote"]
    if context.cluster is None:
        return workers
    if request.find_header(HEADER) is not None:
        workers = [worker for worker in workers if worker.kind == "remote"]
    return [*workers, *await context.cluster.list_remote_workers()]


async def short_schedule(context: AppContext, request: Request) -> Response:
    """Submit a command with a delay, or invoke a Task."""
    idempotent = IdempotentRequest(request)
    job = await request.read(ShortRequest, idempotent.see)
    job.check()
    if job.task is not None:
        return await invoke_short(context, request, job)
    spec = job.to_spec()
    context.check_work(request, spec)

    def render(results: Sequence[Accepted[ShortResponse] | SchedoError]) -> Response:
        if isinstance(results[0], SchedoError):
            return problem_response(results[0], request.id)
        return Response(201, msgspec.json.encode(results[0].job))

    async def submit(record_of: StoreResponse | None) -> Response:
        record = make_record(record_of, render)
        return render(
            await context.engine.submit(
                [spec], view=ShortResponse.of, make_record=record, home_shards=request.home_shards
            )
        )

    return await idempotent.perform(context, submit)


def _render_one(
    result: Result, spec: JobSpec, request_id: str, warnings: Sequence[str]
) -> Response:
    if isinstance(result, SchedoError):
        return problem_response(result, request_id)
    fields = _complete(result, spec)
    if warnings:
        fields["warnings"] = warnings
    return Response(200 if result.conflict else 201, orjson.dumps(fields))


def _complete(result: Accepted[Fields], spec: JobSpec) -> Fields:
    """Add the fields that are not in the engine's record: a large payload, and `conflict`."""
    fields = result.job
    if result.conflict:
        fields["conflict"] = True
    elif "payload" not in fields:
        fields["payload"] = orjson.Fragment(show_payload(spec.task, spec.payload))
    return fields
