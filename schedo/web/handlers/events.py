"""GET /v1/events: figures each second, and what has changed, as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from schedo.core.series import COUNTS, GAUGES, UNKNOWN
from schedo.errors import NotFound, Unavailable
from schedo.protocol.events import EVENTS_TYPE, EventsRequest
from schedo.protocol.times import render_instant
from schedo.web.context import AppContext
from schedo.web.http import Request, Response

if TYPE_CHECKING:
    from schedo.web.events import EventHub, Second

_LAST_ID = b"last-event-id"


async def get_events(context: AppContext, request: Request) -> Response:
    wanted = EventsRequest.read(request.query)
    topics = set(wanted.topics)
    topics.update([f"job:{ident}" for ident in await _find_jobs(context, wanted.job_ids)])
    if wanted.schedule is not None:
        schedule = await context.engine.get_schedule(wanted.schedule)
        topics.add(f"schedule:{schedule.id}")
    stream = _find_hub(context).open(topics, request.find_header(_LAST_ID))
    return Response(200, b"", content_type=EVENTS_TYPE.encode(), pieces=stream)


async def _find_jobs(context: AppContext, idents: Sequence[int]) -> list[int]:
    """Return the ids of the jobs that exist; raise NotFound if none of them does."""
    found, missing = [], None
    for ident in idents:
        try:
            await context.engine.get(ident)
        except NotFound as error:
            missing = error
        else:
            found.append(ident)
    if missing is not None and not found:
        raise missing
    return found


def _find_hub(context: AppContext) -> EventHub:
    """Return the hub. Its module is imported for the first stream: many servers have none."""
    from schedo.web.events import EventHub

    if context.draining.is_set():
        raise Unavailable("the server is stopping")
    if context.events is None:
        context.events = EventHub(context.engine, partial(_read_second, context))
    return context.events


def _read_second(context: AppContext) -> Second:
    engine = context.engine
    summary = engine.summary(context.settings.lateness_objective_us)
    tick: dict[str, Any] = {
        "now": render_instant(engine.clock.now()),
        "verdict": summary.verdict._asdict(),
        "running": summary.running,
        "slots": summary.slots,
    }
    last = engine.series.seconds.last
    if last is not None:
        counts = dict(zip(COUNTS, last.counts, strict=False))
        gauges = dict(zip(GAUGES, last.gauges, strict=True))
        known = {name: None if value == UNKNOWN else value for name, value in gauges.items()}
        del counts["commit_us"]  # a sum that only averages need
        tick["figures"] = counts | known
        tick["lateness"] = {kind: last.lateness(kind) for kind in summary.lateness}
    return tick, summary.queues
