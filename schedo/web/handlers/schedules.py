"""Schedules: put, read, pause, resume, trigger, and the decisions on their instants."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import orjson
from msgspec import UNSET

from schedo.core.commands import DeclareSchedules, PutEffect
from schedo.core.expectations import Expectation, ExpectationState
from schedo.core.ids import render_id
from schedo.core.limits import FIRES_SHOWN
from schedo.core.model import Rule, Schedule
from schedo.core.run_history import NO_RUNS, RunHistory
from schedo.core.schedule_filter import ScheduleFilter, health_of
from schedo.errors import BadRequest
from schedo.protocol import fields
from schedo.protocol.cron import describe_rule, list_dst_warnings, list_fires, list_warnings
from schedo.protocol.declarations import (
    OWNER_RULE,
    describe_edit,
    describe_takeover,
    is_owner,
    list_edited,
)
from schedo.protocol.expect import ExpectationStatus
from schedo.protocol.fields import duration_or_unset
from schedo.protocol.jobs import job_fields
from schedo.protocol.masking import has_mask, reuse_schedule
from schedo.protocol.query import (
    bad_parameter,
    parse_name_cursor,
    parse_number_cursor,
    read_fields,
    read_limit,
    render_cursor,
)
from schedo.protocol.schedule_filters import ScheduleCountsResponse, read_schedule_filter
from schedo.protocol.schedules import (
    DecisionResponse,
    PauseRequest,
    ResumeRequest,
    ScheduleRequest,
    ScheduleResponse,
    TriggerRequest,
    TriggerResponse,
)
from schedo.protocol.times import render_instant
from schedo.store.pages import SchedulePage
from schedo.web.context import AppContext
from schedo.web.http import Request, Response
from schedo.web.idempotency import HEADER
from schedo.web.pages import page_response

# What requests claim: for a schedule with its payload, which the server loads, and for a list.
_SCHEDULE_BYTES = 1_048_576
_PAGE_BYTES = 8_388_608
_LOADED_SCHEDULES = 50  # at a time
# A page ends when its search has passed schedules that do not match for this time.
SEARCH_S = 0.025


async def put_schedule(context: AppContext, request: Request) -> Response:
    spec = (await request.read(ScheduleRequest)).to_spec(_name(request))
    # The schedule that it replaces is loaded.
    await request.claim.take(max(len(request.body), _SCHEDULE_BYTES))
    if has_mask(request.body):
        stored = await context.engine.declarations.find(spec.name)
        spec = spec if stored is None else reuse_schedule(spec, stored)
    context.check_schedule(request, spec)
    owner, takeover = _read_owner(request), None
    if owner is None:
        schedule, effect = await context.engine.put_schedule(spec)
    else:
        command = DeclareSchedules(owner, (spec,))
        [(effect, schedule, before)] = await context.engine.declarations.put_here(command)
        takeover = describe_takeover(before, owner)
    location = request.location(f"/v1/schedules/{schedule.name}")
    response = _describe(context, await _load_facts(context, [schedule]), schedule)
    response.effect = effect
    response.warnings += context.warn_of_schedule(spec)
    if takeover is not None:
        response.warnings.append(takeover)
    status = 201 if effect is PutEffect.CREATED else 200
    return Response(status, msgspec.json.encode(response)).with_headers(location)


def _read_owner(request: Request) -> str | None:
    owner = request.query.get("owner")
    if owner is not None and not is_owner(owner):
        raise bad_parameter("owner", OWNER_RULE)
    return owner


async def get_schedule(context: AppContext, request: Request) -> Response:
    await request.claim.take(_SCHEDULE_BYTES)
    return await _respond(context, await context.engine.get_schedule(_name(request)))


async def list_schedules(context: AppContext, request: Request) -> Response:
    limit = read_limit(request.query)
    after = parse_name_cursor("schedules", request.query)
    which = read_schedule_filter(request.query)
    shown = read_fields(request.query, "a schedule", ScheduleResponse.__struct_fields__)
    await request.claim.take(_PAGE_BYTES)
    page = await _load_page(context, after, limit, which)
    more: dict[str, Any] = {}
    if after is None:
        counts = ScheduleCountsResponse.of(await context.engine.count_schedules())
        more["counts"] = msgspec.to_builtins(counts)
    facts = await _load_facts(context, page.schedules)

    def describe(schedule: Schedule) -> ScheduleResponse | bytes:
        found = _describe(context, facts, schedule)
        return found if shown is None else _select(found, shown)

    if page.after is None:
        return await page_response(describe, page.schedules, facts=more)
    if len(page.schedules) < limit and page.looked_at:
        more["looked_at"] = page.looked_at
    cursor = render_cursor("schedules", request.query, page.after)
    headers = (request.next_link(cursor),)
    return await page_response(describe, page.schedules, cursor, headers, more)


async def _load_page(
    context: AppContext, after: str | None, limit: int, which: ScheduleFilter
) -> SchedulePage:
    """Return a page of schedules; it ends early if it is large, or if the search is long."""
    until = time.perf_counter() + SEARCH_S
    found: list[Schedule] = []
    size = looked_at = 0
    while True:
        count = min(limit - len(found), _LOADED_SCHEDULES)
        part = await context.engine.list_schedules(after, count, which)
        found += part.schedules
        after, looked_at = part.after, looked_at + part.looked_at
        size += sum(len(schedule.spec.job.payload) for schedule in part.schedules)
        is_long = looked_at > 0 and time.perf_counter() > until
        if after is None or len(found) == limit or size >= _PAGE_BYTES // 2 or is_long:
            return SchedulePage(found, after, looked_at)


async def reset_schedule(context: AppContext, request: Request) -> Response:
    await request.claim.take(_SCHEDULE_BYTES)
    schedule, effect = await context.engine.declarations.reset(_name(request))
    response = _describe(context, await _load_facts(context, [schedule]), schedule)
    response.effect = effect
    return Response(200, msgspec.json.encode(response))


async def delete_schedule(context: AppContext, request: Request) -> Response:
    await request.claim.take(_SCHEDULE_BYTES)
    await context.engine.delete_schedule(_name(request))
    return Response(204, b"")


async def list_decisions(context: AppContext, request: Request) -> Response:
    limit = read_limit(request.query)
    before = parse_number_cursor("decisions", request.query)
    await request.claim.take(_SCHEDULE_BYTES)
    schedule = await context.engine.get_schedule(_name(request))
    page = await context.engine.store.list_decisions(schedule.id, limit, before)
    if page.before is None:
        return await page_response(DecisionResponse.of, page.decisions)
    cursor = render_cursor("decisions", request.query, str(page.before))
    headers = (request.next_link(cursor),)
    return await page_response(DecisionResponse.of, page.decisions, cursor, headers)


async def pause_schedule(context: AppContext, request: Request) -> Response:
    note = (await request.read(PauseRequest)).note
    await request.claim.take(_SCHEDULE_BYTES)
    name = await _check_schedule(context, request)
    return await _respond(context, await context.engine.pause_schedule(name, note))


async def resume_schedule(context: AppContext, request: Request) -> Response:
    resume_from = fields.read_instant_or_none(
        "/resume_from", (await request.read(ResumeRequest)).resume_from
    )
    await request.claim.take(_SCHEDULE_BYTES)
    name = await _check_schedule(context, request)
    return await _respond(context, await context.engine.resume_schedule(name, resume_from))


async def trigger_schedule(context: AppContext, request: Request) -> Response:
    if HEADER in request.headers:
        raise BadRequest("a trigger takes no Idempotency-Key; submit a job with one instead")
    overlap = (await request.read(TriggerRequest)).overlap
    await request.claim.take(_SCHEDULE_BYTES)
    name = await _check_schedule(context, request)
    job, skipped_by = await context.engine.trigger_schedule(name, overlap)
    if job is not None:
        made = {"job": job_fields(job, await context.load_schedule_names([job]))}
        return Response(201, orjson.dumps(made))
    blocking = UNSET if skipped_by is None else render_id(skipped_by)
    skipped = TriggerResponse(skipped_overlap=True, blocking_job=blocking)
    return Response(200, msgspec.json.encode(skipped))


async def _check_schedule(context: AppContext, request: Request) -> str:
    """Return the schedule's name; raise Forbidden if the token does not cover its jobs."""
    if request.permission is not None and request.permission.is_restricted:
        job = (await context.engine.get_schedule(_name(request))).spec.job
        request.check_job(job.queue, job.task)
    return _name(request)


