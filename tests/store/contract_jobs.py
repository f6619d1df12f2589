"""Claims about opening a store, committing jobs and loading them again."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from schedo.core.changes import Changes
from schedo.core.loads import (
    LoadExpired,
    LoadJob,
    LoadReady,
    LoadTimers,
    LoadUniqueHolders,
    Promoted,
    PromoteDue,
)
from schedo.core.model import Failure, Job, Options, Queue, ReadyKey, Retry, Trigger, Unique
from schedo.core.paged_index import START
from schedo.core.requirements import Condition, Requirements
from schedo.core.states import State
from schedo.errors import NotFound, StoreError
from schedo.store.base import RUNNING_PAGE, Store
from tests.factories import make_job, make_schedule
from tests.store.steps import LARGE, Claims, ids, listed, of_jobs, of_schedules, put

SCHEDULED, QUEUED, RUNNING = State.SCHEDULED, State.QUEUED, State.RUNNING
BLOCKED, RETRYING, COMPLETED = State.BLOCKED, State.RETRYING, State.COMPLETED
FULL = Job(
    id=512,
    task="email.send",
    queue="mail",
    payload=b'{"to":"ada"}',
    priority=-3,
    options=Options(
        retry=Retry(max_attempts=7, ladder_us=(1, 2)),
        timeout_us=5,
        at_most_once=True,
        unique=Unique("k", states=("queued",), on_conflict="reject"),
        tags=("a", "b"),
        meta={"n": [1, None, "ü"]},
        traceparent="00-1-2-03",
    ),
    state=State.FAILED,
    created_at=2,
    due_at=3,
    rank=-4,
    picked_at=5,
    started_at=6,
    ended_at=7,
    attempt=8,
    failures=9,
    losses=1,
    epoch=2,
    worker="local",
    schedule_id=11,
    scheduled_for=12,
    trigger=Trigger.CATCHUP,
    missed_count=13,
    unique_key="mail/k",
    expires_at=14,
    cancel_requested_at=15,
    result=b"[1]",
    failure=Failure("exit-code", "it said no", exit_code=1, traceback="…"),
)


def make_full(**overrides: Any) -> Job:
    return dataclasses.replace(FULL, **overrides)


class JobClaims(Claims):
    async def test_each_opening_raises_the_epoch(self, store: Store) -> None:
        second = await self.reopen(store)
        third = await self.reopen(store)

        assert (second.epoch, third.epoch) == (2, 3)

    async def test_a_new_store_is_empty_when_it_opens(self, store: Store) -> None:
        opening = await self.reopen(store)

        assert (opening.last_id, opening.queues, opening.ready_keys, opening.has_blocked) == (
            0,
            [],
            [],
            False,
        )

    async def test_open_returns_a_snapshot(self, store: Store) -> None:
        await put(
            store,
            make_job(id=1, queue="b", task="x"),
            make_job(id=2, queue="a", task="y"),
            make_job(id=3, queue="a", task="x"),
            make_job(id=4, queue="a", task="x"),
            make_job(id=5, queue="c", state=SCHEDULED),
            make_job(id=6, state=BLOCKED, schedule_id=9),
            make_job(id=7, queue="d", state=COMPLETED),
        )
        await store.commit(Changes(queues={"a": Queue("a", concurrency=2, paused=True)}))
        opening = await self.reopen(store)

        assert opening.last_id == 7
        assert opening.ready_keys == [ReadyKey("a", "x"), ReadyKey("a", "y"), ReadyKey("b", "x")]
        assert opening.has_blocked
        assert opening.queues == [Queue("a", concurrency=2, paused=True)]

    async def test_an_open_store_returns_a_snapshot(self, store: Store) -> None:
        await put(store, make_job(id=8))

        stock = await store.snapshot()

        assert (stock.last_id, stock.ready_keys) == (8, [ReadyKey("default", "email.send")])

    async def test_each_snapshot_has_a_new_epoch(self, store: Store) -> None:
        taken = [(await store.snapshot()).epoch for _ in range(2)]
        opening = await self.reopen(store)

        assert [*taken, opening.epoch] == [2, 3, 4]

    async def test_the_last_id_of_a_snapshot_may_belong_to_a_schedule(self, store: Store) -> None:
        await store.commit(of_schedules(make_schedule(id=900)))

        assert (await self.reopen(store)).last_id == 900

    async def test_a_second_close_changes_nothing(self, store: Store) -> None:
        await store.close()
        await store.close()

        with pytest.raises(StoreError, match="not open"):
            await store.commit(of_jobs(make_job()))
        with pytest.raises(StoreError, match="not open"):
            await store.get_job(1)

    async def test_a_job_is_read_as_it_was_written(self, store: Store) -> None:
        await put(store, make_full(is_new=True), make_job(id=1))

        stored = await store.get_job(512)
        assert stored == make_full()
        assert await store.load(LoadJob(512)) == make_full()
        plain = await store.load(LoadJob(1))
        assert plain is not None
        plain.is_new = True
        assert plain == make_job(id=1)

    async def test_an_update_writes_all_mutable_fields(self, store: Store) -> None:
        await put(store, make_job(id=512))
        changed = make_full(payload=None)

        await store.commit(of_jobs(changed))

        found = await store.get_job(512)
        assert found is not None
        assert (found.state, found.priority, found.failure) == (State.FAILED, -3, changed.failure)
        assert (found.due_at, found.rank, found.missed_count) == (3, -4, 13)
        assert (found.result, found.unique_key, found.expires_at) == (b"[1]", "mail/k", 14)
        assert found.payload == b"null"

    async def test_an_unknown_job_is_not_found(self, store: Store) -> None:
        assert await store.get_job(1) is None
        assert await store.load(LoadJob(1)) is None
        assert await store.load(LoadUniqueHolders(("k",))) == {}
        with pytest.raises(NotFound):
            await store.load_payload(1)

    async def test_the_caller_may_change_its_records_during_the_commit(self, store: Store) -> None:
        job = make_job(id=1, task="before")
        commit = asyncio.ensure_future(store.commit(of_jobs(job)))
        asyncio.get_running_loop().call_soon(setattr, job, "task", "after")
        await commit

        found = await store.get_job(1)
        assert found is not None
        assert found.task == "before"

    async def test_changing_a_loaded_record_changes_no_stored_one(self, store: Store) -> None:
        await put(store, make_job(id=1, task="as stored"))
        for found in (await store.load(LoadJob(1)), await store.get_job(1)):
            assert found is not None
            found.task = "changed"

        again = await store.load(LoadJob(1))
        assert again is not None
        assert again.task == "as stored"

    async def test_a_commit_that_fails_changes_nothing(self, store: Store) -> None:
        await put(store, make_job(id=1))
        done = make_job(id=1, is_new=False, state=COMPLETED)
        unknown = make_job(id=3, is_new=False)

        with pytest.raises(StoreError):
            await store.commit(
                Changes(jobs={1: done, 2: make_job(id=2), 3: unknown}, queues={"q": Queue("q")})
            )

        assert [
            job.state
            for job in await store.load(LoadReady(ReadyKey("default", "email.send"), START, 9))
        ] == [QUEUED]
        assert await store.get_job(2) is None
        assert (await store.snapshot()).queues == []

    async def test_the_store_takes_commits_after_one_that_failed(self, store: Store) -> None:
        await put(store, make_job(id=1))
        with pytest.raises(StoreError):
            await store.commit(of_jobs(make_job(id=1)))

        await put(store, make_job(id=2))

        assert await store.get_job(2) is not None

    async def test_a_unique_key_has_one_holder(self, store: Store) -> None:
        await put(store, make_job(id=1, unique_key="k"))

        with pytest.raises(StoreError):
            await store.commit(of_jobs(make_job(id=2, unique_key="k")))

        found = await store.load(LoadUniqueHolders(("k",)))
        assert found["k"].id == 1

    async def test_a_unique_key_passes_to_another_job_in_one_commit(self, store: Store) -> None:
        first, failed = make_job(id=1, unique_key="k"), make_job(id=2, state=State.FAILED)
        await put(store, first, failed)
        first.unique_key, first.state = None, COMPLETED
        failed.unique_key, failed.state = "k", QUEUED

        # The one that takes it comes first.
        await store.commit(of_jobs(failed, first))
        failed.unique_key = None
        await store.commit(of_jobs(make_job(id=3, unique_key="k"), failed))

        found = await store.load(LoadUniqueHolders(("j", "k")))
        assert {key: job.id for key, job in found.items()} == {"k": 3}

    async def test_a_schedule_has_one_job_for_an_instant(self, store: Store) -> None:
        fired = {"schedule_id": 7, "scheduled_for": 100, "trigger": Trigger.SCHEDULE}
        await put(store, make_job(id=1, **fired))

        with pytest.raises(StoreError):
            await store.commit(of_jobs(make_job(id=2, **fired)))
        with pytest.raises(StoreError):
            await store.commit(of_jobs(make_job(id=2, **fired | {"trigger": Trigger.CATCHUP})))
        await put(store, make_job(id=2, **fired | {"trigger": Trigger.MANUAL}))
        await put(store, make_job(id=3, **fired | {"scheduled_for": 200}))
        await put(store, make_job(id=4, **fired | {"schedule_id": 8}))

    async def test_timers_load_in_order_of_due_time_and_id(self, store: Store) -> None:
        await put(
            store,
            make_job(id=1, due_at=30, state=SCHEDULED),
            make_job(id=2, due_at=10, state=RETRYING),
            make_job(id=3, due_at=30, state=SCHEDULED),
            make_job(id=4, due_at=20, state=QUEUED),
            make_job(id=5, due_at=20, state=SCHEDULED),
        )

        assert ids(await store.load(LoadTimers(START, 2))) == [2, 5]
        assert ids(await store.load(LoadTimers((20, 5), 9))) == [1, 3]
        assert ids(await store.load(LoadTimers((30, 1), 9))) == [3]
        assert ids(await store.load(LoadTimers((30, 3), 9))) == []

    async def test_due_jobs_are_queued_in_pages_and_change_only_their_state(
        self, store: Store
    ) -> None:
        keyed = Options(unique=Unique("k"), tags=("red",))
        await put(
            store,
            make_job(id=1, due_at=10, rank=9, state=SCHEDULED, payload=LARGE),
            make_job(id=2, due_at=10, rank=8, state=RETRYING, queue="other", failures=2),
            make_job(id=3, due_at=10, rank=7, state=SCHEDULED, unique_key="k", options=keyed),
            make_job(id=4, due_at=20, rank=6, state=SCHEDULED, expires_at=15),
            make_job(id=5, due_at=30, state=SCHEDULED),
            make_job(id=6, due_at=10, state=RUNNING),
        )
        key, other = ReadyKey("default", "email.send"), ReadyKey("other", "email.send")
        before = {n: await store.get_job(n) for n in range(1, 7)}

        assert await store.load(PromoteDue((0, 0), 20, 2)) == Promoted(
            [(key, (9, 1)), (other, (8, 2))], (10, 2), frozenset({2})
        )
        assert ids(await store.load(LoadTimers(START, 9))) == [3, 4, 5]
        assert await store.load(PromoteDue((10, 2), 20, 2)) == Promoted(
            [(key, (7, 3)), (key, (6, 4))], (20, 4)
        )
        assert await store.load(PromoteDue((20, 4), 20, 2)) == Promoted([], None)

        assert ids(await store.load(LoadTimers(START, 9))) == [5]
        assert ids(await store.load(LoadReady(key, START, 9))) == [4, 3, 1]
        assert await listed(store, tag="red", state="queued") == [3]
        for number in range(1, 7):
            job = before[number]
            assert job is not None
            if number <= 4:
                job.state = QUEUED
            assert await store.get_job(number) == job

    async def test_queueing_due_jobs_returns_their_ready_keys(self, store: Store) -> None:
        route = Requirements(labels=(Condition("gpu", "=", ("a100",)),))
        await put(
            store, make_job(id=1, due_at=5, state=SCHEDULED, options=Options(requirements=route))
        )

        (key, _), *_ = (await store.load(PromoteDue((0, 0), 9, 9))).jobs

        assert key == ReadyKey("default", "email.send", requirements=route)
        assert ids(await store.load(LoadReady(key, START, 9))) == [1]

    async def test_due_jobs_before_the_start_of_the_range_are_not_queued(
        self, store: Store
    ) -> None:
        await put(store, *(make_job(id=n, due_at=10, state=SCHEDULED) for n in (1, 2, 3)))

        promoted = await store.load(PromoteDue((10, 2), 10, 9))

        assert [job_id for _, (_, job_id) in promoted.jobs] == [3]
        assert ids(await store.load(LoadTimers(START, 9))) == [1, 2]

    async def test_the_jobs_of_a_ready_key_load_in_order_of_rank(self, store: Store) -> None:
        await put(
            store,
            make_job(id=1, rank=5),
            make_job(id=2, rank=-5),
            make_job(id=3, rank=5),
            make_job(id=4, queue="other"),
            make_job(id=5, task="other"),
            make_job(id=6, state=RUNNING),
        )
        key = ReadyKey("default", "email.send")

        assert ids(await store.load(LoadReady(key, START, 9))) == [2, 1, 3]
        assert ids(await store.load(LoadReady(key, (-5, 2), 1))) == [1]
        assert ids(await store.load(LoadReady(key, (5, 1), 9))) == [3]

    async def test_running_jobs_load_in_order_of_id(self, store: Store) -> None:
        await put(store, *(make_job(id=n, state=RUNNING) for n in (3, 1, 2)), make_job(id=4))

        assert ids(await store.load_running(0, 2)) == [1, 2]
        assert ids(await store.load_running(2, 2)) == [3]

    async def test_the_running_jobs_of_a_snapshot_are_those_that_load_first(
        self, store: Store
    ) -> None:
        await put(store, *(make_job(id=n, state=RUNNING) for n in (3, 1, 2)), make_job(id=4))

        for snapshot in (await store.snapshot(), await self.reopen(store)):
            assert snapshot.running in (None, await store.load_running(0, RUNNING_PAGE))

    async def test_only_waiting_jobs_expire_and_not_before_their_expiry(self, store: Store) -> None:
        waiting = (SCHEDULED, BLOCKED, QUEUED, RETRYING)
        others = (RUNNING, COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED)
        states = enumerate((*waiting, *others), start=1)
        await put(store, *(make_job(id=n, state=state, expires_at=10) for n, state in states))
        await put(store, make_job(id=100, expires_at=9), make_job(id=101, expires_at=11))
        await put(store, make_job(id=102))

        assert ids(await store.load(LoadExpired(10, 99))) == [100, 1, 2, 3, 4]
        assert ids(await store.load(LoadExpired(10, 2))) == [100, 1]
        assert ids(await store.load(LoadExpired(8, 99))) == []

    async def test_a_large_payload_stays_in_the_store_until_it_is_read(self, store: Store) -> None:
        options = Options(unique=Unique("k"))
        large = make_job(id=1, payload=LARGE, unique_key="k", options=options)
        await put(store, large, make_job(id=2, payload=b"x" * 4_096))
        page = await store.load(LoadReady(large.ready_key, START, 9))
        by_key = (await store.load(LoadUniqueHolders(("k",))))["k"]
        whole = await store.get_job(1)

        assert [len(job.payload) if job.payload else None for job in page] == [None, 4_096]
        assert by_key.payload is None
        assert whole is not None
        assert whole.payload == LARGE
        assert await store.load_payload(1) == LARGE
        assert await store.load_payload(2) == b"x" * 4_096

    async def test_an_update_keeps_a_large_payload(self, store: Store) -> None:
        await put(store, make_job(id=1, payload=LARGE))
        job = await store.load(LoadJob(1))
        assert job is not None
        job.state = COMPLETED

        await store.commit(of_jobs(job))

        assert await store.load_payload(1) == LARGE

    async def test_a_load_sees_every_commit_made_before_it(self, store: Store) -> None:
        changes = [of_jobs(make_job(id=n, state=SCHEDULED)) for n in (1, 2, 3)]
        load = store.load(LoadTimers(START, 9))

        *_, found = await asyncio.gather(*map(store.commit, changes), load)

        assert ids(found or []) == [1, 2, 3]

    async def test_an_empty_commit_changes_nothing(self, store: Store) -> None:
        await store.commit(Changes())

        assert ids(await store.load_running(0, 9)) == []
