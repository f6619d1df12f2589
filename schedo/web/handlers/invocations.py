"""Work that a worker takes right now, or nobody: invokes, reservations, and the short form."""

from __future__ import annotations

from collections.abc import Awaitable

import orjson
from msgspec.structs import replace

from schedo.core.ids import render_id
from schedo.core.model import Job, JobSpec, ReadyKey
from schedo.core.requirements import Requirements
from schedo.core.states import State
from schedo.engine.worker_messages import WorkerStatus
from schedo.errors import BadRequest, InvocationFailed, InvocationTimeout, Unavailable
from schedo.protocol.fields import is_traceparent
from schedo.protocol.invocations import CommitRequest, InvokeRequest, ReserveRequest, ShortRequest
from schedo.protocol.problems import PROBLEM_TYPE, problem_fields
from schedo.protocol.responses import job_fields
from schedo.protocol.times import render_instant
from schedo.web.auth import ClientGone
from schedo.web.context import AppContext
from schedo.web.handlers.workers import spec_of
from schedo.web.http import Header, Request, Response, answer_error
from schedo.web.idempotency import HEADER

NONCE_HEADER = b"schedo-lease-nonce"
SHORT_WAIT_S = 30.0


async def invoke(site: AppContext, request: Request) -> Response:
    """Run a job on a worker right now."""
    _refuse_key(request)
    asked = await request.read(InvokeRequest)
    spec = asked.to_spec(read_traceparent(request))
    wait_s = asked.read_wait()
    site.check_work(spec)
    placing = site.engine.invoke(spec, count=asked.count, wait_s=wait_s)
    jobs = await _place(site, request, placing, wait_s)
    return await _answer_placed(site, request, jobs, wait_s, asked.count > 1)


async def reserve(site: AppContext, request: Request) -> Response:
    """Keep slots for a moment."""
    _refuse_key(request)
    asked = await request.read(ReserveRequest)
    kept = await site.engine.reserve(
        asked.read_task(),
        asked.read_queue(),
        asked.read_route(),
        count=asked.count,
        ttl_s=asked.read_ttl(),
    )
    answer = {
        "id": kept.id,
        "nonce": kept.nonce,
        "workers": list(kept.workers),
        "expires_at": render_instant(kept.expires_at),
    }
    return Response(201, orjson.dumps(answer))


async def commit_reservation(site: AppContext, request: Request) -> Response:
    """Run jobs on the reserved slots."""
    _refuse_key(request)
    asked = await request.read(CommitRequest)
    spec = asked.make_spec(read_traceparent(request))
    wait_s = asked.read_wait()
    site.check_work(spec)
    nonce = _read_nonce(request)
    placing = site.engine.commit_reservation(request.params["id"], nonce, spec, wait_s=wait_s)
    jobs = await _place(site, request, placing, wait_s)
    return await _answer_placed(site, request, jobs, wait_s, len(jobs) > 1)


async def release_reservation(site: AppContext, request: Request) -> Response:
    """Give the reserved slots back."""
    await site.engine.release_reservation(request.params["id"], _read_nonce(request))
    return Response(204, b"")


async def invoke_short(site: AppContext, request: Request, asked: ShortRequest) -> Response:
    """Run a Task right now and answer with nothing but its result."""
    _refuse_key(request)
    spec = asked.to_invocation(read_traceparent(request))
    site.check_work(spec)
    spec = _match_label_case(spec, site.engine.sessions.list())
    placing = site.engine.invoke(spec, count=1, wait_s=SHORT_WAIT_S)
    (job,) = await _place(site, request, placing, SHORT_WAIT_S)
    if job.state is State.COMPLETED:
        return Response(200, job.result or b"null")
    if job.is_final:
        return await _answer_failed(site, request, [job], False)
    late = InvocationTimeout(f"job {render_id(job.id)} has not ended within {SHORT_WAIT_S:g} s")
    return answer_error(late, request.id).with_headers(_location(job))


def _match_label_case(spec: JobSpec, workers: list[WorkerStatus]) -> JobSpec:
    """Return the spec with its labels spelled as a worker does that could take it, best now."""
    route = spec.options.requirements
    if route is None:
        return spec
    best = None
    for seen in workers:
        spelled = _spell(route, seen)
        if spec_of(seen).serves(ReadyKey(spec.queue, spec.task, requirements=spelled)):
            best = best or spelled
            if seen.state == "active" and seen.running < seen.slots:
                best = spelled
                break
    return spec if best is None else replace(spec, options=replace(spec.options, requirements=best))


def _spell(route: Requirements, seen: WorkerStatus) -> Requirements:
    known = {label.casefold(): label for label in seen.labels}
    labels = (
        replace(condition, label=known.get(condition.label.casefold(), condition.label))
        for condition in route.labels
    )
    return replace(route, labels=tuple(sorted(labels, key=lambda condition: condition.label)))


async def _place(
    site: AppContext, request: Request, placing: Awaitable[list[Job]], wait_s: float
) -> list[Job]:
    """Return the jobs, once a worker has taken them and they have ended or the time is up."""
    jobs = await site.run_until_disconnect(placing, request.gone)
    if jobs is not None:
        return jobs
    if not site.draining.is_set():
        raise ClientGone
    raise Unavailable("the server is stopping; if a worker took the job, the list of jobs has it")


async def _answer_placed(
    site: AppContext, request: Request, jobs: list[Job], wait_s: float, is_many: bool
) -> Response:
    status = 200
    if not wait_s:
        status = 201
    elif not all(job.is_final for job in jobs):
        status = 202
    elif any(job.state is not State.COMPLETED for job in jobs):
        return await _answer_failed(site, request, jobs, is_many)
    shown = await _show(site, jobs)
    if is_many:
        return Response(status, orjson.dumps({"items": shown}))
    return Response(status, orjson.dumps(shown[0])).with_headers(_location(jobs[0]))


async def _answer_failed(
    site: AppContext, request: Request, jobs: list[Job], is_many: bool
) -> Response:
    """Pass on why the job did not succeed; with several, the first of those that did not."""
    job = next(job for job in jobs if job.state is not State.COMPLETED)
    why = f": {job.failure.message}" if job.failure is not None else ""
    error = InvocationFailed(f"job {render_id(job.id)} is {job.state.value}{why}")
    shown = await _show(site, jobs)
    body = problem_fields(error, request.id) | ({"jobs": shown} if is_many else {"job": shown[0]})
    return Response(error.status, orjson.dumps(body), content_type=PROBLEM_TYPE)


async def _show(site: AppContext, jobs: list[Job]) -> list[dict[str, object]]:
    for job in jobs:
        if job.payload is None:
            job.payload = await site.engine.store.load_payload(job.id)
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
        raise BadRequest("what runs right now takes no Idempotency-Key; submit a job with one")


def read_traceparent(request: Request) -> str | None:
    """Return the header's trace context; a malformed one is ignored, as W3C asks."""
    value = request.find_header(b"traceparent")
    return value if value is not None and is_traceparent(value) else None
