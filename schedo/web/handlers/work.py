"""POST /v1/work, the worker protocol.

Thousands of polls may be open for a minute each, so an open poll holds as little memory as
possible. A worker that disconnects cancels its poll in the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeVar

import msgspec

from schedo.core.built_in import BUILT_IN
from schedo.core.limits import SMALL_BODY_BYTES_MAX
from schedo.core.model import Options
from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.sharing import jobs_in_steps
from schedo.engine.worker_polls import Claim
from schedo.errors import Overloaded, Unavailable
from schedo.protocol.reading import Steps, at_once
from schedo.protocol.relayed_work import RelayedWorkRequest
from schedo.protocol.requirements import escape
from schedo.protocol.work import WorkRequest, WorkResponse
from schedo.web.auth import ClientGone
from schedo.web.context import AppContext, KnownWorker
from schedo.web.elsewhere import SENT_AT
from schedo.web.http import Request, Response
from schedo.web.worker_names import check_name

_WORKERS_REMEMBERED_MAX = 4_096
_PARTS_SHARED_MAX = 16  # of up to 1,000 names each
_FEW_ENTRIES = 64
# A lease must leave before a heartbeat of the worker could release it (see IN_FLIGHT_US).
CLAIM_S_MAX = 1.0
# A gateway returns a lease that comes more than a second after it was given (see LATE_US).
RELAYED_CLAIM_S_MAX = 0.3
T = TypeVar("T")


async def work(context: AppContext, request: Request) -> Response:
    """Apply a worker's request; a poll stays open until there is a lease or a stop."""
    fields = await request.read(RelayedWorkRequest if request.is_part else WorkRequest)
    reading = _make_poll(context, request, fields)
    is_short = len(request.body) <= SMALL_BODY_BYTES_MAX
    poll = at_once(reading) if is_short else await jobs_in_steps(reading)
    del fields, reading
    responding = _respond(context, request, poll)
    is_from_server = request.sent_at is not None
    del request  # with its body
    try:
        response = await responding
    except Overloaded:
        _forget_spec(context, poll.worker)
        raise
    steps = _render(response, context.engine.sessions.epoch, poll.session_timeout_s)
    is_short = len(response.refused) + len(response.leases) <= _FEW_ENTRIES
    found = Response(200, at_once(steps) if is_short else await jobs_in_steps(steps))
    return found.with_headers((SENT_AT, b"%d" % response.sent_at)) if is_from_server else found


async def _respond(context: AppContext, request: Request, poll: PollRequest) -> PollResponse:
    if context.draining.is_set():
        return await _take_last(context, request, poll)
    if poll.wait_s and not (poll.reports and len(request.body) > SMALL_BODY_BYTES_MAX):
        # An open poll holds no body; a large body with results is answered at once instead.
        request.claim.release()
        request = request._replace(body=b"")
        work = context.engine.sessions.work(poll, _claim(request))
        found = await context.run_until_disconnect(work, request.gone, client_id=request.client_id)
        return await _respond_stopping(context, request, poll) if found is None else found
    return await _apply(context, request, poll._replace(wait_s=0.0))


async def _apply(context: AppContext, request: Request, poll: PollRequest) -> PollResponse:
    """Apply a request that does not wait; one with many entries when no other such one does."""
    claim = _claim(request)
    entries = len(poll.reports) + len(poll.progress)
    if entries <= _FEW_ENTRIES:
        return await context.engine.sessions.work(poll, claim)
    async with context.reported.taken(entries):
        return await context.engine.sessions.work(poll, claim)


def _claim(request: Request) -> Claim:
    most_s = CLAIM_S_MAX if request.sent_at is None else RELAYED_CLAIM_S_MAX
    return partial(request.claim.take, wait_s_max=most_s)


def _render(response: PollResponse, epoch: int, session_timeout_s: float) -> Steps[bytes]:
    body = WorkResponse.of(response, epoch, session_timeout_s)
    yield
    return msgspec.json.encode(body)


