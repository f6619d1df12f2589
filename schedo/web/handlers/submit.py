"""Submits jobs: one, a batch, a broadcast, or in the short form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson
from msgspec.structs import replace

from schedo.core.changes import IdempotencyRecord
from schedo.core.ids import parse_id
from schedo.core.limits import BATCH_JOBS_MAX
from schedo.core.model import JobSpec, ReadyKey
from schedo.core.requirements import Requirements
from schedo.engine.answers import Accepted
from schedo.engine.sharing import each_in_steps, in_steps
from schedo.errors import BadJson, Invalid, SchedoError, TooLarge, Unsatisfiable
from schedo.protocol.invocations import ShortRequest
from schedo.protocol.jobs import JobRequest
from schedo.protocol.pieces import PIECE_BYTES
from schedo.protocol.problems import problem_fields
from schedo.protocol.query import bad_parameter, read_wait
from schedo.protocol.reading import Steps, read_item, read_small_item, split_array, split_lines
from schedo.protocol.responses import job_fields, job_id_in, render_page, short_fields, show_payload
from schedo.web.context import AppContext
from schedo.web.handlers.invocations import invoke_short, read_traceparent
from schedo.web.handlers.jobs import answer_when_ended
from schedo.web.handlers.workers import spec_of
from schedo.web.http import Request, Response, answer_error
from schedo.web.idempotency import Once, StoreResponse

Fields = dict[str, Any]
Result = Accepted[Fields] | SchedoError


async def create_job(context: AppContext, request: Request) -> Response:
    """Submit one job; with ?wait= the response comes at its end."""
    wait_s = read_wait(request.query, "wait")
    once = Once(request)
    job = await request.read(JobRequest, once.see)
    spec = job.to_spec(read_traceparent(request))
    context.check_work(spec)
    if job.broadcast:
        _check_broadcast(job, wait_s)
        async with context.batches.taken(1):
            return await once.perform(
                context,
                lambda record_of: _submit_many(context, _broadcast_specs(context, spec), record_of),
            )

    def render(results: Sequence[Result]) -> Response:
        return _render_one(results[0], spec, request.id)

    async def submit(record_of: StoreResponse | None) -> Response:
        record = _record_maker(record_of, render)
        return render(await context.engine.submit([spec], view=job_fields, answer=record))

    answer = await once.perform(context, submit)
    if answer.status >= 400:
        return answer
    job_id = job_id_in(answer.body)
    headers = (*answer.headers, (b"location", f"/v1/jobs/{job_id}".encode()))
    if wait_s is not None:
        del (
            job,
            once,
            spec,
            submit,
            render,
        )  # frees large objects
        request = request._replace(body=b"")
        answer = await answer_when_ended(context, request, parse_id(job_id), wait_s)
    return answer._replace(headers=headers)


async def create_jobs(context: AppContext, request: Request) -> Response:
    """Submit a batch in one commit; each job has its own result."""
    once = Once(request)
    # Every job names its task, so this bounds their number before the body is parsed.
    async with context.batches.taken(request.body.count(b'"task"')):
        specs = await in_steps(_read_items(context, request, once))
        return await once.perform(
            context, lambda record_of: _submit_many(context, specs, record_of)
        )


def _read_items(
    context: AppContext, request: Request, once: Once
) -> Steps[list[JobSpec | SchedoError]]:
    """Return the spec of each job of a batch, or the error of a refused one."""
    traceparent = read_traceparent(request)
    if request.is_lines:
        items = split_lines(request.body)
    else:
        items = yield from split_array(request.body)
    specs: list[JobSpec | SchedoError] = []
    yield
    unread = PIECE_BYTES  # of this step
    for number, item in enumerate(items, 1):
        unread -= len(item)
        if unread < 0:
            yield
            unread = PIECE_BYTES
        try:
            if len(item) <= PIECE_BYTES:
                job = read_small_item(item, number, JobRequest, once.see)
            else:
                job = yield from read_item(item, number, JobRequest, once.see)
            specs.append(_read_spec(context, job, traceparent))
        except (BadJson, TooLarge):  # the whole batch is malformed or too large
            raise
        except SchedoError as error:
            specs.append(error)
    return specs


async def _submit_many(
    context: AppContext, specs: Sequence[JobSpec | SchedoError], record_of: StoreResponse | None
) -> Response:
    good = [spec for spec in specs if isinstance(spec, JobSpec)]

    def render(results: Sequence[Result]) -> Response:
        rest = iter(results)
        return Response(200, render_page([_render_item(spec, rest) for spec in specs]))

    record = _record_maker(record_of, render)
    results = await context.engine.submit(good, view=job_fields, answer=record) if good else []
    rest = iter(results)
    items = await in_steps(each_in_steps(lambda spec: _render_item(spec, rest), specs))
    return Response(200, render_page(items))


def _check_broadcast(job: JobRequest, wait_s: float | None) -> None:
    if wait_s is not None:
        raise bad_parameter("wait", "a broadcast cannot be combined with wait")
    if job.unique is not None:
        raise Invalid.field("/unique", "the jobs of a broadcast cannot share a unique key")


def _broadcast_specs(context: AppContext, spec: JobSpec) -> list[JobSpec]:
    """Return one spec for each connected worker that may run the job, busy or not."""
    ready_key = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
    names = [
        worker.name
        for worker in context.engine.sessions.list()
        if worker.state == "active" and spec_of(worker).serves(ready_key)
    ]
    if not names:
        raise Unsatisfiable("no connected worker may run the job")
    if len(names) > BATCH_JOBS_MAX:
        raise TooLarge(f"{len(names)} workers match; a broadcast reaches at most {BATCH_JOBS_MAX}")
    requirements = spec.options.requirements or Requirements()
    return [
        replace(
            spec, options=replace(spec.options, requirements=replace(requirements, worker=name))
        )
        for name in sorted(names)
    ]


async def short_schedule(context: AppContext, request: Request) -> Response:
    """Submit a command with a delay, or invoke a Task."""
    once = Once(request)
    job = await request.read(ShortRequest, once.see)
    job.check()
    if job.task is not None:
        return await invoke_short(context, request, job)
    spec = job.to_spec()
    context.check_work(spec)

    def render(results: Sequence[Result]) -> Response:
        if isinstance(results[0], SchedoError):
            return answer_error(results[0], request.id)
        return Response(201, orjson.dumps(results[0].job))

    async def submit(record_of: StoreResponse | None) -> Response:
        record = _record_maker(record_of, render)
        return render(await context.engine.submit([spec], view=short_fields, answer=record))

    return await once.perform(context, submit)


def _record_maker(
    record_of: StoreResponse | None, render: Callable[[Sequence[Result]], Response]
) -> Callable[[Sequence[Result]], IdempotencyRecord | None] | None:
    """Return the function that makes the idempotency record; None without a key."""
    if record_of is None:
        return None

    def record(results: Sequence[Result]) -> IdempotencyRecord | None:
        answer = render(results)
        return record_of(answer.status, answer.body)

    return record


def _render_one(result: Result, spec: JobSpec, request_id: str) -> Response:
    if isinstance(result, SchedoError):
        return answer_error(result, request_id)
    return Response(200 if result.conflict else 201, orjson.dumps(_complete(result, spec)))


def _read_spec(context: AppContext, job: JobRequest, traceparent: str | None) -> JobSpec:
    if job.broadcast:
        raise Invalid.field("/broadcast", "a batch takes no broadcast; send it to /v1/jobs")
    spec = job.to_spec(traceparent)
    context.check_work(spec)
    return spec


def _render_item(spec: JobSpec | SchedoError, results: Iterator[Result]) -> Fields:
    result = spec if isinstance(spec, SchedoError) else next(results)
    if isinstance(result, SchedoError):
        return {"status": result.status, "problem": problem_fields(result)}
    assert isinstance(spec, JobSpec)
    return {"status": 200 if result.conflict else 201, "job": _complete(result, spec)}


def _complete(result: Accepted[Fields], spec: JobSpec) -> Fields:
    """Add the fields that are not in the engine's record: a large payload, and `conflict`."""
    fields = result.job
    if result.conflict:
        fields["conflict"] = True
    elif "payload" not in fields:
        fields["payload"] = show_payload(spec.task, spec.payload)
    return fields
