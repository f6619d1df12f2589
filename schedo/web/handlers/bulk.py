"""Operations on many jobs: begin, list, read, cancel."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from schedo.core.bulk import BulkAction, BulkOperation
from schedo.core.bulk_commands import BeginBulk
from schedo.core.ids import parse_id
from schedo.errors import Forbidden, Invalid, NotFound
from schedo.protocol.bulk import BulkRequest, BulkResponse, DryRunResponse, Where
from schedo.protocol.fields import instant_or_unset
from schedo.protocol.roles import ROLES
from schedo.web.context import AppContext
from schedo.web.holding import before_changes
from schedo.web.http import Request, Response
from schedo.web.pages import LIST_BYTES, page_response
from schedo.web.permissions import ANYONE

DRY_RUN_S = 10.0  # after which a count says how far it has come


async def create_operation(context: AppContext, request: Request) -> Response:
    asked = await request.read(BulkRequest)
    asked.where.check(asked.action)
    _check_permission(request, asked.action, asked.where.queue, asked.where.task)
    with before_changes(request.body):
        schedule = await _find_schedule(context, asked.where)
    which = asked.where.read(schedule, context.engine.clock.now())
    bulk = context.engine.bulk
    if asked.dry_run:
        with before_changes(request.body):
            which = replace(which, states=asked.action.states)
            counted = await bulk.count(which, most_s=DRY_RUN_S)
        since = instant_or_unset(counted.since)
        response = DryRunResponse(asked.action, asked.where, counted.jobs, since)
        return Response(200, msgspec.json.encode(response))
    operation = await bulk.begin(
        BeginBulk(
            asked.action,
            which,
            schedule=asked.where.schedule,
            jobs_max=asked.max_jobs,
            jobs_expected=asked.expected_count,
            requested_by=_name_client(request),
        )
    )
    return _respond_created(request, operation)


async def list_operations(context: AppContext, request: Request) -> Response:
    await request.claim.take(LIST_BYTES)
    return await page_response(BulkResponse.of, await context.engine.bulk.all())


async def get_operation(context: AppContext, request: Request) -> Response:
    return _respond(await _find(context, request))


async def cancel_operation(context: AppContext, request: Request) -> Response:
    operation = await _find(context, request)
    _check_permission(request, operation.action, operation.which.queue, operation.which.task)
    return _respond(await context.engine.bulk.cancel(operation.id))


async def undo_operation(context: AppContext, request: Request) -> Response:
    undone = await _find(context, request)
    _check_permission(request, undone.action, undone.which.queue, undone.which.task)
    operation = await context.engine.bulk.undo(undone.id, _name_client(request))
    return _respond_created(request, operation)


def _respond_created(request: Request, operation: BulkOperation) -> Response:
    response = BulkResponse.of(operation)
    location = request.location(f"/v1/operations/{response.id}")
    return Response(201, msgspec.json.encode(response)).with_headers(location)


def _name_client(request: Request) -> str | None:
    permission = request.permission
    return None if permission is None or permission is ANYONE else permission.name


async def _find_schedule(context: AppContext, where: Where) -> int | None:
    if where.schedule is None:
        return None
    schedule = await context.engine.store.get_schedule(where.schedule)
    if schedule is None:
        raise Invalid.field("/where/schedule", f"there is no schedule {where.schedule!r}")
    return schedule.id


def _check_permission(
    request: Request, action: BulkAction, queue: str | None, task: str | None
) -> None:
    """Raise Forbidden unless the token may do this to one job, and covers all jobs that match."""
    permission = request.permission
    if permission is None:
        return
    needed = ROLES[f"{action}_job"]
    if needed is not None and not permission.includes(needed):
        raise Forbidden(
            f"the token {permission.name!r} has the role {permission.role}; to {action} jobs needs"
            f" the role {needed}"
        )
    for name, names, value in (
        ("queue", permission.queues, queue),
        ("task", permission.tasks, task),
    ):
        if names is not None and value not in names:
            raise Forbidden(
                f"the token {permission.name!r} is only for the {name}s {', '.join(sorted(names))};"
                f" give one of them as where.{name} (in the command line: --{name})"
            )


async def _find(context: AppContext, request: Request) -> BulkOperation:
    text = request.params["id"]
    try:
        number = parse_id(text)
    except NotFound:
        number = -1
    for operation in await context.engine.bulk.all():
        if operation.id == number:
            return operation
    raise NotFound(f"there is no operation {text[:40]!r}; the latest 100 that have ended are kept")


def _respond(operation: BulkOperation) -> Response:
    return Response(200, msgspec.json.encode(BulkResponse.of(operation)))