async def _respond_stopping(
    context: AppContext, request: Request, poll: PollRequest
) -> PollResponse:
    """Respond to a poll that the server's shutdown has ended, or whose client or token has gone.

    Whether its results have been applied is not known here: a shard that moves can hold them up.
    So they come once more, which changes nothing if they have been.
    """
    if not context.draining.is_set():
        context.credentials.check_unchanged(request.client_id, request.permission)
        raise ClientGone
    if not poll.reports and context.cluster is None:
        raise _stopping()
    return await _take_last(context, request, poll)


def _make_poll(context: AppContext, request: Request, fields: WorkRequest) -> Steps[PollRequest]:
    poll = yield from fields.to_poll()
    spec = poll.spec
    if request.permission is not None:
        spec = request.permission.narrow(spec)
    # What another server has sent may have been on its way for long (ADR 70).
    return poll._replace(spec=_remember(context, request, spec), came_at=request.sent_at)


def _remember(context: AppContext, request: Request, spec: WorkerSpec) -> WorkerSpec:
    """Remember who sent this spec; refuse a name that belongs to another token.

    Returns the known spec if it is the same one, so that each worker has a single copy.
    """
    known = context.workers.get(spec.id)
    if known is None and len(context.workers) >= _WORKERS_REMEMBERED_MAX:
        _evict_disconnected(context)
    if known is not None and known.client_id == request.client_id and known.spec == spec:
        return known.spec
    check_name(context, request, spec.id)
    _check_event_jobs(context, request, spec)
    spec = _share_parts(spec)
    context.workers[spec.id] = KnownWorker(request.client_id, spec)
    return spec


def _check_event_jobs(context: AppContext, request: Request, spec: WorkerSpec) -> None:
    """Check the jobs that the worker's tasks name for their failures."""
    for task, options in spec.task_defaults.items():
        on_failure = options.on_failure
        if on_failure is None:
            continue
        if request.permission is not None:
            request.permission.check_event_job(task, on_failure.task)
        offered = {on_failure.task} - BUILT_IN.keys() if spec.tasks is None else spec.tasks
        pointer = f"/task_defaults/{escape(task)}/on_failure"
        context.check_event_job(request, pointer, on_failure, offered)


def _forget_spec(context: AppContext, name: str) -> None:
    """Drop the spec of a refused request, which may be large; the client keeps the name."""
    known = context.workers.get(name)
    if known is not None:
        context.workers[name] = known._replace(spec=None)


def _share_parts(spec: WorkerSpec) -> WorkerSpec:
    """Return the spec made of shared parts: the workers of a fleet have the same ones."""
    return replace(
        spec,
        tasks=_share(spec.tasks),
        queues=_share(spec.queues),
        isolated_tasks=_share(spec.isolated_tasks) or frozenset(),
        task_defaults=_share_defaults(msgspec.json.encode(spec.task_defaults, order="sorted")),
        labels=_share_mapping(tuple(sorted(spec.labels.items()))),
        resources=_share_mapping(tuple(sorted(spec.resources.items()))),
    )


@lru_cache(maxsize=_PARTS_SHARED_MAX)
def _share(names: frozenset[str] | None) -> frozenset[str] | None:
    return names


@lru_cache(maxsize=_PARTS_SHARED_MAX)
def _share_mapping(items: tuple[tuple[str, T], ...]) -> Mapping[str, T]:
    return dict(items)


@lru_cache(maxsize=_PARTS_SHARED_MAX)
def _share_defaults(text: bytes) -> Mapping[str, Options]:
    """Return the defaults of this text; they may have objects, which no cache takes as a key."""
    return msgspec.json.decode(text, type=dict[str, Options])


def _evict_disconnected(context: AppContext) -> None:
    there = {seen.name for seen in context.engine.sessions.list()}
    context.workers = {name: known for name, known in context.workers.items() if name in there}


async def _take_last(context: AppContext, request: Request, poll: PollRequest) -> PollResponse:
    """Apply a request while the server shuts down: results count, but there are no leases."""
    response = await _apply(context, request, poll._replace(wait_s=0.0, max_leases=0))
    is_idle = not (poll.reports or response.stops or response.revoked)
    if is_idle and context.cluster is None:  # else another server has the next poll
        raise _stopping()  # the worker pauses before it polls again
    return response


def _stopping() -> Unavailable:
    return Unavailable("the server is shutting down; poll again soon")
