"""Invocations, reservations, and the short form for a Task."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec
import orjson
from msgspec.structs import replace

from schedo.core.ids import render_id
from schedo.core.model import Job, JobSpec, ReadyKey
from schedo.core.requirements import Requirements
from schedo.core.states import State
from schedo.core.worker_messages import WorkerStatus
from schedo.engine.workers import spec_of
from schedo.errors import BadRequest, InvocationFailed, InvocationTimeout, Unavailable
from schedo.protocol.fields import is_traceparent
from schedo.protocol.invocations import (
    CommitRequest,
    InvokeDryRunResponse,
    InvokeRequest,
    ReservationResponse,
    ReserveRequest,
    ShortRequest,
)
from schedo.protocol.jobs import job_fields
from schedo.protocol.problems import PROBLEM_TYPE, ProblemResponse
from schedo.web.auth import ClientGone
from schedo.web.context import AppContext
from schedo.web.handlers.jobs import JOB_BYTES
from schedo.web.http import Header, Request, Response, problem_response
from schedo.web.idempotency import HEADER

NONCE_HEADER = b"schedo-lease-nonce"
SHORT_WAIT_S = 30.0


async def invoke(context: AppContext, request: Request) -> Response:
    _refuse_key(request)
    fields = await request.read(InvokeRequest)
    spec = fields.to_spec(read_traceparent(request))
    wait_s, count = fields.read_wait(), fields.count
    context.check_work(request, spec)
    if fields.dry_run:
        found = context.engine.dry_run(spec, count)
        return Response(200, msgspec.json.encode(InvokeDryRunResponse.of(found)))
    started = request.claim.release
    placing = context.engine.invoke(spec, count=count, wait_s=wait_s, on_started=started)
    request = request._replace(body=b"")
    del fields, spec  # nothing large is kept during the wait
    jobs = await _place(context, request, placing, wait_s)
    return await _respond_placed(context, request, jobs, wait_s, count > 1)


async def reserve(context: AppContext, request: Request) -> Response:
    _refuse_key(request)
    fields = await request.read(ReserveRequest)
    task, queue = fields.read_task(), fields.read_queue()
    request.check_job(queue, task or "")
    reservation = await context.engine.reserve(
        task,
        queue,
        fields.read_requirements(),
        count=fields.count,
        ttl_s=fields.read_ttl(),
    )
    return Response(201, msgspec.json.encode(ReservationResponse.of(reservation)))


async def commit_reservation(context: AppContext, request: Request) -> Response:
    _refuse_key(request)
    fields = await request.read(CommitRequest)
    spec = fields.make_spec(read_traceparent(request))
    wait_s = fields.read_wait()
    context.check_work(request, spec)
    nonce = _read_nonce(request)
    started = request.claim.release
    placing = context.engine.commit_reservation(
        request.params["id"], nonce, spec, wait_s=wait_s, on_started=started
    )
    request = request._replace(body=b"")
    del fields, spec
    jobs = await _place(context, request, placing, wait_s)
    return await _respond_placed(context, request, jobs, wait_s, len(jobs) > 1)


async def release_reservation(context: AppContext, request: Request) -> Response:
    await context.engine.release_reservation(request.params["id"], _read_nonce(request))
    return Response(204, b"")


async def invoke_short(context: AppContext, request: Request, fields: ShortRequest) -> Response:
    """Run a Task right now; the response is only its result."""
    _refuse_key(request)
    spec = fields.to_invocation(read_traceparent(request))
    context.check_work(request, spec)
    spec = _match_label_case(spec, context.engine.sessions.list())
    placing = context.engine.invoke(spec, count=1, wait_s=SHORT_WAIT_S)
    (job,) = await _place(context, request, placing, SHORT_WAIT_S)
    if job.state is State.COMPLETED:
        return Response(200, job.result or b"null")
    if job.is_final:
        return await _respond_failed(context, request, [job], False)
    late = InvocationTimeout(f"job {render_id(job.id)} has not ended within {SHORT_WAIT_S:g} s")
    return problem_response(late, request.id).with_headers(_location(job))


def _match_label_case(spec: JobSpec, workers: list[WorkerStatus]) -> JobSpec:
    """Return the spec with its labels in the case of a matching worker.

    Prefers a worker with a free slot. Without a match the spec stays as it is.
    """
    requirements = spec.options.requirements
    if requirements is None:
        return spec
    best = None
    for worker in workers:
        spelled = _match_case_of(requirements, worker)
        if spec_of(worker).serves(ReadyKey(spec.queue, spec.task, requirements=spelled)):
            best = best or spelled
            if worker.state == "active" and worker.running < worker.slots:
                best = spelled
                break
    return spec if best is None else replace(spec, options=replace(spec.options, requirements=best))


def _match_case_of(requirements: Requirements, worker: WorkerStatus) -> Requirements:
    known = {label.casefold(): label for label in worker.labels}
    labels = (
        replace(condition, label=known.get(condition.label.casefold(), condition.label))
        for condition in requirements.labels
    )
    return replace(
        requirements, labels=tuple(sorted(labels, key=lambda condition: condition.label))
    )


async def _place(
    context: AppContext, request: Request, placing: Awaitable[list[Job]], wait_s: float
) -> list[Job]:
    """Wait until the jobs are accepted and have ended, or until the time is up."""
    jobs = await context.run_until_disconnect(placing, request.gone)
    if jobs is not None:
        return jobs
    if not context.draining.is_set():
        raise ClientGone
    raise Unavailable(
        "the server is shutting down; if a worker accepted the job, GET /v1/jobs lists it"
    )


async def _respond_placed(
    context: AppContext, request: Request, jobs: list[Job], wait_s: float, is_many: bool
) -> Response:
    status = 200
    if not wait_s:
        status = 201
    elif not all(job.is_final for job in jobs):
        status = 202
    elif any(job.state is not State.COMPLETED for job in jobs):
        return await _respond_failed(context, request, jobs, is_many)
    shown = await _show(context, request, jobs)
    if is_many:
        return Response(status, orjson.dumps({"items": shown}))
    return Response(status, orjson.dumps(shown[0])).with_headers(_location(jobs[0]))


async def _respond_failed(
    context: AppContext, request: Request, jobs: list[Job], is_many: bool
) -> Response:
    """Respond with the failure of the first job that did not succeed."""
    job = next(job for job in jobs if job.state is not State.COMPLETED)
    why = f": {job.failure.message}" if job.failure is not None else ""
    error = InvocationFailed(f"job {render_id(job.id)} is {job.state.value}{why}")
    shown = await _show(context, request, jobs)
    problem = msgspec.to_builtins(ProblemResponse.of(error, request.id))
    body = problem | ({"jobs": shown} if is_many else {"job": shown[0]})
    return Response(error.status, orjson.dumps(body), content_type=PROBLEM_TYPE)


async def _show(context: AppContext, request: Request, jobs: list[Job]) -> list[dict[str, object]]:
    if any(job.payload is None for job in jobs):
        await request.claim.take(len(jobs) * JOB_BYTES, None)
    for job in jobs:
        if job.payload is None:
            job.payload = await context.engine.store.load_payload(job.id)
    return [job_fields(job) for job in jobs]


def _location(job: Job) -> Header:
    return b"location", f"/v1/jobs/{render_id(job.id)}".encode()


def _read_nonce(request: Request) -> str:
    nonce = request.find_header(NONCE_HEADER)
    if not nonce:
        raise BadRequest("the header Schedo-Lease-Nonce is missing; it came with the reservation")
    return nonce


def _refuse_key(request: Request) -> None:
    if HEADER in request.headers:
        raise BadRequest("an invocation takes no Idempotency-Key; submit a job with one")


def read_traceparent(request: Request) -> str | None:
    """Return the header's trace context; a malformed one is ignored, as W3C requires."""
    value = request.find_header(b"traceparent")
    return value if value is not None and is_traceparent(value) else None
