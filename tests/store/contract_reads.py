"""Claims that every read and load sees each commit that returned before, whatever it wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from schedo.core.changes import Changes
from schedo.core.loads import LoadExpired, LoadJob, LoadReady, LoadTimers, LoadUniqueHolders
from schedo.core.model import Queue, ReadyKey
from schedo.core.paged_index import START
from schedo.core.states import State
from schedo.errors import StoreError
from schedo.store.base import Retention, Store
from tests.factories import make_job
from tests.store.steps import all_jobs, ended, listed, of_jobs, put

Read = Callable[[Store], Awaitable[Any]]
READY_KEY = ReadyKey("default", "email.send")
KEPT_NOT = Retention(completed_us=0, cancelled_us=0, failed_us=0)


def number(found: Any) -> int | None:
    """Return the id of the one job that was found, if any."""
    jobs = found if isinstance(found, list) else [found]
    (job,) = jobs or [None]
    return None if job is None else job.id


# For each read: the state of a waiting job that it finds, and its result after the job's end.
WAITING: dict[str, tuple[State, Read]] = {
    "LoadTimers": (State.SCHEDULED, lambda store: store.load(LoadTimers(START, 9))),
    "LoadReady": (State.QUEUED, lambda store: store.load(LoadReady(READY_KEY, START, 9))),
    "load_running": (State.RUNNING, lambda store: store.load_running(0, 9)),
    "LoadExpired": (State.QUEUED, lambda store: store.load(LoadExpired(50, 9))),
    "list_jobs": (State.QUEUED, lambda store: all_jobs(store, state="queued")),
}
EITHER: dict[str, Read] = {
    "LoadJob": lambda store: store.load(LoadJob(1)),
    "get_job": lambda store: store.get_job(1),
    "list_jobs": lambda store: all_jobs(store),
}


class ReadClaims:
    @pytest.mark.parametrize(("state", "read"), WAITING.values(), ids=WAITING)
    async def test_a_waiting_job_can_be_read_in_each_state_until_it_ends(
        self, store: Store, state: State, read: Read
    ) -> None:
        job = make_job(id=1, state=state, expires_at=50)

        await put(store, job)
        assert number(await read(store)) == 1
        await store.commit(of_jobs(ended(job)))
        assert number(await read(store)) is None

    @pytest.mark.parametrize("read", EITHER.values(), ids=EITHER)
    @pytest.mark.parametrize("is_read_between", [True, False])
    async def test_a_read_returns_the_last_committed_record_of_a_job(
        self, store: Store, read: Read, is_read_between: bool
    ) -> None:
        job = make_job(id=1, payload=b"[1]")
        await put(store, job)
        if is_read_between:
            assert number(await read(store)) == 1

        await store.commit(of_jobs(ended(job, b"[7]")))

        found = await read(store)
        seen = found[0] if isinstance(found, list) else found
        assert (seen.state, seen.ended_at, seen.result) == (State.COMPLETED, 9, b"[7]")
        assert seen.payload == b"[1]"

    async def test_a_payload_can_be_read_as_soon_as_its_job(self, store: Store) -> None:
        await put(store, make_job(id=1, payload=b"[1]"))

        assert await store.load_payload(1) == b"[1]"

    async def test_a_count_has_what_its_snapshot_has(self, store: Store) -> None:
        job = make_job(id=1)
        await put(store, job, make_job(id=2))
        epoch = (await store.snapshot()).epoch

        await store.commit(of_jobs(ended(job)))
        await put(store, make_job(id=3), make_job(id=4, state=State.SCHEDULED))

        assert await store.count_waiting(epoch) == {"default": {State.QUEUED: 2}}

    async def test_the_jobs_of_an_earlier_snapshot_are_not_counted_any_more(
        self, store: Store
    ) -> None:
        epoch = (await store.snapshot()).epoch
        await store.snapshot()

        with pytest.raises(StoreError):
            await store.count_waiting(epoch)

    async def test_snapshots_include_every_commit(self, store: Store) -> None:
        job = make_job(id=5)
        await put(store, job)
        assert [(await store.snapshot()).last_id, (await store.snapshot()).ready_keys] == [
            5,
            [READY_KEY],
        ]

        await store.commit(of_jobs(ended(job)))

        assert (await store.snapshot()).ready_keys == []

    async def test_a_job_that_a_read_has_seen_can_be_pruned(self, store: Store) -> None:
        await put(store, ended(make_job(id=1)))
        assert await listed(store) == [1]

        assert await store.prune(100, KEPT_NOT, 9) == 1
        assert await store.get_job(1) is None

    async def test_a_buffered_commit_does_not_hide_earlier_ones(self, store: Store) -> None:
        job = make_job(id=1, unique_key="k")
        await put(store, job)
        job.unique_key = None
        await put(store, make_job(id=2))
        await store.commit(of_jobs(ended(job)))

        assert await store.load(LoadUniqueHolders(("k",))) == {}
        await put(store, make_job(id=3, unique_key="k"))
        assert (await store.load(LoadUniqueHolders(("k",))))["k"].id == 3

    async def test_a_job_may_be_updated_in_a_commit_of_any_kind(self, store: Store) -> None:
        job = make_job(id=1)
        await put(store, job)

        await store.commit(Changes(jobs={1: ended(job)}, queues={"a": Queue("a")}))
        job.result = b"[8]"
        await store.commit(of_jobs(job))

        found = await store.get_job(1)
        assert found is not None
        assert found.result == b"[8]"
