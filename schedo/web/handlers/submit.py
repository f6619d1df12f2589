"""Submits jobs: one, a broadcast, or in the short form."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import msgspec
import orjson
from msgspec.structs import replace

from schedo.core.ids import parse_id
from schedo.core.limits import BATCH_JOBS_MAX
from schedo.core.model import JobSpec, ReadyKey
from schedo.core.requirements import Condition, Requirements
from schedo.core.worker_messages import WorkerStatus
from schedo.core.worker_pool import PLACE_LABEL
from schedo.engine.call_results import Accepted
from schedo.errors import Invalid, SchedoError, TooLarge, Unsatisfiable
from schedo.protocol.invocations import ShortRequest, ShortResponse
from schedo.protocol.jobs import JobRequest, job_fields, job_id_in, show_payload
from schedo.protocol.query import bad_parameter, read_wait
from schedo.web.context import AppContext
from schedo.web.handlers.batches import Fields, Result, replay_many, submit_many
from schedo.web.handlers.invocations import invoke_short, read_traceparent
from schedo.web.handlers.jobs import respond_when_ended
from schedo.web.handlers.workers import spec_of
from schedo.web.http import Request, Response, problem_response
from schedo.web.idempotency import IdempotentRequest, StoreResponse, make_record


async def create_job(context: AppContext, request: Request) -> Response:
    """Submit one job; with ?wait= the response comes at its end."""
    wait_s = read_wait(request.query, "wait")
    response = await _submit(context, request, wait_s)
    if wait_s is None or response.status >= 400:
        return response
    job_id, headers = parse_id(job_id_in(response.body)), response.headers
    del response  # nothing large is kept during the wait
    request = request._replace(body=b"")
    ended = await respond_when_ended(context, request, job_id, wait_s)
    return ended._replace(headers=headers)


async def _submit(context: AppContext, request: Request, wait_s: float | None) -> Response:
    idempotent = IdempotentRequest(request)
    job = await request.read(JobRequest, idempotent.see)
    spec = job.to_spec(read_traceparent(request))
    context.check_work(request, spec)
    if job.broadcast:
        _check_broadcast(job, wait_s)
        async with context.batches.taken(1):
            return await idempotent.perform(
                context,
                lambda record_of: submit_many(context, _broadcast_specs(context, spec), record_of),
                lambda body: replay_many(repeat(spec), body),
            )

    def render(results: Sequence[Result]) -> Response:
        return _render_one(results[0], spec, request.id)

    async def submit(record_of: StoreResponse | None) -> Response:
        record = make_record(record_of, render)
        return render(await context.engine.submit([spec], view=job_fields, make_record=record))

    response = await idempotent.perform(context, submit)
    if response.status >= 400:
        return response
    return response.with_headers((b"location", f"/v1/jobs/{job_id_in(response.body)}".encode()))


def _check_broadcast(job: JobRequest, wait_s: float | None) -> None:
    if wait_s is not None:
        raise bad_parameter("wait", "a broadcast cannot be combined with wait")
    if job.unique is not None:
        raise Invalid.field("/unique", "the jobs of a broadcast cannot share a unique key")


def _broadcast_specs(context: AppContext, spec: JobSpec) -> list[JobSpec]:
    """Return one spec for each connected worker that may run the job, busy or not."""
    ready_key = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
    workers = sorted(context.engine.sessions.list(), key=lambda worker: worker.name)
    requirements = spec.options.requirements or Requirements()
    # A place has two child processes for a time: one that has retired, and the next one.
    narrowed = dict.fromkeys(
        _narrow(requirements, worker)
        for worker in workers
        if worker.state == "active" and spec_of(worker).serves(ready_key)
    )
    if not narrowed:
        raise Unsatisfiable("no connected worker may run the job")
    if len(narrowed) > BATCH_JOBS_MAX:
        raise TooLarge(
            f"{len(narrowed)} workers match; a broadcast reaches at most {BATCH_JOBS_MAX}"
        )
    return [replace(spec, options=replace(spec.options, requirements=each)) for each in narrowed]


def _narrow(requirements: Requirements, worker: WorkerStatus) -> Requirements:
    """Require this worker, or the place of a child process: its name ends with the process."""
    place = worker.labels.get(PLACE_LABEL)
    if place is None:
        return replace(requirements, worker=worker.name)
    condition = Condition(PLACE_LABEL, "=", (place,))
    return replace(requirements, labels=(*requirements.labels, condition))


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
            await context.engine.submit([spec], view=ShortResponse.of, make_record=record)
        )

    return await idempotent.perform(context, submit)


def _render_one(result: Result, spec: JobSpec, request_id: str) -> Response:
    if isinstance(result, SchedoError):
        return problem_response(result, request_id)
    return Response(200 if result.conflict else 201, orjson.dumps(_complete(result, spec)))


def _complete(result: Accepted[Fields], spec: JobSpec) -> Fields:
    """Add the fields that are not in the engine's record: a large payload, and `conflict`."""
    fields = result.job
    if result.conflict:
        fields["conflict"] = True
    elif "payload" not in fields:
        fields["payload"] = orjson.Fragment(show_payload(spec.task, spec.payload))
    return fields
