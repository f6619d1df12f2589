"""GET /v1/summary: the server at a glance."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from schedo.core.built_in import may_run
from schedo.engine.summary import Lateness, Summary
from schedo.protocol.queues import QueueResponse
from schedo.protocol.summary import (
    BudgetResponse,
    LatenessResponse,
    SummaryResponse,
    VerdictResponse,
    WaitingJobResponse,
)
from schedo.protocol.system import CallerResponse, ObjectiveResponse
from schedo.protocol.times import render_instant
from schedo.protocol.workers import WorkerResponse
from schedo.virtual_clock import VirtualClock
from schedo.web.context import AppContext
from schedo.web.handlers.process_metrics import read_resident_bytes
from schedo.web.http import Request, Response
from schedo.web.permissions import ANYONE

_NOT_SHOWN = "commit_us"  # a sum that only averages need


async def get_summary(context: AppContext, request: Request) -> Response:
    engine, objective_us = context.engine, context.settings.lateness_objective_us
    summary = engine.summary(objective_us)
    response = SummaryResponse(
        verdict=VerdictResponse(*summary.verdict),
        now=render_instant(engine.clock.now()),
        started_at=render_instant(engine.metrics.began_at),
        version=context.settings.version,
        epoch=engine.health().epoch,
        caller=describe_caller(request),
        features=list_features(context),
        objective=ObjectiveResponse(objective_us),
        lateness={kind: _describe(each) for kind, each in summary.lateness.items()},
        recent=_counts(summary.recent),
        recent_seconds=summary.recent_s,
        quarter=_counts(summary.quarter),
        day=_counts(summary.day),
        states=_count_states(summary),
        running=summary.running,
        slots=summary.slots,
        store_bytes=engine.series.store_bytes,
        memory_bytes=read_resident_bytes(),
        queues=[QueueResponse.of(*status) for status in summary.queues],
        has_more_queues=summary.has_more_queues,
        workers=[WorkerResponse.of(seen) for seen in summary.workers],
        has_more_workers=summary.has_more_workers,
        long_waits=[WaitingJobResponse.of(each) for each in summary.long_waits],
    )
    return Response(200, msgspec.json.encode(response))


def describe_caller(request: Request) -> CallerResponse:
    """Return the name and the role of the request's token."""
    caller = request.permission or ANYONE
    return CallerResponse(caller.name, caller.role)


def list_features(context: AppContext) -> dict[str, bool]:
    """Return what the server may do, by its settings."""
    settings = context.settings
    return {
        "shell": may_run("shell", settings.permissions),
        "strict": settings.is_strict,
        "tokens": bool(settings.tokens),
        "test_clock": isinstance(context.engine.clock, VirtualClock),
    }


def _describe(lateness: Lateness) -> LatenessResponse:
    return LatenessResponse(
        lateness.p50_us,
        lateness.p99_us,
        BudgetResponse.of(lateness.recent),
        BudgetResponse.of(lateness.day),
    )


def _counts(by_name: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in by_name.items() if name != _NOT_SHOWN}


def _count_states(summary: Summary) -> dict[str, int] | None:
    if summary.waiting is None:
        return None
    waiting = {state.value: count for state, count in sorted(summary.waiting.items())}
    return {**waiting, "running": summary.running}
