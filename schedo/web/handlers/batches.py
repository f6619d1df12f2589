"""Submits batches: many jobs in one commit, each with its own result.

The record of a batch with an Idempotency-Key is rendered in the turn that makes its jobs, so it has
no large payloads: a repeated request brings them again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec
import orjson

from schedo.core.built_in import show_payload
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX
from schedo.core.model import JobSpec
from schedo.engine.call_results import Accepted
from schedo.engine.sharing import STEP_S, jobs_in_steps
from schedo.errors import BadJson, Invalid, SchedoError, TooLarge
from schedo.protocol.job_texts import JobTexts, render_brief
from schedo.protocol.jobs import JobRequest
from schedo.protocol.pieces import PIECE_BYTES
from schedo.protocol.problems import ProblemResponse
from schedo.protocol.reading import (
    Steps,
    read_item,
    read_small_item,
    read_small_items,
    split_array,
    split_lines,
)
from schedo.trace_context import TraceContext
from schedo.web.context import AppContext
from schedo.web.handlers.trace_headers import read_trace
from schedo.web.http import Request, Response
from schedo.web.idempotency import IdempotentRequest, StoreResponse, make_record
from schedo.web.pages import page_response

_WARNINGS_MAX = 10

Result = Accepted[bytes] | SchedoError  # with the job as JSON
Spec = JobSpec | bytes  # the rendered result of a job that is refused
_GROUPED_ITEMS = 100  # are read or sent in one step


class _Record(msgspec.Struct):
    """The recorded response to a batch."""

    items: list[msgspec.Raw]


_RECORD = msgspec.json.Decoder(_Record)


async def create_jobs(context: AppContext, request: Request) -> Response:
    """Submit a batch in one commit; each job has its own result."""
    idempotent = IdempotentRequest(request)
    # Every job names its task, so this bounds their number before the body is parsed.
    async with context.batches.taken(request.body.count(b'"task"')):
        specs = await jobs_in_steps(_read_items(context, request, idempotent))
        is_brief = _prefers_minimal(request)
        response = await idempotent.perform(
            context,
            lambda record_of: submit_many(
                context,
                specs,
                record_of,
                is_brief=is_brief,
                may_replace=request.may_replace,
                home_shards=request.home_shards,
            ),
            lambda body: replay_many(specs, body),
        )
    return _warn_of_unknown(context, specs, response)


def _warn_of_unknown(context: AppContext, specs: Sequence[Spec], response: Response) -> Response:
    """Add a header with the tasks of the batch that no worker has offered, if there are any."""
    known = context.engine.tasks
    tasks = {spec.task for spec in specs if isinstance(spec, JobSpec)}
    unknown = sorted(task for task in tasks if task not in known)
    if not unknown or response.status >= 400:
        return response
    texts = [known.describe_unknown(task) for task in unknown[:_WARNINGS_MAX]]
    return response.with_headers((b"schedo-warning", "; ".join(texts).encode("ascii", "replace")))


def _prefers_minimal(request: Request) -> bool:
    """Return whether the client wants a minimal response (RFC 7240)."""
    preferences = (request.find_header(b"prefer") or "").lower().split(",")
    return any(each.partition(";")[0].strip() == "return=minimal" for each in preferences)


def _read_items(
    context: AppContext, request: Request, idempotent: IdempotentRequest
) -> Steps[list[Spec]]:
    """Return the spec of each job of a batch, or the rendered error of a refused one."""
    read_spec = partial(_read_spec, context, request, read_trace(request))
    if request.is_lines:
        groups = [[line] for line in split_lines(request.body)]
    else:
        groups = _group((yield from split_array(request.body)))
    specs: list[Spec] = []
    yield
    until = time.perf_counter() + STEP_S
    for items in groups:
        if time.perf_counter() > until:
            yield
            until = time.perf_counter() + STEP_S
        together = read_small_items(items, JobRequest) if len(items) > 1 else None
        if together is not None:
            jobs, canonical = together
            idempotent.see_canonical(canonical)
            specs += map(read_spec, jobs)
        else:
            for number, item in enumerate(items, len(specs) + 1):
                specs.append((yield from _read_one(item, number, idempotent, read_spec)))
    return specs


def _group(items: Sequence[msgspec.Raw]) -> list[list[msgspec.Raw]]:
    """Return the items in groups of _GROUPED_ITEMS at most that are no longer than a piece."""
    groups: list[list[msgspec.Raw]] = []
    room = 0
    for item in items:
        room -= len(item) + 1
        if room < 0 or len(groups[-1]) >= _GROUPED_ITEMS:
            groups.append([])
            room = PIECE_BYTES - len(item)
        groups[-1].append(item)
    return groups


def _read_one(
    item: msgspec.Raw,
    number: int,
    idempotent: IdempotentRequest,
    read_spec: Callable[[JobRequest], Spec],
) -> Steps[Spec]:
    try:
        if len(item) <= PIECE_BYTES:
            job = read_small_item(item, number, JobRequest, idempotent.see)
        else:
            job = yield from read_item(item, number, JobRequest, idempotent.see)
    except (BadJson, TooLarge):  # the whole batch is malformed or too large
        raise
    except SchedoError as error:
        # The error itself would keep its traceback and frames in memory.
        return _refusal(error)
    return read_spec(job)


def _read_spec(context: AppContext, request: Request, trace: TraceContext, job: JobRequest) -> Spec:
    """Return the spec of a job, or the rendered error of a refused one."""
    try:
        if job.broadcast:
            raise Invalid.field("/broadcast", "a batch takes no broadcast; send it to /v1/jobs")
        spec = job.to_spec(*trace)
        context.check_work(request, spec)
    except SchedoError as error:
        return _refusal(error)
    return spec


async def submit_many(
    context: AppContext,
    specs: Sequence[Spec],
    record_of: StoreResponse | None,
    *,
    is_brief: bool = False,
    may_replace: Callable[[str, str], bool] | None = None,
    home_shards: Collection[int] = (),
) -> Response:
    """Submit the specs in one commit; the response has the result of each, in their order.

    may_replace, home_shards: see commands.Submit.
    """
    items: list[bytes] = []

    def render(results: Sequence[Result]) -> Response:
        items[:] = _render_items(specs, results)
        return Response(200, b'{"items":[%b]}' % b",".join(items))

    good = [spec for spec in specs if isinstance(spec, JobSpec)]
    view = render_brief if is_brief else JobTexts(PAYLOAD_INLINE_BYTES_MAX).render
    record = make_record(record_of, render)
    results: list[Result] = []
    if good:
        results = await context.engine.submit(
            good, view=view, make_record=record, may_replace=may_replace, home_shards=home_shards
        )
    return await _respond(items or _render_items(specs, results), () if is_brief else specs)


async def replay_many(specs: Iterable[Spec], record: bytes) -> Response:
    """Return the recorded response, with the payloads of the specs where it has none."""
    return await _respond(list(map(bytes, _RECORD.decode(record).items)), specs)


async def _respond(items: Sequence[bytes], specs: Iterable[Spec]) -> Response:
    """Return the response with these items, with the large payloads that they lack.

    specs: those of the items; none if the response has no payloads.
    """
    specs = list(itertools.islice(specs, len(items)))
    if any(map(_has_large_payload, specs)):
        return await page_response(_add_payload, zip(items, specs, strict=True))
    groups = (
        b",".join(items[at : at + _GROUPED_ITEMS]) for at in range(0, len(items), _GROUPED_ITEMS)
    )
    return await page_response(bytes, groups)


def _render_items(specs: Sequence[Spec], results: Sequence[Result]) -> list[bytes]:
    rest = iter(results)
    return [_render_item(next(rest)) if isinstance(spec, JobSpec) else spec for spec in specs]


def _render_item(result: Result) -> bytes:
    if isinstance(result, SchedoError):
        return _refusal(result)
    if result.conflict:
        return b'{"status":200,"job":%b,"conflict":true}}' % result.job[:-1]
    return b'{"status":201,"job":%b}' % result.job


def _refusal(error: SchedoError) -> bytes:
    return msgspec.json.encode({"status": error.status, "problem": ProblemResponse.of(error)})


def _has_large_payload(spec: Spec) -> bool:
    return isinstance(spec, JobSpec) and len(spec.payload) > PAYLOAD_INLINE_BYTES_MAX


def _add_payload(pair: tuple[bytes, Spec]) -> bytes:
    """Add the payload of a new job that is too large for the record, unless it is minimal."""
    text, spec = pair
    if not _has_large_payload(spec):
        return text
    item = orjson.loads(text)
    if item["status"] != 201 or "payload" in item["job"] or "attempt" not in item["job"]:
        return text
    assert isinstance(spec, JobSpec)
    item["job"]["payload"] = orjson.Fragment(show_payload(spec.task, spec.payload))
    return orjson.dumps(item)
