"""Claims about the histories of runs, and what monitoring reads of schedules."""

from __future__ import annotations

from typing import Any

from schedo.core.changes import Changes
from schedo.core.limits import LAST_RUNS_MAX
from schedo.core.model import Failure
from schedo.core.run_history import NO_RUNS, EndedRun, LastRun, RunHistory, ScheduleStatus
from schedo.core.states import State
from schedo.store.base import Store
from tests.factories import make_schedule
from tests.store.steps import Claims, of_schedules

FAILURE = Failure("exit-code", "3 \u2013 no space", exit_code=3)


def make_run(job_id: int, state: State = State.COMPLETED, **fields: Any) -> EndedRun:
    """Return the end of a run of schedule 1 at the instant of its id."""
    return EndedRun(1, job_id, state, job_id, 5, None, job_id - 1)._replace(**fields)


async def end(store: Store, *runs: EndedRun) -> None:
    await store.commit(Changes(ended_runs=[*runs]))


class HistoryClaims(Claims):
    async def test_a_history_has_the_ends_of_the_runs(self, store: Store) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))

        await end(store, make_run(10), make_run(11, State.FAILED, failure=FAILURE))
        await end(store, make_run(12, State.FAILED), make_run(13, State.CANCELLED))
        await end(store, make_run(14, State.EXPIRED, duration_us=None))
        await self.reopen(store)

        assert await store.get_histories([1]) == {
            1: RunHistory(
                completed=1,
                failed=2,
                cancelled=1,
                expired=1,
                failed_in_row=2,
                last_completed_at=10,
                last_failed_at=12,
                last_failed_job=12,
                last_failure=None,
                last_runs=(
                    LastRun(10, State.COMPLETED, 10, 5, 9),
                    LastRun(11, State.FAILED, 11, 5, 10),
                    LastRun(12, State.FAILED, 12, 5, 11),
                    LastRun(13, State.CANCELLED, 13, 5, 12),
                    LastRun(14, State.EXPIRED, 14, None, 13),
                ),
            )
        }

    async def test_a_completed_run_ends_the_failures_in_a_row_and_keeps_the_last_failure(
        self, store: Store
    ) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))

        await end(store, make_run(10, State.FAILED, failure=FAILURE), make_run(11))

        history = (await store.get_histories([1]))[1]
        assert (history.failed_in_row, history.failed, history.completed) == (0, 1, 1)
        assert (history.last_failed_at, history.last_failed_job) == (10, 10)
        assert history.last_failure == FAILURE

    async def test_a_history_has_the_last_runs_only(self, store: Store) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))

        for first in (1, 201):
            await end(store, *(make_run(number) for number in range(first, first + 150)))

        history = (await store.get_histories([1]))[1]
        assert history.completed == 300
        assert [run.job_id for run in history.last_runs] == [
            *range(351 - LAST_RUNS_MAX, 351),
        ]

    async def test_runs_of_several_schedules_may_end_in_one_commit(self, store: Store) -> None:
        schedules = [make_schedule(id=number, name=f"s{number}") for number in range(1, 16)]
        await store.commit(of_schedules(*schedules))

        await end(store, *(make_run(n, schedule_id=1 + n % 15) for n in range(45)))

        found = await store.get_histories([*range(1, 16), 99])
        assert {ident: history.completed for ident, history in found.items()} == dict.fromkeys(
            range(1, 16), 3
        )
        assert [run.job_id for run in found[1].last_runs] == [0, 15, 30]

    async def test_a_schedule_may_be_created_when_its_run_ends(self, store: Store) -> None:
        await store.commit(Changes(schedules={1: make_schedule(id=1)}, ended_runs=[make_run(10)]))

        assert (await store.get_histories([1]))[1].completed == 1

    async def test_a_deleted_schedule_has_no_history(self, store: Store) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))
        await end(store, make_run(10))

        await store.commit(Changes(schedules_deleted=[1], ended_runs=[make_run(11)]))
        await end(store, make_run(12))

        assert await store.get_histories([1]) == {}

    async def test_monitoring_reads_schedules_in_the_order_of_their_creation(
        self, store: Store
    ) -> None:
        await store.commit(
            of_schedules(
                make_schedule(id=1, name="b", created_at=7, paused=True),
                make_schedule(id=2, name="a"),
            )
        )
        await end(store, make_run(10))
        history = (await store.get_histories([1]))[1]

        first, second = await store.list_schedule_statuses(0, 9)

        assert first == ScheduleStatus(1, "b", 7, True, history)
        assert second == ScheduleStatus(2, "a", 0, False, NO_RUNS)
        assert await store.list_schedule_statuses(0, 1) == [first]
        assert await store.list_schedule_statuses(1, 9) == [second]
