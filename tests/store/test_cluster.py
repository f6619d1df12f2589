"""Servers that share a store in PostgreSQL: each shard has one owner, whatever happens."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from schedo.core.changes import Changes
from schedo.core.ids import SLOTS
from schedo.core.job_filter import JobFilter
from schedo.core.loads import LoadJobs, LoadReady, LoadTimers, LoadUniqueHolders, PromoteDue
from schedo.core.model import Job, Options, Queue, ReadyKey, Unique
from schedo.core.shards import SHARDS, shard_of
from schedo.core.states import State
from schedo.errors import StoreError, StoreLocked
from schedo.store.base import Retention, Snapshot
from schedo.store.cluster import Member, MemberState
from schedo.store.postgres.membership import Membership
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.store import PostgresStore
from schedo.store.postgres.view import View
from tests.factories import make_job
from tests.store.servers import (
    LONG_US,
    due,
    end_patience,
    follow,
    kill,
    shards,
    sharing,
    silence,
    until,
)
from tests.store.steps import listed, of_jobs, put

ALL = list(range(SHARDS))
NOW = 1_800_000_000_000_000
START = (-(2**62), 0)


# Where new jobs go.


def test_a_job_without_a_home_goes_to_each_own_shard_in_turn() -> None:
    owned = Owned(1, [3, 5])

    assert [owned.place(make_job(id=n)) for n in range(4)] == [3, 5, 3, 5]


def test_a_home_is_the_schedule_then_the_key_then_the_limited_queue() -> None:
    owned = Owned(1, ALL, [Queue("few", 1), Queue("many")])
    options = Options(unique=Unique("k"), schedule="tick")

    assert owned.place(make_job(unique_key="k")) == shard_of("k")
    assert owned.place(make_job(unique_key="k", queue="many")) == shard_of("k")
    assert owned.place(make_job(unique_key="k", queue="few")) == shard_of("k")
    assert owned.place(make_job(queue="few")) == shard_of("few")
    run = make_job(unique_key="k", queue="few", schedule_id=1, options=options)
    assert owned.place(run) == shard_of("tick")
    owned.note_queues([Queue("few")])
    assert [owned.place(make_job(queue="few")) for _ in range(2)] == [0, 1]


def test_a_home_of_another_server_gets_no_job_from_this_one() -> None:
    home = shard_of("k")
    own = (home + 1) % SHARDS

    assert Owned(1, [own]).place(make_job(unique_key="k")) == own


def test_a_server_without_shards_refuses_a_new_job() -> None:
    with pytest.raises(StoreError, match="all shards"):
        Owned(1).place(make_job())


# Ownership.


async def test_the_first_server_owns_all_shards(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        assert shards(store) == ALL
        assert store.cluster.me.no == 1
        assert store.cluster.owner(7) == store.cluster.me


async def test_a_server_that_others_take_for_dead_while_it_starts_tries_again(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(postgres_store_url)
    follow_up, ended = store._adopt, iter((True, True, False))

    async def adopt_late(no: int) -> Snapshot:
        if next(ended):
            writer = store._require_writer()
            await writer.run(lambda c: c.execute("SELECT pg_terminate_backend(pg_backend_pid())"))
        return await follow_up(no)

    monkeypatch.setattr(store, "_adopt", adopt_late)
    await store.open()

    assert shards(store) == ALL
    assert caplog.text.count("it tries again") == 2
    await store.close()


async def test_servers_share_the_shards_and_make_ids_of_their_own(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 3) as stores:
        assert shards(*stores) == ALL
        assert {len(store._owned.shards) for store in stores} <= {10, 11}
        assert [(await store.snapshot()).slot for store in stores] == [1, 2, 3]
        epochs = [(await store.snapshot()).epoch for store in stores]
        assert epochs == sorted({*epochs})
        await until(stores[0], lambda: len(stores[0].cluster.members()) == len(stores))
        assert [member.no for member in stores[0].cluster.members()] == [1, 2, 3]


async def test_the_shards_of_a_dead_server_go_to_all_that_are_left(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 3) as (first, dead, last):
        kill(dead)
        for store in (first, last):
            await due(store)
        await until(
            first, lambda: first.cluster.owner(dead._owned.shards[0]) is not dead.cluster.me
        )
        await asyncio.gather(
            *(until(each, lambda: not first.cluster.find_gone()) for each in (first, last))
        )
        await asyncio.gather(follow(first), follow(last))

        assert shards(first, last) == ALL
        assert {len(first._owned.shards), len(last._owned.shards)} == {16}


async def test_a_silent_server_can_commit_nothing_once_its_shards_are_taken(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (silent, other):
        await put(silent, make_job(id=1))
        silence(silent)
        await end_patience(other, silent)
        await until(other, lambda: other.cluster._seen_as_mine() == {*ALL})
        await follow(other)

        assert shards(other) == ALL
        with pytest.raises(StoreError):
            await silent.commit(of_jobs(make_job(id=2)))
        assert not silent.cluster.is_sure()
        await silent.snapshot()
        assert shards(silent) == []
        assert await listed(other) == [1]


async def test_a_server_without_heartbeats_is_not_sure_of_its_shards(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        await until(store, store.cluster.is_sure)
        later = store.cluster._sure_until_s + 0.001

        monkeypatch.setattr("schedo.store.postgres.membership.since_boot_s", lambda: later)

        assert not store.cluster.is_sure()


def test_a_server_that_is_late_itself_gives_others_as_much_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr("schedo.store.postgres.membership.since_boot_s", lambda: now_s)
    membership = Membership("me", 300_000, lambda: pytest.fail("nothing is read"))
    membership.begin(1, 1)
    other = Member(2, "other", "", 2, "1", MemberState.OPEN)

    def is_gone(at_s: float, silent_us: int | None) -> bool:
        nonlocal now_s
        now_s = at_s
        members = {2: other._replace(silent_us=silent_us)}
        membership.note(View(at_s, members, {2: 300_000}, {0: 2}, 0))
        return bool(membership.find_gone())

    assert not is_gone(10.0, 0)
    assert is_gone(10.1, 310_000)
    assert not is_gone(10.6, 600_000)  # this server was late by 400 ms, too
    assert not is_gone(10.7, 690_000)
    assert is_gone(10.8, 710_000)
    assert is_gone(10.9, None)  # its session has ended
    for tenth in range(110, 117):
        is_gone(tenth / 10, 0)
    assert is_gone(11.7, 310_000)


async def test_a_server_whose_session_was_ended_keeps_its_shards_if_it_lives(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2) as (store, other):
        before = shards(store)
        assert store._writer is not None
        pid = store._writer.pid
        await other._control._fetch("SELECT pg_terminate_backend($1)", pid)

        await due(store)
        assert not store.cluster.is_sure()
        await store.snapshot()

        assert shards(store) == before
        assert store._writer.pid != pid
        await put(store, make_job(id=1))
        assert shards(store, other) == ALL


async def test_the_control_session_has_one_query_at_a_time_while_it_is_opened_again(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        control = store._control
        silence(store)
        control._drop()

        async def tell_of_shards() -> None:  # as a move does
            while not opening.done():
                try:
                    await control._fetch("SELECT pg_notify($1, '')", control._channel)
                except StoreError:  # it is not open yet
                    await asyncio.wait([opening], timeout=0.001)

        opening = asyncio.ensure_future(control._connect_again())
        await asyncio.gather(opening, *(tell_of_shards() for _ in range(8)))


async def test_a_server_that_ends_in_order_leaves_its_shards_to_the_others(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2) as (store, other):
        await store.recovered()
        await store.close()
        await due(other)
        await follow(other)

        assert shards(other) == ALL
        assert [member.no for member in other.cluster.members()] == [other.cluster.me.no]


async def test_a_server_that_leaves_gives_all_shards_but_one_and_gets_none_back(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2) as (store, other):
        await store.cluster.leave()
        await follow(store)
        await until(other, lambda: other.cluster.members()[0].state is MemberState.LEAVING)
        await due(other)
        await follow(other)

        assert store.cluster.has_given
        assert len(shards(store)) == 1
        assert shards(store, other) == ALL


async def test_a_shard_in_which_a_job_with_a_home_runs_does_not_move(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2) as (store, other):
        keyed = next(key for n in count() if shard_of(key := f"k{n}") in store._owned.shards[1:])
        held, plain = (make_job(id=1, unique_key=keyed), make_job(id=2))
        await put(store, held, plain)
        for job in (held, plain):
            job.state, job.attempt = State.RUNNING, 1
        await store.commit(of_jobs(held, plain))

        await store.cluster.leave()
        await follow(store)

        assert shard_of(keyed) in shards(store)
        running = {job.id for job in await store.load_running(0, 10)}
        assert running == {1, 2}
        await until(other, lambda: other.cluster.is_change_due())
        await follow(other)
        assert shards(store, other) == ALL
        assert await other.load_running(0, 10) == []


async def test_the_number_of_a_dead_server_without_others_is_used_again(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (dead,):
        kill(dead)
        async with sharing(postgres_store_url, 1) as (store,):
            await until(store, lambda: store.cluster._seen_as_mine() == {*ALL})
            await store.snapshot()

            assert shards(store) == ALL


async def test_more_servers_than_shards_are_refused(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.store.postgres.server_numbers.SHARDS", 1)
    async with sharing(postgres_store_url, 1):
        store = PostgresStore(postgres_store_url)
        with pytest.raises(StoreLocked, match=r"1 servers share .* no more"):
            await store.open()


# What a server reads and writes is its own.


async def test_a_server_loads_only_what_its_shards_have(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 2) as stores:
        for no, store in enumerate(stores):
            due_jobs = [scheduled(n * SLOTS + no) for n in range(1, 40)]
            ready = [queued(n * SLOTS + no) for n in range(100, 140)]
            await put(store, *due_jobs, *ready, make_job(id=no + 1, unique_key=f"k{no}"))

        for no, store in enumerate(stores):
            timers = await store.load(LoadTimers(START, 100))
            assert [job.id for job in timers] == [n * SLOTS + no for n in range(1, 40)]
            page = await store.load(LoadReady(ReadyKey("default", "work"), START, 25))
            assert [job.id for job in page] == [n * SLOTS + no for n in range(100, 125)]
            both = tuple(SLOTS + each for each in range(2))
            assert [*await store.load(LoadJobs(both))] == [SLOTS + no]
            assert [*await store.load(LoadUniqueHolders(("k0", "k1")))] == [f"k{no}"]
            found = (await store.find_job_ids(JobFilter(task="work"), None, 500)).ids
            assert {job_id % SLOTS for job_id in found if job_id > SLOTS} == {0, 1}
            waiting = await store.count_waiting((await store.snapshot()).epoch)
            assert waiting["default"][State.SCHEDULED] == 39
            promoted = await store.load(PromoteDue(START, NOW, 10))
            assert [pair[1] for _, pair in promoted.jobs] == [n * SLOTS + no for n in range(1, 11)]
            assert promoted.last is not None


async def test_a_page_has_the_first_jobs_of_all_shards_although_they_are_in_a_few(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        store._owned = Owned(1, [4])
        await put(store, *(scheduled(n, n) for n in range(1, 300)))
        store._owned = Owned(1, ALL)
        await put(store, *(scheduled(1_000 + n, 2 * n) for n in range(1, 300)))

        page = await store.load(LoadTimers(START, 250))
        expected = sorted(
            [(n, n) for n in range(1, 300)] + [(2 * n, 1_000 + n) for n in range(1, 300)]
        )
        assert [(job.due_at, job.id) for job in page] == expected[:250]
        rest = await store.load(LoadTimers(expected[249], 1_000))
        assert [(job.due_at, job.id) for job in rest] == expected[250:]


async def test_a_server_prunes_only_its_own_jobs(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 2) as stores:
        for no, store in enumerate(stores):
            await put(store, make_job(id=no + 1, state=State.COMPLETED, ended_at=1))

        assert await stores[1].prune(NOW, Retention(), 100) == 1
        assert await listed(stores[0]) == [1]


async def test_the_jobs_of_another_server_that_have_ended_or_are_gone_are_found(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2) as (first, second):
        await put(first, make_job(id=1), make_job(id=2, state=State.COMPLETED, ended_at=1))

        assert {*await second.cluster.find_ended([1, 2, 3])} == {2, 3}


# Settings.


async def test_the_other_servers_follow_the_settings_of_queues_and_say_so(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2) as (store, other):
        await store.commit(Changes(queues={"few": Queue("few", 1)}))
        await due(other)
        assert not await says_that_it_follows(other, store)

        snapshot = await other.snapshot()

        assert snapshot.queues == [Queue("few", 1)]
        assert await says_that_it_follows(other, store)
        assert not store.cluster.is_change_due()


async def says_that_it_follows(other: PostgresStore, store: PostgresStore) -> bool:
    """Whether the other server has written that it has the settings of this one."""
    async with store._require_readers().session() as session:
        query = "SELECT settings FROM server WHERE no = $1"
        version: int = await session.fetchval(query, other._owned.no)
    return version == store.cluster.settings


def scheduled(job_id: int, due_at: int = 0) -> Job:
    return make_job(id=job_id, task="work", state=State.SCHEDULED, due_at=due_at)


def queued(job_id: int) -> Job:
    return make_job(id=job_id, task="work", state=State.QUEUED, rank=0)
