"""The conditions of SQL that find schedules by their health; each database takes them."""

from __future__ import annotations

from collections.abc import Mapping

from schedo.core.schedule_filter import Health

FAILS = "EXISTS (SELECT 1 FROM run_history WHERE schedule_id = schedule.id AND failed_in_row > 0)"
IS_PAUSED = "schedule.paused = 1"
HAS_ENDED = "schedule.paused = 0 AND schedule.next_fire_at IS NULL"
_FIRES = "schedule.paused = 0 AND schedule.next_fire_at IS NOT NULL"


def is_well(is_overdue: str) -> tuple[str, ...]:
    """Return the conditions of a schedule that is neither overdue nor failing.

    is_overdue: the condition of an overdue one, which depends on how the database takes a list.
    """
    return f"NOT {is_overdue}", f"NOT {FAILS}"


def health_conditions(is_overdue: str) -> Mapping[Health, tuple[str, ...]]:
    """Return the conditions of each health; is_overdue as for is_well."""
    well = is_well(is_overdue)
    return {
        Health.OVERDUE: (is_overdue,),
        Health.FAILING: (FAILS, f"NOT {is_overdue}"),
        Health.PAUSED: (IS_PAUSED, *well),
        Health.ENDED: (HAS_ENDED, *well),
        Health.OK: (_FIRES, *well),
    }
