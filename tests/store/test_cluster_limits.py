"""Servers that share a store in PostgreSQL divide the limits of queues between them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest

from schedo.core.changes import Changes
from schedo.core.limit_shares import LimitUse
from schedo.core.model import Job, Queue
from schedo.core.shards import shard_of
from schedo.core.states import State
from schedo.store.cluster import Claim
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.store.servers import due, follow, kill, sharing
from tests.store.steps import of_jobs, put

LIMIT = 3


class Server:
    """What the engine and the scheduler of a server do with the limit of one queue."""

    def __init__(self, store: PostgresStore, waiting: int = 0) -> None:
        self.store = store
        self.share = self.running = 0
        self.waiting = waiting

    @property
    def is_home(self) -> bool:
        return self.store.cluster.is_mine(shard_of("few"))

    @property
    def use(self) -> LimitUse:
        return LimitUse(LIMIT, self.share, self.running, min(self.waiting, LIMIT))

    def start(self) -> None:
        """Start what the share allows."""
        count = max(0, min(self.waiting, self.share - self.running))
        self.running += count
        self.waiting -= count

    def lower(self, shares: Mapping[str, int]) -> Mapping[str, LimitUse]:
        self.share = min(self.share, shares["few"])
        return {"few": self.use}

    async def look(self, turn: int = 0) -> None:
        """Claim or divide, and go on with the share."""
        limits = self.store.cluster.limits
        if self.is_home:
            self.share = (await limits.divide({"few": self.use}, turn, self.lower))["few"]
        else:
            self.share = min(self.share, self.use.wanted)
            claim = Claim(min(self.use.wanted, LIMIT), self.running, self.share)
            self.share = (await limits.claim({"few": claim})).get("few", 0)
        self.start()


async def limited(stores: list[PostgresStore]) -> tuple[Server, list[Server]]:
    """Give the queue its limit; return the home of the queue, and the others."""
    await stores[0].commit(Changes(queues={"few": Queue("few", LIMIT)}))
    for store in stores[1:]:
        await due(store)
        await follow(store)
    servers = [Server(store) for store in stores]
    home = next(server for server in servers if server.is_home)
    return home, [server for server in servers if server is not home]


async def test_a_server_that_is_not_the_home_gets_what_it_needs(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 2) as stores:
        home, (other,) = await limited(stores)
        other.waiting = 2
        for server in (other, home, other):
            await server.look()

        assert (other.running, home.share) == (2, 1)


async def test_the_home_gets_its_part_back_when_jobs_end(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 2) as stores:
        home, (other,) = await limited(stores)
        other.waiting = 9
        for server in (other, home, other):
            await server.look()
        home.waiting = 9
        assert (other.running, home.running) == (3, 0)

        await home.look()
        await other.look()
        other.running = 2
        for server in (other, other, home):
            await server.look()

        assert home.running == 1
        other.running = 1
        for server in (other, other, home):
            await server.look()
        assert (other.running, home.running) in ((1, 2), (2, 1))


async def test_no_job_starts_while_a_server_may_not_know_the_limit(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 2) as (store, other):
        name = next(n for k in range(99) if store.cluster.is_mine(shard_of(n := f"q{k}")))
        await store.commit(Changes(queues={name: Queue(name, LIMIT)}))
        use = LimitUse(LIMIT, 0, 0, 5)

        async def divide() -> int:
            found = await store.cluster.limits.divide({name: use}, 0, lambda _: {name: use})
            return found[name]

        assert await divide() == 0
        await due(other)
        await follow(other)
        assert await divide() == LIMIT


async def test_jobs_that_ran_before_the_limit_count(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 2) as stores:
        for store in stores:
            job = make_job(id=store._owned.no, queue="few")
            await put(store, job)
            await run(store, job)
        home, (other,) = await limited(stores)
        home.running, home.waiting = 1, 5

        await home.look()

        assert home.running == LIMIT - 1  # the other server runs one, and says nothing
        del other


async def test_jobs_of_a_dead_server_count_until_the_next_owner_has_read_them(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 3) as stores:
        home, others = await limited(stores)
        dead, heir = others
        job = make_job(id=99, queue="few")
        await put(dead.store, job)
        await run(dead.store, job)
        kill(dead.store)
        for server in (home, heir):
            await due(server.store)
        await asyncio.gather(*(wait_taken(server.store, dead.store) for server in (home, heir)))
        home.waiting = 5

        await home.look()

        assert home.running == LIMIT - 1
        for server in (home, heir):
            await follow(server.store)
        home.share = 0
        await home.look()
        here = {each.id for each in await home.store.load_running(0, 9)}
        assert home.share == (LIMIT if here else LIMIT - 1)


async def test_a_server_with_the_number_of_a_dead_one_has_no_share_yet(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 3) as stores:
        home, (dead, other) = await limited(stores)
        await use_all(dead, home)
        await die(dead, home, other)
        await use_all(other, home)

        new = await join(postgres_store_url, stores, home, other)
        new.waiting = LIMIT
        await new.look()

        assert new.store._owned.no == dead.store._owned.no
        assert (other.running, new.running) == (LIMIT, 0)


async def test_a_server_that_was_the_home_has_no_share_of_the_time_before(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 3) as stores:
        left, others = await limited(stores)
        writer = left.store._writer
        assert writer is not None
        await writer.connection.execute(  # another server was the home, and gave it all
            "INSERT INTO queue_share VALUES ('few', $1, 3, 3, 0)", left.store._owned.no
        )
        await use_all(others[0], left)

        await left.store.cluster.leave()  # it keeps one shard, not that of the queue
        for server in (left, *others):
            await due(server.store)
            await follow(server.store)
        left.share, left.waiting = 0, LIMIT
        await left.look()

        assert not left.is_home
        assert (others[0].running, left.running) == (LIMIT, 0)


async def test_a_shard_that_a_number_has_read_before_is_read_again(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 3) as stores:
        home, (dead, heir) = await limited(stores)
        kill(dead.store)
        await asyncio.gather(*(wait_taken(each.store, dead.store) for each in (home, heir)))
        await follow(home.store)  # the heir has not read its part yet
        inherited = set(dead.store._owned.shards) - set(home.store._owned.shards)

        new = await join(postgres_store_url, stores, home)
        kill(heir.store)
        await asyncio.gather(*(wait_taken(each.store, heir.store) for each in (home, new)))

        assert new.store._owned.no == dead.store._owned.no
        writer = home.store._writer
        assert writer is not None
        found = await writer.connection.fetch(
            "SELECT no FROM shard WHERE owner = $1 AND read_by = owner", new.store._owned.no
        )
        assert inherited.isdisjoint(no for (no,) in found)


async def use_all(server: Server, home: Server) -> None:
    """Let the server run as many jobs as the limit allows."""
    server.waiting = LIMIT
    for each in (server, home, server):
        await each.look()
    assert server.running == LIMIT


async def die(server: Server, *others: Server) -> None:
    """Kill the server; the others take its shards over."""
    kill(server.store)
    await asyncio.gather(*(wait_taken(each.store, server.store) for each in others))
    for each in others:
        await follow(each.store)


async def join(url: str, stores: list[PostgresStore], *others: Server) -> Server:
    """Let another server join, and get shards of the others."""
    new = PostgresStore(url, 300_000)
    stores.append(new)  # it is closed with the others
    await new.open()
    for each in others:
        each.store.cluster._moved_s = 0.0
        await due(each.store)
        await follow(each.store)
    await due(new)
    await follow(new)
    return Server(new)


@pytest.mark.parametrize("seed", range(3))
async def test_all_servers_together_never_run_more_than_the_limit(
    postgres_store_url: str, seed: int
) -> None:
    draw = random.Random(seed)
    async with sharing(postgres_store_url, 3) as stores:
        home, others = await limited(stores)
        servers, most = [home, *others], 0
        for step in range(150):
            server = draw.choice(servers)
            server.waiting += draw.randrange(3)
            server.running -= draw.randint(0, server.running)
            looks = [each.look(step // 5) for each in draw.sample(servers, draw.randint(1, 3))]
            await asyncio.gather(*looks)
            running = sum(each.running for each in servers)
            most = max(most, running)
            assert running <= LIMIT

        assert most == LIMIT
        for server in servers:
            server.waiting = server.running = 0
        for _ in range(4):
            for server in servers:
                await server.look()
        assert [each.share for each in others] == [0, 0]
        assert home.share == LIMIT


async def run(store: PostgresStore, job: Job) -> None:
    """Let the job run, durably."""
    job.state, job.attempt = State.RUNNING, 1
    await store.commit(of_jobs(job))


async def wait_taken(store: PostgresStore, dead: PostgresStore) -> None:
    """Wait until the dead server owns nothing, as this one sees it."""
    async with asyncio.timeout(20):
        while dead._owned.no in store.cluster._view.owners.values():
            store.cluster._seen.clear()
            await store.cluster._seen.wait()
