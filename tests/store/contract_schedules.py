"""Claims about schedules, their decisions, queues and stored answers."""

from __future__ import annotations

import pytest

from schedo.core.changes import Changes, IdempotencyRecord
from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.expectations import Expectation, ExpectationState
from schedo.core.limits import (
    DECISIONS_KEPT,
    DECISIONS_KEPT_MIN,
    DECISIONS_KEPT_US,
    SCHEDULE_PAGE_PAYLOADS_BYTES_MAX,
)
from schedo.core.loads import LoadBlocked, LoadSchedule, LoadSchedules
from schedo.core.model import (
    Catchup,
    Decision,
    DecisionRecord,
    Expect,
    JobSpec,
    OnFailure,
    Options,
    Overlap,
    Pause,
    PauseScope,
    Queue,
    Retry,
    Rule,
    Schedule,
    ScheduleSpec,
)
from schedo.core.paged_index import START
from schedo.core.queue_pause import QueuePause
from schedo.core.states import State
from schedo.errors import StoreError
from schedo.store.base import Retention, Store
from tests.factories import make_job, make_schedule
from tests.store.steps import Claims, ids, of_schedules, put

FULL = Schedule(
    id=3,
    spec=ScheduleSpec(
        name="nightly",
        rule=Rule(cron="0 3 * * *", tz="Europe/Paris", fold="both", jitter_us=5, end_at=9),
        job=JobSpec(
            task="shell",
            payload=b'{"command":"\xc3\xbc"}',
            options=Options(retry=Retry(max_attempts=3), meta={"a": 1}, tags=("x",)),
        ),
        cron_source="@daily",
        overlap=Overlap.BUFFER_ONE,
        catchup=Catchup.ALL,
        catchup_window_us=1,
        catchup_max=2,
    ),
    created_at=1,
    updated_at=2,
    evaluated_through=3,
    next_fire_at=4,
    paused=True,
    note="holiday",
    fired=5,
    missed=6,
    overlap_skipped=7,
    buffered=8,
    last_fired_at=9,
    last_job_id=10,
    owner="code:shop:app",
    declared=ScheduleSpec("nightly", Rule(cron="0 4 * * *"), JobSpec("shell")),
)


def make_decision(number: int, schedule_id: int = 1) -> DecisionRecord:
    return DecisionRecord(schedule_id, number, number + 1, Decision.FIRED, number + 2)


async def decided(store: Store) -> list[int]:
    """Return the instants of all decisions of schedule 1, newest first."""
    page = await store.list_decisions(1, 2 * DECISIONS_KEPT)
    return [decision.scheduled_for for decision in page.decisions]


FINGERPRINT = b"\x00\xff"


def make_answer(scope: str, created_at: int = 0, body: bytes = b"{}") -> IdempotencyRecord:
    return IdempotencyRecord(scope, FINGERPRINT, 201, body, created_at)


