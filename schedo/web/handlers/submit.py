"""Submitting jobs: one, a batch, or in the short form."""

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


async def create_job(site: AppContext, request: Request) -> Response:
    """Submit one job; with ?wait= also wait for its end."""
    wait_s = read_wait(request.query, "wait")
    once = Once(request)
    asked = await request.read(JobRequest, once.see)
    spec = asked.to_spec(read_traceparent(request))
    site.check_work(spec)
    if asked.broadcast:
        _check_broadcast(asked, wait_s)
        async with site.batches.taken(1):
            return await once.perform(
                site, lambda keep: _submit_many(site, _broadcast_specs(site, spec), keep)
            )

    def render(results: Sequence[Result]) -> Response:
        return _render_one(results[0], spec, request.id)

    async def submit(keep: StoreResponse | None) -> Response:
        stored = _keep_rendered(keep, render)
        return render(await site.engine.submit([spec], view=job_fields, answer=stored))

    answer = await once.perform(site, submit)
    if answer.status >= 400:
        return answer
    job_id = job_id_in(answer.body)
    headers = (*answer.headers, (b"location", f"/v1/jobs/{job_id}".encode()))
    if wait_s is not None:
        del asked, once, spec, submit, render  # what may be large is not kept while it waits
        request = request._replace(body=b"")
        answer = await answer_when_ended(site, request, parse_id(job_id), wait_s)
    return answer._replace(headers=headers)


async def create_jobs(site: AppContext, request: Request) -> Response:
    """Submit many jobs in one commit; each has its own result."""
    once = Once(request)
    # Each job names its task, so without reading them they are hardly ever more.
    async with site.batches.taken(request.body.count(b'"task"')):
        specs = await in_steps(_read_items(site, request, once))
        return await once.perform(site, lambda keep: _submit_many(site, specs, keep))


def _read_items(
    site: AppContext, request: Request, once: Once
) -> Steps[list[JobSpec | SchedoError]]:
    """Return the jobs of a batch, or why one is refused."""
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
                asked = read_small_item(item, number, JobRequest, once.see)
            else:
                asked = yield from read_item(item, number, JobRequest, once.see)
            specs.append(_read_spec(site, asked, traceparent))
        except (BadJson, TooLarge):  # the batch is none, or too large as a whole
            raise
        except SchedoError as error:
            specs.append(error)
    return specs


async def _submit_many(
    site: AppContext, specs: Sequence[JobSpec | SchedoError], keep: StoreResponse | None
) -> Response:
    good = [spec for spec in specs if isinstance(spec, JobSpec)]

    def render(results: Sequence[Result]) -> Response:
        rest = iter(results)
        return Response(200, render_page([_render_item(spec, rest) for spec in specs]))

    stored = _keep_rendered(keep, render)
    results = await site.engine.submit(good, view=job_fields, answer=stored) if good else []
    rest = iter(results)
    items = await in_steps(each_in_steps(lambda spec: _render_item(spec, rest), specs))
    return Response(200, render_page(items))


def _check_broadcast(asked: JobRequest, wait_s: float | None) -> None:
    if wait_s is not None:
        raise bad_parameter("wait", "a broadcast is not waited for")
    if asked.unique is not None:
        raise Invalid.field("/unique", "the jobs of a broadcast cannot share a unique key")


def _broadcast_specs(site: AppContext, spec: JobSpec) -> list[JobSpec]:
    """Return one spec for each worker that could take the job now, however busy it is."""
    lane = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
    names = [
        seen.name
        for seen in site.engine.sessions.list()
        if seen.state == "active" and spec_of(seen).serves(lane)
    ]
    if not names:
        raise Unsatisfiable("no worker that is there now could take the job")
    if len(names) > BATCH_JOBS_MAX:
        raise TooLarge(f"{len(names)} workers match; a broadcast reaches at most {BATCH_JOBS_MAX}")
    route = spec.options.requirements or Requirements()
    return [
        replace(spec, options=replace(spec.options, requirements=replace(route, worker=name)))
        for name in sorted(names)
    ]


async def short_schedule(site: AppContext, request: Request) -> Response:
    """Run a command after some seconds, or a Task right now."""
    once = Once(request)
    asked = await request.read(ShortRequest, once.see)
    asked.check()
    if asked.task is not None:
        return await invoke_short(site, request, asked)
    spec = asked.to_spec()
    site.check_work(spec)

    def render(results: Sequence[Result]) -> Response:
        if isinstance(results[0], SchedoError):
            return answer_error(results[0], request.id)
        return Response(201, orjson.dumps(results[0].job))

    async def submit(keep: StoreResponse | None) -> Response:
        stored = _keep_rendered(keep, render)
        return render(await site.engine.submit([spec], view=short_fields, answer=stored))

    return await once.perform(site, submit)


def _keep_rendered(
    keep: StoreResponse | None, render: Callable[[Sequence[Result]], Response]
) -> Callable[[Sequence[Result]], IdempotencyRecord | None] | None:
    """Return what makes the stored answer out of the results, if there is a key to store it for."""
    if keep is None:
        return None

    def stored(results: Sequence[Result]) -> IdempotencyRecord | None:
        answer = render(results)
        return keep(answer.status, answer.body)

    return stored


def _render_one(result: Result, spec: JobSpec, request_id: str) -> Response:
    if isinstance(result, SchedoError):
        return answer_error(result, request_id)
    return Response(200 if result.conflict else 201, orjson.dumps(_complete(result, spec)))


def _read_spec(site: AppContext, asked: JobRequest, traceparent: str | None) -> JobSpec:
    if asked.broadcast:
        raise Invalid.field("/broadcast", "a batch takes no broadcast; send it to /v1/jobs")
    spec = asked.to_spec(traceparent)
    site.check_work(spec)
    return spec


def _render_item(spec: JobSpec | SchedoError, results: Iterator[Result]) -> Fields:
    result = spec if isinstance(spec, SchedoError) else next(results)
    if isinstance(result, SchedoError):
        return {"status": result.status, "problem": problem_fields(result)}
    assert isinstance(spec, JobSpec)
    return {"status": 200 if result.conflict else 201, "job": _complete(result, spec)}


def _complete(result: Accepted[Fields], spec: JobSpec) -> Fields:
    """Add what the engine's record need not hold: a large payload, and the conflict's mark."""
    fields = result.job
    if result.conflict:
        fields["conflict"] = True
    elif "payload" not in fields:
        fields["payload"] = show_payload(spec.task, spec.payload)
    return fields
