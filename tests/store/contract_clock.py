"""Claims about instants that count elapsed time when the clock is set."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from schedo.core.changes import Changes
from schedo.core.expectations import Expectation
from schedo.core.ids import ID_MAX, first_id
from schedo.core.limits import HOUR, MINUTE
from schedo.core.loads import LoadExpired, LoadJob, LoadSchedules, LoadTimers, PromoteDue
from schedo.core.model import (
    Decision,
    DecisionRecord,
    Expect,
    Job,
    Rule,
    Schedule,
    ScheduleSpec,
    Trigger,
)
from schedo.core.paged_index import START
from schedo.core.states import State
from schedo.errors import StoreError
from schedo.store.base import ClockMark, Store
from tests.factories import make_job, make_schedule
from tests.store.contract_bulk import PLAIN, of_operations
from tests.store.steps import Claims, counted, ids, of_jobs, of_schedules, put

AT = 1_000 * HOUR
STEPS = pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])


def waiting(job_id: int, due_at: int, *, elapsed: bool) -> Job:
    return make_job(id=job_id, state=State.SCHEDULED, due_at=due_at, due_elapsed=elapsed)


def expectation(ident: int, rule: Rule) -> Expectation:
    made = Expectation(ident, f"e{ident}", True, rule, Expect(within_us=MINUTE), AT, AT, AT, AT)
    made.early = (AT + 1,)
    return made


def interval(schedule_id: int, next_fire_at: int, **rule: int) -> Schedule:
    every = Rule(every_us=MINUTE, **rule)  # type: ignore[arg-type]
    base = make_schedule(id=schedule_id, name=f"s{schedule_id}", next_fire_at=next_fire_at)
    base.spec = ScheduleSpec(name=base.name, rule=every, job=base.spec.job)
    base.evaluated_through = AT
    return base


class ClockClaims(Claims):
    @STEPS
    async def test_the_instants_of_an_intervals_expectation_move_with_the_offset(
        self, store: Store, step: int
    ) -> None:
        elapsed = expectation(1, Rule(every_us=MINUTE))
        wall = expectation(2, Rule(cron="* * * * *"))
        await store.commit(Changes(expectations={1: elapsed, 2: wall}))

        await store.save_clock(ClockMark(offset_us=step))
        moved, fixed = (await store.snapshot()).expectations

        assert (moved.through, moved.early, moved.phase_us) == (AT + step, (AT + step + 1,), step)
        assert (fixed.through, fixed.early, fixed.phase_us) == (AT, (AT + 1,), 0)

        await store.commit(Changes(expectations={1: moved}))
        assert (await store.snapshot()).expectations[0] == moved

    @STEPS
    async def test_instants_on_the_elapsed_timeline_move_with_the_offset(
        self, store: Store, step: int
    ) -> None:
        counting = make_job(
            id=1,
            state=State.RETRYING,
            due_at=AT,
            due_elapsed=True,
            expires_at=AT + MINUTE,
            expires_elapsed=True,
        )
        await put(store, counting, waiting(2, AT, elapsed=False))

        await store.save_clock(ClockMark(offset_us=step))

        moved, fixed = [await store.load(LoadJob(job_id)) for job_id in (1, 2)]
        assert moved is not None
        assert fixed is not None
        assert (moved.due_at, moved.expires_at, fixed.due_at) == (
            AT + step,
            AT + MINUTE + step,
            AT,
        )

    @STEPS
    @pytest.mark.parametrize("limit", [1, 2, 3, 9])
    async def test_timers_of_both_timelines_load_in_one_order(
        self, store: Store, step: int, limit: int
    ) -> None:
        jobs = [waiting(2 * n + 1, AT + n * HOUR, elapsed=True) for n in range(4)]
        jobs += [waiting(2 * n + 2, AT + n * HOUR, elapsed=False) for n in range(4)]
        await put(store, *jobs)
        await store.save_clock(ClockMark(offset_us=step))

        found: list[Job] = []
        after = START
        while page := await store.load(LoadTimers(after, limit)):
            found += page
            after = (page[-1].due_at, page[-1].id)

        order = [(job.due_at, job.id) for job in found]
        assert order == sorted(order)
        assert len(order) == 8

    @STEPS
    async def test_writes_after_a_step_use_the_same_timeline(self, store: Store, step: int) -> None:
        await store.save_clock(ClockMark(offset_us=step))
        await put(store, waiting(1, AT, elapsed=True))
        loaded = await store.load(LoadJob(1))
        assert loaded is not None
        loaded.due_at += MINUTE
        await put(store, loaded)

        await store.save_clock(ClockMark(offset_us=0))

        found = await store.load(LoadJob(1))
        assert found is not None
        assert found.due_at == AT + MINUTE - step

    @STEPS
    async def test_jobs_expire_by_the_timeline_of_their_expiry(
        self, store: Store, step: int
    ) -> None:
        await put(
            store,
            make_job(id=1, state=State.QUEUED, expires_at=AT, expires_elapsed=True),
            make_job(id=2, state=State.QUEUED, expires_at=AT),
        )
        await store.save_clock(ClockMark(offset_us=step))

        expired = ids(await store.load(LoadExpired(AT, 9)))
        assert sorted(expired) == ([2] if step > 0 else [1, 2])
        assert sorted(ids(await store.load(LoadExpired(AT + max(step, 0), 9)))) == [1, 2]

    @STEPS
    async def test_overdue_jobs_of_both_timelines_are_queued(self, store: Store, step: int) -> None:
        await put(store, waiting(1, AT, elapsed=True), waiting(2, AT, elapsed=False))
        await store.save_clock(ClockMark(offset_us=step))

        promoted = await store.load(PromoteDue((-1, ID_MAX), AT - 1, 9))

        assert [job_id for _, (_, job_id) in promoted.jobs] == ([] if step > 0 else [1])

    @STEPS
    @pytest.mark.parametrize("elapsed", [True, False])
    @pytest.mark.parametrize("created_with", [0, HOUR])
    async def test_a_job_that_becomes_due_has_the_rank_of_its_instant_on_the_elapsed_timeline(
        self, store: Store, step: int, elapsed: bool, created_with: int
    ) -> None:
        await store.save_clock(ClockMark(offset_us=HOUR))
        timed = waiting(1, AT, elapsed=elapsed)
        timed.rank, timed.offset_us = AT - HOUR, created_with
        await put(store, timed)
        await store.save_clock(ClockMark(offset_us=HOUR + step))

        loaded = await store.load(LoadJob(1))
        promoted = await store.load(PromoteDue((-1, ID_MAX), AT + 9 * HOUR, 9))
        queued = await store.load(LoadJob(1))

        rank = AT - HOUR - (0 if elapsed else step)
        assert (loaded and loaded.rank, queued and queued.rank) == (rank, rank)
        assert [pair for _, pair in promoted.jobs] == [(rank, 1)]

    @STEPS
    async def test_a_clock_step_moves_interval_schedules_and_no_others(
        self, store: Store, step: int
    ) -> None:
        cron = make_schedule(id=2, name="cron", rule=Rule(cron="0 * * * *"), next_fire_at=AT)
        later = interval(3, AT + 5 * HOUR, start_at=AT + 5 * HOUR)
        await store.commit(of_schedules(interval(1, AT), cron, later))

        await store.save_clock(ClockMark(offset_us=step))

        found = {each.id: each for each in await store.load(LoadSchedules(START, 9))}
        moved = found[1]
        assert (moved.next_fire_at, moved.evaluated_through, moved.phase_us) == (
            AT + step,
            AT + step,
            step,
        )
        assert (found[2].next_fire_at, found[3].next_fire_at) == (AT, AT + 5 * HOUR)
        order = [(each.next_fire_at, each.id) for each in found.values()]
        assert order == sorted(order, key=lambda pair: (pair[0] or 0, pair[1]))

    async def test_an_instant_has_one_run_under_one_offset(self, store: Store) -> None:
        def run(job_id: int, offset_us: int) -> Job:
            return make_job(
                id=job_id,
                schedule_id=1,
                scheduled_for=AT,
                trigger=Trigger.SCHEDULE,
                offset_us=offset_us,
            )

        await put(store, run(1, 0), run(2, HOUR))

        with pytest.raises(StoreError):
            await put(store, run(3, HOUR))

    async def test_the_clock_mark_survives_a_reopen(self, store: Store) -> None:
        mark = ClockMark(offset_us=-HOUR, base_us=7, boot=5, seen_at=AT)
        await put(store, waiting(1, AT, elapsed=True))
        await store.save_clock(mark)
        assert (await store.snapshot()).clock == mark

        opening = await self.reopen(store)

        assert opening.clock == mark
        found = await store.load(LoadJob(1))
        assert found is not None
        assert found.due_at == AT - HOUR

    async def test_the_newest_instant_is_that_of_the_newest_job(self, store: Store) -> None:
        await put(store, make_job(id=1, created_at=AT, offset_us=HOUR))

        assert (await store.snapshot()).clock.seen_at == AT - HOUR

    async def test_jobs_are_counted_whatever_their_timeline(self, store: Store) -> None:
        await put(store, waiting(1, AT, elapsed=True), waiting(2, AT, elapsed=False))

        assert await counted(store) == {"default": {"scheduled": 2}}

    @pytest.mark.parametrize(
        ("made", "deleted"),
        [
            (of_jobs(make_job(id=7_000)), Changes(jobs_deleted=[7_000])),
            (of_schedules(make_schedule(id=7_000)), Changes(schedules_deleted=[7_000])),
            (
                Changes(expectations={7_000: expectation(7_000, Rule(every_us=7))}),
                Changes(expectations={7_000: None}),
            ),
            (
                of_operations(msgspec.structs.replace(PLAIN, id=7_000)),
                Changes(bulk_operations={7_000: None}),
            ),
        ],
        ids=["job", "schedule", "expectation", "operation"],
    )
    async def test_the_id_of_what_is_deleted_is_not_used_again(
        self, store: Store, made: Changes, deleted: Changes
    ) -> None:
        await store.commit(made)
        await store.commit(deleted)
        await put(store, make_job(id=6_000))

        assert (await self.reopen(store)).last_id >= 7_000

    async def test_the_last_id_is_not_older_than_the_newest_decision(self, store: Store) -> None:
        skipped = DecisionRecord(1, 40, 50, Decision.SKIPPED_OVERLAP, None)
        await store.commit(Changes(decisions=[skipped]))
        await store.commit(Changes(decisions=[dataclasses.replace(skipped, decided_at=30)]))

        assert (await self.reopen(store)).last_id == first_id(50)
