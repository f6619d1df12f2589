"""POST /v1/work: the one request of the worker protocol.

It may wait a minute for work, in thousands, so what waits holds no more than it must. A client that
hangs up cancels what the engine does for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from schedo.core.limits import BODY_BYTES_UNCOUNTED
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.worker_messages import PollRequest, PollResponse, Progress
from schedo.errors import Forbidden, NotFound, Unavailable
from schedo.protocol.poll_responses import render_work
from schedo.protocol.work import WorkRequest
from schedo.web.auth import ClientGone
from schedo.web.context import AppContext, KnownWorker
from schedo.web.http import Request, Response
from schedo.web.permissions import WorkerPermission

_WORKERS_REMEMBERED_MAX = 4_096
_PARTS_SHARED_MAX = 64
T = TypeVar("T")


async def work(site: AppContext, request: Request) -> Response:
    """Take a worker's reports and give it work."""
    ask = _make_ask(site, request, await request.read(WorkRequest))
    if site.draining.is_set():
        given = await _take_last(site, ask)
    elif ask.wait_s and not (ask.reports and len(request.body) > BODY_BYTES_UNCOUNTED):
        # What brings much is answered at once, and kept no longer; the worker asks again.
        request.leave()
        request = request._replace(body=b"")
        found = await site.run_until_disconnect(site.engine.sessions.work(ask), request.gone)
        if found is None:
            given = await _answer_stopping(site, ask)
        else:
            given = found
    else:
        given = await site.engine.sessions.work(ask._replace(wait_s=0.0))
    return Response(200, render_work(given, site.engine.health().epoch, ask.session_timeout_s))


async def _answer_stopping(site: AppContext, ask: PollRequest) -> PollResponse:
    """Answer a request whose wait the server's stop has cut short: what it brought was taken."""
    if not site.draining.is_set():
        raise ClientGone
    if not ask.reports:
        raise _stopping()
    await site.engine.flush()
    return PollResponse()


def _make_ask(site: AppContext, request: Request, asked: WorkRequest) -> PollRequest:
    offer = asked.read_spec()
    ask = PollRequest(
        worker=offer.id,
        session=asked.session or "",
        spec=offer,
        running=asked.read_running(),
        reports=[each.to_result(f"/results/{at}") for at, each in enumerate(asked.results or ())],
        progress=[Progress(*parts) for parts in asked.read_progress()],
        accept=asked.read_accepted(),
        reject=asked.read_rejected(),
        is_draining=asked.draining or False,
        supports_offers=asked.offers or False,
        wait_s=asked.read_wait(),
        max_leases=asked.max_leases,
        session_timeout_s=asked.read_session_timeout(),
    )
    if request.grant is not None:
        offer = request.grant.narrow(offer)
    return ask._replace(spec=_remember(site, request, offer))


def _remember(site: AppContext, request: Request, offer: WorkerSpec) -> WorkerSpec:
    """Return the offer, the known one if it is the same; refuse a name that is another token's."""
    known = site.workers.get(offer.id)
    if known is None and len(site.workers) >= _WORKERS_REMEMBERED_MAX:
        _forget_gone(site)
    if known is not None and known.client_id == request.client_id:
        if known.offer == offer:
            return known.offer
    elif request.grant is not None:
        _check_name(site, offer.id, request.grant, known)
    offer = _share_parts(offer)
    site.workers[offer.id] = KnownWorker(request.client_id, offer)
    if offer.tasks is not None and "shell" in offer.tasks:
        site.has_shell_workers = True
    return offer


def _check_name(
    site: AppContext, name: str, grant: WorkerPermission, known: KnownWorker | None
) -> None:
    """Refuse a name that another token uses, or to touch what this one is not for.

    Whose the workers of the last server were is not known; what they run is.
    """
    held = site.engine.sessions.held_by(name)
    if known is not None and (held or _is_there(site, name)):
        raise Forbidden(f"the worker {name!r} is there already, with another token")
    for lease in held:
        if not grant.allows(lease.queue, lease.task):
            raise Forbidden(f"the worker {name!r} runs what this token is not for")


def _share_parts(offer: WorkerSpec) -> WorkerSpec:
    """Return the offer made of parts that are shared with others: a fleet's workers are alike."""
    return replace(
        offer,
        tasks=_share(offer.tasks),
        queues=_share(offer.queues),
        task_defaults=_share_mapping(tuple(sorted(offer.task_defaults.items()))),
        labels=_share_mapping(tuple(sorted(offer.labels.items()))),
        resources=_share_mapping(tuple(sorted(offer.resources.items()))),
    )


@lru_cache(maxsize=_PARTS_SHARED_MAX)
def _share(names: frozenset[str] | None) -> frozenset[str] | None:
    return names


@lru_cache(maxsize=_PARTS_SHARED_MAX)
def _share_mapping(items: tuple[tuple[str, T], ...]) -> Mapping[str, T]:
    return dict(items)


def _is_there(site: AppContext, name: str) -> bool:
    try:
        return site.engine.sessions.get(name).state != "disconnected"
    except NotFound:
        return False


def _forget_gone(site: AppContext) -> None:
    there = {seen.name for seen in site.engine.sessions.list()}
    site.workers = {name: known for name, known in site.workers.items() if name in there}


async def _take_last(site: AppContext, ask: PollRequest) -> PollResponse:
    """Take what a worker has to say to a server that is stopping; there is no more work."""
    given = await site.engine.sessions.work(ask._replace(wait_s=0.0, max_leases=0))
    if not (ask.reports or given.stops or given.revoked):
        raise _stopping()  # which makes the worker pause before it asks again
    return given


def _stopping() -> Unavailable:
    return Unavailable("the server is stopping; ask again soon")