class ScheduleClaims(Claims):
    async def test_a_schedule_is_read_as_it_was_written(self, store: Store) -> None:
        await store.commit(of_schedules(FULL, make_schedule(id=1)))

        assert await store.get_schedule("nightly") == FULL
        assert await store.load(LoadSchedule("nightly")) == FULL
        assert await store.load(LoadSchedule(3)) == FULL
        assert await store.load(LoadSchedule("report")) == make_schedule(id=1)

    async def test_an_unknown_schedule_is_not_found(self, store: Store) -> None:
        assert await store.get_schedule("nightly") is None
        assert await store.load(LoadSchedule("nightly")) is None
        assert await store.load(LoadSchedule(3)) is None

    async def test_a_schedule_is_changed_in_place(self, store: Store) -> None:
        await store.commit(of_schedules(make_schedule(id=3, name="old")))

        await store.commit(of_schedules(FULL))

        assert (await store.list_schedules(None, 9)).schedules == [FULL]

    async def test_the_schedules_of_an_owner_are_listed_by_name(self, store: Store) -> None:
        await store.commit(
            of_schedules(
                make_schedule(id=1, name="b", owner="file:x"),
                make_schedule(id=2, name="c"),
                make_schedule(id=3, name="a", owner="file:x"),
            )
        )

        assert await store.list_owned("file:x") == ["a", "b"]
        assert await store.list_owned("file:y") == []

    async def test_two_schedules_cannot_have_one_name(self, store: Store) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))

        with pytest.raises(StoreError):
            await store.commit(of_schedules(make_schedule(id=2)))

        assert await store.load(LoadSchedule(2)) is None

    async def test_deleting_a_schedule_frees_its_name_and_keeps_its_jobs(
        self, store: Store
    ) -> None:
        await store.commit(of_schedules(make_schedule(id=1)))
        await store.commit(Changes(decisions=[make_decision(1)]))
        await put(store, make_job(id=5, schedule_id=1))

        await store.commit(Changes(schedules={2: make_schedule(id=2)}, schedules_deleted=[1]))

        assert ids((await store.list_schedules(None, 9)).schedules) == [2]
        assert await decided(store) == []
        assert await store.get_job(5) is not None

    async def test_a_delete_wins_over_a_change_in_the_same_commit(self, store: Store) -> None:
        await store.commit(
            Changes(
                schedules={1: make_schedule(id=1)},
                schedules_deleted=[1],
                decisions=[make_decision(1)],
            )
        )

        assert await store.load(LoadSchedule(1)) is None
        assert await decided(store) == []

    async def test_schedules_load_in_order_of_their_next_fire(self, store: Store) -> None:
        await store.commit(
            of_schedules(
                make_schedule(id=1, name="a", next_fire_at=30),
                make_schedule(id=2, name="b", next_fire_at=10),
                make_schedule(id=3, name="c", next_fire_at=30),
                make_schedule(id=4, name="d", next_fire_at=None),
                make_schedule(id=5, name="e", next_fire_at=20, paused=True),
            )
        )

        assert ids(await store.load(LoadSchedules(START, 2))) == [2, 1]
        assert ids(await store.load(LoadSchedules((30, 1), 9))) == [3]

    async def test_a_page_of_schedules_ends_when_its_payloads_are_large(self, store: Store) -> None:
        job = JobSpec("shell", b"1" * (SCHEDULE_PAGE_PAYLOADS_BYTES_MAX // 2))
        for number in range(1, 6):
            schedule = make_schedule(id=number, name=f"s{number}", job=job, next_fire_at=number)
            await store.commit(of_schedules(schedule))

        assert ids(await store.load(LoadSchedules(START, 9))) == [1, 2]
        assert ids(await store.load(LoadSchedules((4, 4), 9))) == [5]

    async def test_a_page_of_blocked_runs_ends_when_the_payloads_of_its_schedules_are_large(
        self, store: Store
    ) -> None:
        job = JobSpec("shell", b"1" * (SCHEDULE_PAGE_PAYLOADS_BYTES_MAX // 2))
        for number in range(1, 6):
            schedule = make_schedule(id=number, name=f"s{number}", job=job)
            await store.commit(of_schedules(schedule))
            await put(store, make_job(id=10 + number, schedule_id=number, state=State.BLOCKED))

        first = await store.load(LoadBlocked(0, 9))
        last = await store.load(LoadBlocked(14, 9))

        assert [run.job_id for run in first] == [11, 12]
        assert LoadBlocked(0, 9).is_full(first)
        assert [run.job_id for run in last] == [15]
        assert not LoadBlocked(14, 9).is_full(last)

    async def test_a_loaded_schedule_lists_its_unfinished_jobs(self, store: Store) -> None:
        await store.commit(of_schedules(make_schedule(id=1), make_schedule(id=2, name="other")))
        await put(store, *(make_job(id=n, state=s, schedule_id=1) for n, s in enumerate(State, 1)))
        await put(store, make_job(id=20, schedule_id=2), make_job(id=21))

        # scheduled, blocked, queued, running and retrying are the first five states
        for found in (
            await store.load(LoadSchedule(1)),
            (await store.load(LoadSchedules(START, 1)))[0],
        ):
            assert found is not None
            assert (found.active, found.blocked) == ([1, 2, 3, 4, 5], 2)

    async def test_blocked_runs_are_loaded_in_pages_with_their_schedules(
        self, store: Store
    ) -> None:
        blocked = {"state": State.BLOCKED}
        await store.commit(of_schedules(make_schedule(id=1), make_schedule(id=2, name="other")))
        await put(
            store,
            make_job(id=3, schedule_id=1),
            make_job(id=4, schedule_id=1, **blocked),
            make_job(id=5, schedule_id=2, **blocked),
            make_job(id=6, schedule_id=9, **blocked),  # its schedule is deleted
            make_job(id=7, schedule_id=2, **blocked),
        )

        first = await store.load(LoadBlocked(0, 2))
        second = await store.load(LoadBlocked(5, 9))

        assert [run[:2] for run in first + second] == [(4, 1), (5, 2), (6, 9), (7, 2)]
        found = first[0].schedule
        assert found is not None
        assert (found.name, found.active, found.blocked) == ("report", [3, 4], 4)
        assert first[1].schedule is not None
        assert first[1].schedule.blocked == 7  # the latest
        assert second[0].schedule is None
        assert await store.load(LoadBlocked(7, 9)) == []

    async def test_a_loaded_schedule_has_its_latest_blocked_run_beyond_the_listed_jobs(
        self, store: Store
    ) -> None:
        await store.commit(of_schedules(make_schedule(id=1, overlap=Overlap.ALLOW)))
        await put(store, *(make_job(id=i, schedule_id=1) for i in range(1, 1_010)))
        await put(store, make_job(id=2_000, schedule_id=1, state=State.BLOCKED))

        found = await store.load(LoadSchedule(1))

        assert found is not None
        assert (len(found.active), found.blocked) == (1_000, 2_000)

    async def test_a_loaded_schedule_lists_a_bounded_number_of_unfinished_jobs(
        self, store: Store
    ) -> None:
        await store.commit(of_schedules(make_schedule(id=1, overlap=Overlap.ALLOW)))
        await put(store, *(make_job(id=i, schedule_id=1) for i in range(1, 1_010)))

        found = await store.load(LoadSchedule(1))
        assert found is not None
        assert found.active == list(range(1, 1_001))

    async def test_decisions_are_listed_newest_first(self, store: Store) -> None:
        skipped = DecisionRecord(1, 2, 3, Decision.SKIPPED_OVERLAP, None, 4)
        await store.commit(Changes(decisions=[make_decision(1), make_decision(1, schedule_id=2)]))
        await store.commit(Changes(decisions=[skipped, make_decision(9)]))

        newest_first = [make_decision(9), skipped, make_decision(1)]
        assert await store.list_decisions(1, 9) == (newest_first, None)
        assert await store.list_decisions(1, 3) == (newest_first, None)
        assert await store.list_decisions(2, 9) == ([make_decision(1, schedule_id=2)], None)
        first = await store.list_decisions(1, 1)
        second = await store.list_decisions(1, 9, first.before)
        assert (first.decisions, second) == (newest_first[:1], (newest_first[1:], None))

    async def test_a_schedule_keeps_its_last_thousand_decisions(self, store: Store) -> None:
        for first in range(1, 2_000, 400):
            decisions = [make_decision(number) for number in range(first, first + 400)]
            await store.commit(Changes(decisions=decisions))

        kept = await decided(store)
        assert kept == [*range(2_000, 2_000 - DECISIONS_KEPT, -1)]

    async def test_old_decisions_go_two_with_each_commit_down_to_a_hundred(
        self, store: Store
    ) -> None:
        old = [make_decision(number) for number in range(1, 106)]
        await store.commit(Changes(decisions=old))
        new = DECISIONS_KEPT_US + 200

        for extra in range(3):
            await store.commit(Changes(decisions=[make_decision(new + extra)]))
        assert await decided(store) == [new + 2, new + 1, new, *range(105, 6, -1)]
        for extra in range(3, 9):
            await store.commit(Changes(decisions=[make_decision(new + extra)]))

        kept = await decided(store)
        assert len(kept) == DECISIONS_KEPT_MIN
        assert kept[0] == new + 8

    async def test_decisions_that_are_not_old_stay(self, store: Store) -> None:
        for number in range(150):
            at = number * (DECISIONS_KEPT_US // 149)
            await store.commit(Changes(decisions=[make_decision(at)]))

        assert len(await decided(store)) == 150

    async def test_queues_are_listed_by_name_as_last_set(self, store: Store) -> None:
        pause = QueuePause(7, "moving", 9)
        mail = Queue("mail", 3, paused=True, weight=2, priority_step_us=5, pause=pause)
        await store.commit(Changes(queues={"mail": Queue("mail"), "api": Queue("api")}))
        await store.commit(Changes(queues={"mail": mail}))

        assert (await store.snapshot()).queues == [Queue("api"), mail]

    async def test_an_idempotency_record_is_found_by_its_scope(self, store: Store) -> None:
        await store.commit(Changes(idempotency_records=[make_answer("a"), make_answer("b")]))
        await store.commit(
            Changes(idempotency_records=[make_answer("b", created_at=5, body=b"[]")])
        )

        assert await store.find_idempotency_record("a", FINGERPRINT) == make_answer("a")
        assert await store.find_idempotency_record("b", FINGERPRINT) == make_answer(
            "b", created_at=5, body=b"[]"
        )
        assert await store.find_idempotency_record("c", FINGERPRINT) is None

    async def test_the_body_of_an_idempotency_record_is_read_for_its_fingerprint_only(
        self, store: Store
    ) -> None:
        await store.commit(Changes(idempotency_records=[make_answer("a", body=b"1" * 9_000)]))

        assert await store.find_idempotency_record("a", b"other") == make_answer("a", body=b"")

    async def test_old_idempotency_records_are_pruned(self, store: Store) -> None:
        await store.commit(
            Changes(idempotency_records=[make_answer("old", 0), make_answer("new", 1)])
        )

        assert await store.prune(10, Retention(idempotency_us=10), 9) == 1
        assert await store.find_idempotency_record("old", FINGERPRINT) is None
        assert await store.find_idempotency_record("new", FINGERPRINT) is not None

    async def test_every_field_of_an_expectation_is_in_the_snapshot_until_it_is_deleted(
        self, store: Store
    ) -> None:
        alert = OnFailure("alert", b'{"a":1}', options=Options(tags=("x",)))
        first = Expectation(
            5,
            "nightly",
            True,
            Rule(cron="0 1 * * *", tz="Europe/Paris"),
            Expect(9, 8, alert, OnFailure("fine")),
            created_at=1,
            updated_at=2,
            through=3,
            since=4,
            cron_source="@daily",
            state=ExpectationState.MISSED,
            missed=6,
            kept_at=7,
            long_job_id=8,
            phase_us=0,
            lag_us=9,
            lag_through=10,
            early=(11, 12),
        )
        second = Expectation(6, "laptop", False, Rule(every_us=7), Expect(1), 1, 1, 1, 1)
        await store.commit(Changes(expectations={5: first, 6: second}))
        both = await self.reopen(store)
        await store.commit(Changes(expectations={5: None, 6: second}))
        one = await self.reopen(store)

        assert both.expectations == [first, second]
        assert both.last_id >= 6
        assert one.expectations == [second]

    async def test_pauses_of_the_server_are_in_the_snapshot_until_they_end(
        self, store: Store
    ) -> None:
        starts, schedules = PauseScope
        first, second = Pause(starts, 5, "why", 9), Pause(schedules, 6)
        await store.commit(Changes(pauses={starts: first, schedules: second}))
        both = await self.reopen(store)
        await store.commit(Changes(pauses={starts: None, schedules: Pause(schedules, 7)}))
        one = await self.reopen(store)

        assert sorted(both.pauses, key=lambda pause: pause.since) == [first, second]
        assert one.pauses == [Pause(schedules, 7)]

    async def test_cordoned_workers_are_in_the_snapshot_until_they_are_uncordoned(
        self, store: Store
    ) -> None:
        far, near = CordonedWorker("far", 5), CordonedWorker("near", 6)
        await store.commit(Changes(cordons={"near": near, "far": far}))
        both = await self.reopen(store)
        await store.commit(Changes(cordons={"far": None, "near": CordonedWorker("near", 7)}))
        one = await self.reopen(store)

        assert both.cordons == [far, near]
        assert one.cordons == [CordonedWorker("near", 7)]
