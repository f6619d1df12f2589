"""The health of a schedule: the gravest thing about it."""

from __future__ import annotations

import pytest

from schedo.core.run_history import NO_RUNS, RunHistory
from schedo.core.schedule_filter import Health, health_of
from tests.factories import make_schedule

FAILS = RunHistory(failed_in_row=1)


@pytest.mark.parametrize(
    ("history", "is_overdue", "paused", "next_fire_at", "health"),
    [
        (FAILS, True, True, None, Health.OVERDUE),
        (FAILS, False, True, None, Health.FAILING),
        (NO_RUNS, False, True, None, Health.PAUSED),
        (NO_RUNS, False, False, None, Health.ENDED),
        (NO_RUNS, False, False, 5, Health.OK),
    ],
)
def test_the_gravest_thing_about_a_schedule_is_its_health(
    history: RunHistory, is_overdue: bool, paused: bool, next_fire_at: int | None, health: Health
) -> None:
    schedule = make_schedule(id=1, paused=paused, next_fire_at=next_fire_at)

    assert health_of(schedule, history, is_overdue=is_overdue) is health
