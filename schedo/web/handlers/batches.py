"""Submits batches: many jobs in one commit, each with its own result.

The record of a batch with an Idempotency-Key is rendered in the turn that makes its jobs, so it has
no large payloads: a repeated request brings them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import orjson

from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX
from schedo.core.model import JobSpec
from schedo.engine.call_results import Accepted
from schedo.engine.sharing import STEP_S, in_steps
from schedo.errors import BadJson, Invalid, SchedoError, TooLarge
from schedo.protocol.jobs import JobRequest, job_fields
from schedo.protocol.masking import show_payload
from schedo.protocol.pieces import PIECE_BYTES
from schedo.protocol.problems import ProblemResponse
from schedo.protocol.reading import Steps, read_item, read_small_item, split_array, split_lines
from schedo.web.context import AppContext
from schedo.web.handlers.invocations import read_traceparent
from schedo.web.http import Request, Response
from schedo.web.idempotency import IdempotentRequest, StoreResponse, make_record
from schedo.web.pages import page_response

Fields = dict[str, Any]
Result = Accepted[Fields] | SchedoError
Spec = JobSpec | Fields  # the result of a job that is refused


class _Record(msgspec.Struct):
    """The recorded response to a batch."""

    items: list[msgspec.Raw]


_RECORD = msgspec.json.Decoder(_Record)


async def create_jobs(context: AppContext, request: Request) -> Response:
    """Submit a batch in one commit; each job has its own result."""
    idempotent = IdempotentRequest(request)
    # Every job names its task, so this bounds their number before the body is parsed.
    async with context.batches.taken(request.body.count(b'"task"')):
        specs = await in_steps(_read_items(context, request, idempotent))
        return await idempotent.perform(
            context,
            lambda record_of: submit_many(context, specs, record_of),
            lambda body: replay_many(specs, body),
        )


def _read_items(
    context: AppContext, request: Request, idempotent: IdempotentRequest
) -> Steps[list[Spec]]:
    """Return the spec of each job of a batch, or the error of a refused one."""
    traceparent = read_traceparent(request)
    if request.is_lines:
        items = split_lines(request.body)
    else:
        items = yield from split_array(request.body)
    specs: list[Spec] = []
    yield
    until = time.perf_counter() + STEP_S
    for number, item in enumerate(items, 1):
        if time.perf_counter() > until:
            yield
            until = time.perf_counter() + STEP_S
        try:
            if len(item) <= PIECE_BYTES:
                job = read_small_item(item, number, JobRequest, idempotent.see)
            else:
                job = yield from read_item(item, number, JobRequest, idempotent.see)
            specs.append(_read_spec(context, request, job, traceparent))
        except (BadJson, TooLarge):  # the whole batch is malformed or too large
            raise
        except SchedoError as error:
            specs.append(
                _refusal(error)
            )  # the error itself would keep its traceback and frames in memory
    return specs


def _read_spec(
    context: AppContext, request: Request, job: JobRequest, traceparent: str | None
) -> JobSpec:
    if job.broadcast:
        raise Invalid.field("/broadcast", "a batch takes no broadcast; send it to /v1/jobs")
    spec = job.to_spec(traceparent)
    context.check_work(request, spec)
    return spec


async def submit_many(
    context: AppContext, specs: Sequence[Spec], record_of: StoreResponse | None
) -> Response:
    """Submit the specs in one commit; the response has the result of each, in their order."""

    def render(results: Sequence[Result]) -> Response:
        return Response(200, orjson.dumps({"items": _render_items(specs, results)}))

    good = [spec for spec in specs if isinstance(spec, JobSpec)]
    view = partial(job_fields, inline_bytes_max=PAYLOAD_INLINE_BYTES_MAX)
    record = make_record(record_of, render)
    results = await context.engine.submit(good, view=view, make_record=record) if good else []
    items = zip(_render_items(specs, results), specs, strict=True)
    return await page_response(_add_payload, items)


async def replay_many(specs: Iterable[Spec], record: bytes) -> Response:
    """Return the recorded response, with the payloads of the specs where it has none."""
    items = (orjson.loads(bytes(item)) for item in _RECORD.decode(record).items)
    return await page_response(_add_payload, zip(items, specs, strict=False))


def _render_items(specs: Sequence[Spec], results: Sequence[Result]) -> list[Fields]:
    rest = iter(results)
    return [_render_item(next(rest)) if isinstance(spec, JobSpec) else spec for spec in specs]


def _render_item(result: Result) -> Fields:
    if isinstance(result, SchedoError):
        return _refusal(result)
    if result.conflict:
        return {"status": 200, "job": result.job | {"conflict": True}}
    return {"status": 201, "job": result.job}


def _refusal(error: SchedoError) -> Fields:
    return {"status": error.status, "problem": msgspec.to_builtins(ProblemResponse.of(error))}


def _add_payload(pair: tuple[Fields, Spec]) -> Fields:
    """Add the payload of a new job that is too large for the record."""
    item, spec = pair
    if item["status"] == 201 and "payload" not in item["job"]:
        assert isinstance(spec, JobSpec)
        item["job"]["payload"] = orjson.Fragment(show_payload(spec.task, spec.payload))
    return item