async def _respond(context: AppContext, schedule: Schedule, status: int = 200) -> Response:
    facts = await _load_facts(context, [schedule])
    return Response(status, msgspec.json.encode(_describe(context, facts, schedule)))


class _Facts(NamedTuple):
    """What is known of some schedules beside their records, by id."""

    histories: Mapping[int, RunHistory]
    expectations: Mapping[int, Expectation]


async def _load_facts(context: AppContext, schedules: Sequence[Schedule]) -> _Facts:
    engine = context.engine
    histories = await engine.store.get_histories([schedule.id for schedule in schedules])
    return _Facts(histories, await engine.expectations.of_schedules(schedules))


def _select(response: ScheduleResponse, shown: Iterable[str]) -> bytes:
    """Return some fields of the response as JSON."""
    values = {name: getattr(response, name) for name in shown}
    return msgspec.json.encode(
        {name: value for name, value in values.items() if value is not UNSET}
    )


def _describe(context: AppContext, facts: _Facts, schedule: Schedule) -> ScheduleResponse:
    rule, source = schedule.spec.rule, schedule.spec.cron_source
    now = context.engine.clock.now()
    # If the clock was set back, it passes instants again that have a decision already.
    fires = _list_next(schedule, max(now, schedule.evaluated_through))
    warnings = [*list_warnings(source, schedule.name)] if source else []
    warnings += list_dst_warnings(rule)
    if not fires:
        warnings.append(f"it will not fire again: {_why_never(rule)}")
    edited = list_edited(schedule)
    if edited:
        warnings.append(describe_edit(schedule))
    shown = [] if schedule.paused else fires
    history = facts.histories.get(schedule.id, NO_RUNS)
    response = ScheduleResponse.of(schedule, shown, describe_rule(rule), warnings, history)
    response.edited = edited or UNSET
    response.median_run = duration_or_unset(history.median_run_us)
    expectation = facts.expectations.get(schedule.id)
    is_overdue = expectation is not None and expectation.state is ExpectationState.MISSED
    response.health = health_of(schedule, history, is_overdue=is_overdue)
    if expectation is not None:
        response.expectation = ExpectationStatus.of(expectation)
    return response


def _list_next(schedule: Schedule, after: int) -> Sequence[int]:
    """Return the next instants; the first one need not be searched unless its turn is late."""
    first = schedule.next_fire_at
    if first is None:
        return ()
    if first <= after:
        return list_fires(schedule.rule, after)
    return [first, *list_fires(schedule.rule, first, FIRES_SHOWN - 1)]


def _why_never(rule: Rule) -> str:
    if rule.end_at is not None:
        return f"no instant of it comes before its end, {render_instant(rule.end_at)}"
    if rule.at is not None:
        return f"its instant, {render_instant(rule.at)}, has passed"
    return f"no such time comes in {rule.tz} within 50 years"


def _name(request: Request) -> str:
    return fields.read_name("/name", request.params["name"])
