"""The calls of the HTTP API for schedules, as Operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from schedo.client.messages import HttpResponse, Operation, Record
from schedo.client.operations import PAGE_JOBS
from schedo.client.options import Duration, Instant, render_options
from schedo.client.rest import (
    JSON,
    Page,
    check_fields,
    encode,
    get,
    list_with,
    page_with,
    post,
    quote_part,
    read_nothing,
    read_record,
    record_with,
    render_query,
)

DECISIONS_LISTED = 50
_read_schedule = record_with("name")


def _schedule(name: str) -> str:
    return f"/v1/schedules/{quote_part(name)}"


class CronOptions(TypedDict, total=False):
    """Which fires of an expression are listed, and for which schedule.

    name: of the schedule; H is a hash of it. dst: {gap, fold}. coincidences: also count the other
    schedules that fire in the same second.
    """

    tz: str | None
    name: str | None
    dst: Mapping[str, str] | None
    start: Instant | None
    end: Instant | None
    count: int | None
    coincidences: bool | None


def explain_cron(cron: str, options: CronOptions) -> Operation[Record]:
    """Explain a cron expression in words, with its next fires."""
    names = {"start": "from", "end": "to"}
    wanted = {names.get(name, name): value for name, value in options.items()}
    return post(
        "/v1/cron:explain", {"cron": cron, **wanted}, record_with("next_fires"), is_repeatable=True
    )


def put_schedule(
    name: str, spec: Mapping[str, Any], owner: str | None = None
) -> Operation[tuple[Record, bool]]:
    """Create or replace a schedule; return it, and whether it is new. `payload` stays unchanged.

    owner: what declares it, as in "file:jobs.toml"; None: it is changed by hand.
    """
    payload = {"payload": spec["payload"]} if "payload" in spec else {}
    body = encode({**render_options(spec), **payload})
    return Operation(
        "PUT",
        f"{_schedule(name)}{render_query({'owner': owner})}",
        lambda response: (_read_schedule(response), response.status == 201),
        body,
        JSON,
        is_repeatable=True,
    )


def get_schedule(name: str) -> Operation[Record]:
    """Return the schedule with its next fires and counters."""
    return get(_schedule(name), _read_schedule)


class ScheduleFilters(TypedDict, total=False):
    """Which schedules are listed.

    q: words, each in the name, the task or the queue. health: overdue, failing, paused, ended or
    ok. failing: only those whose last run has failed.
    """

    q: str | None
    paused: bool | None
    health: str | None
    failing: bool


def list_schedules(
    limit: int = PAGE_JOBS, cursor: str | None = None, **filters: Unpack[ScheduleFilters]
) -> Operation[Page]:
    """Return one page of schedules by name."""
    wanted = {**filters, "failing": filters.get("failing") or None}
    texts = {n: str(v).lower() if isinstance(v, bool) else v for n, v in wanted.items()}
    query = {**texts, "limit": limit, "cursor": cursor}
    return get(f"/v1/schedules{render_query(query)}", page_with("name"))


def list_decisions(
    name: str, limit: int = DECISIONS_LISTED, cursor: str | None = None
) -> Operation[Page]:
    """Return one page of the decisions about the instants, newest first."""
    query = {"limit": limit, "cursor": cursor}
    return get(f"{_schedule(name)}/decisions{render_query(query)}", page_with("decision"))


def list_fires(
    start: Instant | None, hours: int | None, bucket: Duration | None, limit: int | None
) -> Operation[Record]:
    """Return when all schedules fire in some hours from an instant."""
    query = {"from": start, "hours": hours, "bucket": bucket, "limit": limit}
    return get(f"/v1/fires{render_query(query)}", list_with("names"))


def list_schedule_fires(name: str, start: Instant | None, end: Instant | None) -> Operation[Record]:
    """Return when the schedule fires from an instant to another one."""
    return get(
        f"{_schedule(name)}/fires{render_query({'from': start, 'to': end})}", list_with("at")
    )


def delete_schedule(name: str) -> Operation[None]:
    """Delete the schedule; its jobs stay. It is not repeatable: a second request gets a 404."""
    return Operation("DELETE", _schedule(name), read_nothing)


def reset_schedule(name: str) -> Operation[Record]:
    """Undo the changes by hand: the schedule gets what its owner declared last."""
    return post(f"{_schedule(name)}:reset", {}, _read_schedule, is_repeatable=True)


def pause_schedule(name: str, note: str | None = None) -> Operation[Record]:
    """Pause the schedule: it does not fire until it is resumed."""
    return post(f"{_schedule(name)}:pause", {"note": note}, _read_schedule, is_repeatable=True)


def resume_schedule(name: str, resume_from: Instant | None = None) -> Operation[Record]:
    """Resume a paused schedule; instants since `resume_from` count as missed runs."""
    return post(
        f"{_schedule(name)}:resume",
        {"resume_from": resume_from},
        _read_schedule,
        is_repeatable=True,
    )


def trigger_schedule(name: str, overlap: str | None = None) -> Operation[Record]:
    """Fire once now; return {"job"} or {"skipped_overlap", "blocking_job"}."""
    return post(f"{_schedule(name)}:trigger", {"overlap": overlap}, _read_triggered)


def _read_triggered(response: HttpResponse) -> Record:
    record = read_record(response)
    if "skipped_overlap" not in record:
        check_fields(record, ("job",))
    return record


def declare(declaration: Mapping[str, Any]) -> Operation[Record]:
    """Put the schedules of an owner in one commit and set queues; return what that does to each.

    declaration: {owner, schedules, queues, prune, keep_edits, dry_run}.
    """
    body = encode(declaration)
    return Operation(
        "POST", "/v1/declarations", record_with("schedules"), body, JSON, is_repeatable=True
    )
