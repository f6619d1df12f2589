"""The part of /metrics with how the runs of each schedule ended.

The schedules that were created first have series of their own, so that a new schedule never ends
the series of another one.
"""

from __future__ import annotations

from collections.abc import Iterable

from schedo.core.limits import SCHEDULES_MEASURED_MAX, SECOND
from schedo.core.run_history import ScheduleStatus
from schedo.errors import StoreError
from schedo.protocol.prometheus import Family, Sample, render_labels
from schedo.store.base import Reader

_READ_AT_ONCE = 50  # other reads run between two parts


async def read_schedules(store: Reader) -> list[ScheduleStatus]:
    """Return the first schedules, and one more if there are more; none if the store fails."""
    found: list[ScheduleStatus] = []
    try:
        while len(found) <= SCHEDULES_MEASURED_MAX:
            limit = min(_READ_AT_ONCE, SCHEDULES_MEASURED_MAX + 1 - len(found))
            part = await store.list_schedule_statuses(found[-1].id if found else 0, limit)
            found += part
            if len(part) < limit:
                break
    except StoreError:
        return []  # readiness reports that the store fails
    return found


def render_schedules(found: list[ScheduleStatus]) -> list[Family]:
    """Return the families of the schedules that read_schedules has returned."""
    shown = [
        (status, render_labels(schedule=status.name)) for status in found[:SCHEDULES_MEASURED_MAX]
    ]
    ended = [
        Sample(getattr(status.history, state), f'{labels},state="{state}"')
        for status, labels in shown
        for state in ("completed", "failed", "cancelled", "expired")
    ]
    return [
        Family("schedo_schedule_runs_ended_total", "counter", "Ended runs of schedules.", ended),
        _gauge(
            "schedo_schedule_last_completion_timestamp_seconds",
            "When the last run that completed ended; no value: none has.",
            ((each.history.last_completed_at, labels) for each, labels in shown),
        ),
        _gauge(
            "schedo_schedule_created_timestamp_seconds",
            "When the schedule was created.",
            ((each.created_at, labels) for each, labels in shown),
        ),
        Family(
            "schedo_schedule_failed_in_row",
            "gauge",
            "Runs that failed since the last one that completed.",
            [Sample(each.history.failed_in_row, labels) for each, labels in shown],
        ),
        Family(
            "schedo_schedule_paused",
            "gauge",
            "Whether the schedule is paused.",
            [Sample(int(each.is_paused), labels) for each, labels in shown],
        ),
        Family(
            "schedo_schedules_beyond_metrics",
            "gauge",
            f"Whether there are more than {SCHEDULES_MEASURED_MAX} schedules: those that were"
            " created last have no series.",
            [Sample(int(len(found) > SCHEDULES_MEASURED_MAX))],
        ),
    ]


def _gauge(name: str, text: str, instants: Iterable[tuple[int | None, str]]) -> Family:
    samples = [Sample(at / SECOND, labels) for at, labels in instants if at is not None]
    return Family(name, "gauge", text, samples)
