"""GET /v1/jobs/{id}/history: what happened to a job, and who changed it by hand."""

from __future__ import annotations

import msgspec

from schedo.core.action_log import LogFilter
from schedo.core.ids import parse_id, render_id
from schedo.core.limits import SECOND
from schedo.core.model import Job, Trigger
from schedo.protocol.history import ENTRIES_MAX, Change, HistoryResponse
from schedo.web.context import AppContext
from schedo.web.handlers.jobs import JOB_BYTES
from schedo.web.http import Request, Response

_LOCAL = "local"  # who began an operation on a server without tokens
_TRIGGERS_MAX = 20  # by hand, of one schedule in the turn that made the job


async def get_history(context: AppContext, request: Request) -> Response:
    await request.claim.take(JOB_BYTES)
    job = await context.engine.get(parse_id(request.params["id"]))
    attempts = await context.engine.store.list_attempts(job.id)
    changes = [
        *await _list_logged(context, job),
        *await _list_bulk(context, job.id),
        *await _find_trigger(context, job),
    ]
    response = HistoryResponse.of(job, attempts, context.engine.durable_at(job.id), changes)
    return Response(200, msgspec.json.encode(response))


async def _list_logged(context: AppContext, job: Job) -> list[Change]:
    """Return the changes of the job alone."""
    which = LogFilter(target=f"jobs/{render_id(job.id)}")
    found = await context.engine.store.list_log(which, None, ENTRIES_MAX)
    return [Change(each.at, each.action, each.who, each.via) for _, each in found]


async def _list_bulk(context: AppContext, job_id: int) -> list[Change]:
    """Return the changes of the job by those operations of which the store has the steps."""
    return [
        Change(at, f"{each.action}_job", each.requested_by or _LOCAL, operation=each.id)
        for each, at in await context.engine.store.list_bulk_changes(job_id)
    ]


async def _find_trigger(context: AppContext, job: Job) -> list[Change]:
    """Return who made the job, if a schedule was triggered by hand."""
    schedule = (await context.load_schedule_names([job])).get(job.schedule_id or 0)
    if job.trigger is not Trigger.MANUAL or schedule is None:
        return []
    which = LogFilter(
        action="trigger_schedule", target=f"schedules/{schedule}", before=job.created_at + SECOND
    )
    found = await context.engine.store.list_log(which, None, _TRIGGERS_MAX)
    answer = f"made {render_id(job.id)}"
    return [
        Change(each.at, each.action, each.who, each.via)
        for _, each in found
        if each.answer == answer
    ]
