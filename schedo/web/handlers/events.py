"""GET /v1/events: figures each second, and what has changed, as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from schedo.core.series import COUNTS, GAUGES, UNKNOWN, Row, merge
from schedo.errors import NotFound, Unavailable
from schedo.protocol.events import EVENTS_TYPE, EventsRequest
from schedo.protocol.times import render_instant
from schedo.web.context import AppContext
from schedo.web.handlers.sessions import find_session
from schedo.web.http import Pieces, Request, Response

if TYPE_CHECKING:
    from schedo.web.events import EventHub, Second, Stream

_LAST_ID = b"last-event-id"
_SECONDS_MAX = 3  # of one event: the first one after a pause shows the present


async def get_events(context: AppContext, request: Request) -> Response:
    wanted = EventsRequest.read(request.query)
    topics = set(wanted.topics)
    topics.update([f"job:{ident}" for ident in await _find_jobs(context, wanted.job_ids)])
    if wanted.schedule is not None:
        schedule = await context.engine.get_schedule(wanted.schedule)
        topics.add(f"schedule:{schedule.id}")
    stream = _find_hub(context).open(topics, request.find_header(_LAST_ID))
    pieces: Pieces = stream
    session = find_session(context, request)
    if session is not None:
        pieces = _SessionStream(stream, lambda: session.expires_at <= context.engine.clock.now())
    return Response(200, b"", content_type=EVENTS_TYPE.encode(), pieces=pieces)


class _SessionStream:
    """A stream that ends with its session: at the first piece afterwards, which is not sent."""

    def __init__(self, stream: Stream, is_over: Callable[[], bool]) -> None:
        self._stream = stream
        self._is_over = is_over

    def __aiter__(self) -> _SessionStream:
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._stream)
        if self._is_over():
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        await self._stream.aclose()


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
        context.events = EventHub(context.engine, _Seconds(context), context.events_newest)
    return context.events


class _Seconds:
    """Reads the data of the event of each second; each figure is in one event only.

    The seconds of the figures are those of the clock, and the events come by a timer of their own.
    So an event can have the figures of two seconds together, or of none.
    """

    def __init__(self, context: AppContext) -> None:
        self._engine = context.engine
        self._objective_us = context.settings.lateness_objective_us
        self._told = 0  # the number of the last second

    def __call__(self) -> Second:
        engine = self._engine
        summary = engine.summary(self._objective_us)
        tick: dict[str, Any] = {
            "now": render_instant(engine.clock.now()),
            "verdict": summary.verdict._asdict(),
            "running": summary.running,
            "slots": summary.slots,
        }
        row = self._read_new()
        if row is not None:
            counts = dict(zip(COUNTS, row.counts, strict=False))
            gauges = dict(zip(GAUGES, row.gauges, strict=True))
            known = {name: None if value == UNKNOWN else value for name, value in gauges.items()}
            del counts["commit_us"]  # a sum that only averages need
            tick["figures"] = counts | known
            tick["lateness"] = {kind: row.lateness(kind) for kind in summary.lateness}
        return tick, summary.queues

    def _read_new(self) -> Row | None:
        """Return the figures since the last event, of the last seconds at most."""
        seconds = self._engine.series.seconds
        last = seconds.last
        if last is None or last.number == self._told:
            return None
        first = last.number - _SECONDS_MAX + 1
        if self._told < last.number:  # else the clock was set back
            first = max(first, self._told + 1)
        self._told = last.number
        rows = seconds.since(first)
        return Row(last.number, reduce(merge, (row.figures for row in rows)))
