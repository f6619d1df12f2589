"""Invocations, reservations, and the short form for a Task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from schedo.core.model import Job, JobSpec, ReadyKey
from schedo.core.requirements import Requirements
from schedo.core.states import FINAL, State
from schedo.core.worker_messages import WorkerStatus
from schedo.engine.failures import OutcomeUnknown
from schedo.engine.waiters import after_job_is_made
from schedo.engine.workers import spec_of
from schedo.errors import (
    BadRequest,
    InvocationFailed,
    InvocationTimeout,
    NotFound,
)
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
from schedo.web.handlers.trace_headers import read_trace
from schedo.web.holding import Found
from schedo.web.http import Header, Request, Response, problem_response
from schedo.web.idempotency import HEADER

NONCE_HEADER = b"schedo-lease-nonce"
SHORT_WAIT_S = 30.0
Record = dict[str, Any]  # a job as the API shows it


async def invoke(context: AppContext, request: Request) -> Response:
    _refuse_key(request)
    fields = await request.read(InvokeRequest)
    spec = fields.to_spec(read_trace(request))
    wait_s, count = fields.read_wait(), fields.count
    context.check_work(request, spec)
    if fields.dry_run:
        found = context.engine.dry_run(spec, count)
        return Response(200, msgspec.json.encode(InvokeDryRunResponse.of(found)))
    started = request.claim.release
    placing = context.engine.invoke(spec, count=count, wait_s=wait_s, on_started=started)
    request = request._replace(body=b"")
    del fields, spec  # nothing large is kept during the wait
    respond = partial(_respond_placed, request.id, request.root, wait_s)
    return respond(await _place(context, request, placing, wait_s, respond))


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
    spec = fields.make_spec(read_trace(request))
    wait_s = fields.read_wait()
    context.check_work(request, spec)
    nonce = _read_nonce(request)
    started = request.claim.release
    placing = context.engine.commit_reservation(
        request.params["id"], nonce, spec, wait_s=wait_s, on_started=started
    )
    request = request._replace(body=b"")
    del fields, spec
    respond = partial(_respond_placed, request.id, request.root, wait_s)
    return respond(await _place(context, request, placing, wait_s, respond))


async def release_reservation(context: AppContext, request: Request) -> Response:
    await context.engine.release_reservation(request.params["id"], _read_nonce(request))
    return Response(204, b"")


async def invoke_short(context: AppContext, request: Request, fields: ShortRequest) -> Response:
    """Run a Task right now; the response is only its result."""
    _refuse_key(request)
    spec = fields.to_invocation(read_trace(request))
    context.check_work(request, spec)
    spec = _match_label_case(spec, context.engine.sessions.list())
    placing = context.engine.invoke(spec, count=1, wait_s=SHORT_WAIT_S)
    respond = partial(_respond_short, request.id, request.root)
    return respond(await _place(context, request, placing, SHORT_WAIT_S, respond))


def _respond_short(request_id: str, root: str, records: Sequence[Record]) -> Response:
    (record,) = records
    if record["state"] == State.COMPLETED:
        return Response(200, orjson.dumps(record.get("result")))
    if record["state"] in FINAL:
        return _respond_failed(request_id, records)
    late = InvocationTimeout(f"job {record['id']} has not ended within {SHORT_WAIT_S:g} s")
    return problem_response(late, request_id).with_headers(_location(root, record))


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
    context: AppContext,
    request: Request,
    placing: Awaitable[list[Job]],
    wait_s: float,
    respond: Callable[[Sequence[Record]], Response],
) -> list[Record]:
    """Wait until the jobs are accepted and have ended, or until the time is up.

    Raise Moved if this server is replaced meanwhile; then `respond` makes the response.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    jobs = await context.run_until_disconnect(placing, request.gone)
    if jobs is not None:
        if context.holding is not None and not all(job.is_final for job in jobs):
            ids = [job.id for job in jobs]
            left_s = until - loop.time()
            context.holding.move_wait(ids, left_s, lambda found: respond(_read_all(found)))
        with after_job_is_made():
            return await _show(context, request, jobs)
    if not context.draining.is_set():
        raise ClientGone
    raise OutcomeUnknown(  # a client that takes it for refused would run it twice
        "the server is shutting down; if a worker accepted the job, it runs, and GET /v1/jobs lists"
        " it"
    )


def _read_all(found: Sequence[Found]) -> list[Record]:
    return [orjson.loads(each.body) for each in found]


def _respond_placed(
    request_id: str, root: str, wait_s: float, records: Sequence[Record]
) -> Response:
    status = 200
    if not wait_s:
        status = 201
    elif not all(record["state"] in FINAL for record in records):
        status = 202
    elif any(record["state"] != State.COMPLETED for record in records):
        return _respond_failed(request_id, records)
    if len(records) > 1:
        return Response(status, orjson.dumps({"items": records}))
    return Response(status, orjson.dumps(records[0])).with_headers(_location(root, records[0]))


def _respond_failed(request_id: str, records: Sequence[Record]) -> Response:
    """Respond with the failure of the first job that did not succeed."""
    record = next(each for each in records if each["state"] != State.COMPLETED)
    why = f": {record['error']['message']}" if record.get("error") else ""
    error = InvocationFailed(f"job {record['id']} is {record['state']}{why}")
    problem = msgspec.to_builtins(ProblemResponse.of(error, request_id))
    body = problem | ({"jobs": records} if len(records) > 1 else {"job": record})
    return Response(error.status, orjson.dumps(body), content_type=PROBLEM_TYPE)


async def _show(context: AppContext, request: Request, jobs: list[Job]) -> list[Record]:
    if any(job.payload is None for job in jobs):
        await request.claim.take(len(jobs) * JOB_BYTES, None)
    for job in jobs:
        if job.payload is None:
            with suppress(NotFound):  # the job has ended and was not kept
                job.payload = await context.engine.store.load_payload(job.id)
    return [job_fields(job) for job in jobs]


def _location(root: str, record: Record) -> Header:
    return b"location", f"{root}/v1/jobs/{record['id']}".encode()


def _read_nonce(request: Request) -> str:
    nonce = request.find_header(NONCE_HEADER)
    if not nonce:
        raise BadRequest("the header Schedo-Lease-Nonce is missing; it came with the reservation")
    return nonce


def _refuse_key(request: Request) -> None:
    if HEADER in request.headers:
        raise BadRequest("an invocation takes no Idempotency-Key; submit a job with one")
