"""Claims about ended jobs with a time of their own, and about the last runs of schedules."""

from __future__ import annotations

from typing import Any

from schedo.core.changes import AttemptRecord, Changes, Output
from schedo.core.keep import NOT_KEPT
from schedo.core.leases import CapturedOutput
from schedo.core.loads import LoadJob, LoadUniqueHolders
from schedo.core.model import Job, Options
from schedo.core.run_history import EndedRun
from schedo.core.states import State
from schedo.store.base import Retention, Store
from tests.factories import make_job, make_schedule
from tests.store.steps import LARGE, MINUTE, Claims, listed, of_jobs, of_schedules, put

NEVER = Retention(*(1 << 60,) * 4)
AT_ONCE = Retention(*(0,) * 4)


def ended(job_id: int, **fields: Any) -> Job:
    """Return a new job that has completed at the instant of its id."""
    return make_job(**{"id": job_id, "state": State.COMPLETED, "ended_at": job_id} | fields)


async def pruned(store: Store, now: int, retention: Retention) -> list[int]:
    """Prune all that can be pruned; return the jobs that are left, newest first."""
    await listed(store)  # what is in a write buffer is not pruned
    while await store.prune(now, retention, 100):
        pass
    return await listed(store)


async def end_runs(store: Store, *runs: Job) -> None:
    """Commit new runs that have ended."""
    ends = [
        EndedRun(run.schedule_id or 0, run.id, run.state, run.ended_at or 0, 1, None)
        for run in runs
    ]
    await store.commit(Changes(jobs={run.id: run for run in runs}, ended_runs=ends))


class KeepClaims(Claims):
    async def test_a_job_that_is_not_kept_is_dropped_when_it_ends(self, store: Store) -> None:
        job = make_job(
            id=7, payload=LARGE, options=Options(tags=("red",)), unique_key="k", due_at=5
        )
        await put(store, job, make_job(id=8))
        capture = CapturedOutput("stdout", b"hello", b"", 5)
        failed = AttemptRecord(7, 1, 1, "w", 1, 2, "failed", None)
        await store.commit(
            Changes(jobs={7: job}, attempts=[failed], outputs=[Output(7, 1, capture)])
        )

        job.state, job.ended_at, job.kept_until = State.COMPLETED, 9, NOT_KEPT
        await store.commit(
            Changes(jobs={7: job}, attempts=[failed], outputs=[Output(7, 2, capture)])
        )

        assert await store.get_job(7) is None
        assert await store.load(LoadJob(7)) is None
        assert await store.load(LoadUniqueHolders(("k",))) == {}
        assert await listed(store) == [8]
        assert await listed(store, tag="red") == []
        assert await store.list_attempts(7) == []
        assert await store.list_output_sizes(7) == []

    async def test_a_job_that_ends_in_its_first_commit_may_be_dropped(self, store: Store) -> None:
        options = Options(tags=("red",))
        job = ended(7, payload=LARGE, options=options, kept_until=NOT_KEPT, unique_key="k")
        await put(store, job, ended(8))

        assert await listed(store) == [8]
        assert await listed(store, tag="red") == []

    async def test_a_dropped_job_may_change_once_more(self, store: Store) -> None:
        job = make_job(id=7, unique_key="k")
        await put(store, job)
        job.state, job.ended_at, job.kept_until = State.COMPLETED, 9, NOT_KEPT
        await store.commit(of_jobs(job))
        await listed(store)

        job.unique_key = None
        await put(store, make_job(id=8, unique_key="k"))
        await store.commit(of_jobs(job))

        assert await listed(store) == [8]

    async def test_the_id_of_a_dropped_job_is_not_used_again(self, store: Store) -> None:
        job = make_job(id=7_000)
        await put(store, job)
        job.state, job.ended_at, job.kept_until = State.COMPLETED, 9, NOT_KEPT
        await store.commit(of_jobs(job))

        snapshot = await self.reopen(store)

        assert snapshot.last_id >= 7_000
        assert await listed(store) == []

    async def test_a_job_with_a_time_of_its_own_is_kept_until_then(self, store: Store) -> None:
        await put(store, ended(1, kept_until=50), ended(2, kept_until=70), ended(3))

        assert await pruned(store, 49, NEVER) == [3, 2, 1]
        assert await pruned(store, 50, NEVER) == [3, 2]
        assert await pruned(store, 60, AT_ONCE) == [2]

    async def test_a_job_that_is_queued_again_has_no_time(self, store: Store) -> None:
        job = ended(1, kept_until=50)
        await put(store, job)
        job.state, job.ended_at, job.kept_until = State.QUEUED, None, None
        await store.commit(of_jobs(job))

        assert await pruned(store, 60, AT_ONCE) == [1]

    async def test_the_last_runs_of_a_schedule_are_kept(self, store: Store) -> None:
        await store.commit(of_schedules(make_schedule(id=1), make_schedule(id=2, name="other")))
        runs = [ended(n, schedule_id=1, scheduled_for=n) for n in range(10, 40)]
        await end_runs(store, *runs, ended(50, schedule_id=2), ended(60))
        retention = Retention(0, 0, 0, 0, schedule_runs=3)

        assert await pruned(store, 5 * MINUTE, retention) == [50, 39, 38, 37]

        await end_runs(store, ended(70, schedule_id=1), ended(71, schedule_id=1))
        assert await pruned(store, 5 * MINUTE, retention) == [71, 70, 50, 39]

    async def test_a_run_that_is_not_one_of_the_last_stays_for_its_retention(
        self, store: Store
    ) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))
        runs = [ended(n, schedule_id=1, scheduled_for=n) for n in (10, 11)]
        failed = ended(9, schedule_id=1, scheduled_for=9, state=State.FAILED)
        await end_runs(store, failed, *runs)
        retention = Retention(0, 0, failed_us=10 * MINUTE, schedule_runs=1)

        assert await pruned(store, 5 * MINUTE, retention) == [11, 9]
        assert await pruned(store, 15 * MINUTE, retention) == [11]

    async def test_a_run_with_a_time_of_its_own_is_not_kept_for_its_schedule(
        self, store: Store
    ) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))
        await end_runs(store, ended(10, schedule_id=1, kept_until=MINUTE))

        assert await pruned(store, 5 * MINUTE, NEVER) == []

    async def test_the_runs_of_a_deleted_schedule_are_kept_like_other_jobs(
        self, store: Store
    ) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))
        running = make_job(id=12, schedule_id=1, state=State.RUNNING, worker="w", attempt=1)
        await end_runs(store, ended(10, schedule_id=1), ended(11, schedule_id=1))
        await put(store, running)
        assert await pruned(store, 5 * MINUTE, AT_ONCE) == [12, 11, 10]

        await store.commit(Changes(schedules_deleted=[1]))
        assert await pruned(store, 7 * MINUTE, AT_ONCE) == [12]

        running.state, running.ended_at = State.COMPLETED, 7 * MINUTE
        end = EndedRun(1, 12, State.COMPLETED, 7 * MINUTE, 1, None)
        await store.commit(Changes(jobs={12: running}, ended_runs=[end]))
        assert await pruned(store, 9 * MINUTE, AT_ONCE) == []
