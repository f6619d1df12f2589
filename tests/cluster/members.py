"""Servers that share a cluster over real sockets, each with an engine and a store of its own.

The owners of the shards are what a test says. So a request that is carried out by the wrong server
is seen: only one of them has the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from schedo.cluster.router import Router
from schedo.core.limits import MILLISECOND
from schedo.core.shards import SHARDS
from schedo.engine.engine import Engine
from schedo.store.base import Snapshot, Store
from schedo.store.cluster import Member, MemberState
from schedo.testing.clock import VirtualClock
from schedo.web.server import HttpServer
from schedo.web.settings import WebSettings
from tests.passes import one_pass
from tests.stores import make_store
from tests.web.world import T0, World

KEY = b"k" * 32


class Map:
    """What all members believe: who there is, and who owns which shard."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.worlds: list[MemberWorld] = []
        self.owners: list[int | None] = []
        self.listeners: list[Callable[[], None]] = []

    def leave(self, number: int) -> None:
        """Let the server leave from now on; it keeps its shards."""
        members = self.members
        leaving = MemberState.LEAVING
        members[:] = [m._replace(state=leaving) if m.no == number else m for m in members]

    def give(self, shards: Sequence[int], number: int | None) -> None:
        """Let the server own the shards; None: no server owns them."""
        for shard in shards:
            self.owners[shard] = number
        for each in list(self.listeners):
            each()


class FakeCluster:
    """The Cluster of one member."""

    def __init__(self, everything: Map, number: int) -> None:
        self._map, self._number = everything, number
        self.on_change = everything.listeners
        self.believed: dict[int, int] = {}  # owners in which this member is wrong
        self._me = self._find_me()

    @property
    def me(self) -> Member:
        """This server, also when the others have taken it off the list."""
        self._me = self._find_me() or self._me
        assert self._me is not None, "it has been on the list"
        return self._me

    def _find_me(self) -> Member | None:
        return next((each for each in self._map.members if each.no == self._number), None)

    def members(self) -> tuple[Member, ...]:
        return tuple(self._map.members)

    def unseen_us(self) -> int:
        return 0

    def owner(self, shard: int) -> Member | None:
        number = self.believed.get(shard, self._map.owners[shard])
        return next((each for each in self._map.members if each.no == number), None)

    def is_mine(self, shard: int) -> bool:
        return self._map.owners[shard] == self._number

    def has_lost(self, member: Member) -> bool:
        found = next((each for each in self._map.members if each.no == member.no), None)
        return found is None or (found.silent_us is None and member.no not in self._map.owners)

    async def shard_of_job(self, job_id: int) -> int | None:
        for world in self._map.worlds:
            if await world.engine.store.get_job(job_id) is not None:
                return world.number - 1
        return None

    async def shards_of_jobs(self, job_ids: Sequence[int]) -> dict[int, int]:
        found = [(each, await self.shard_of_job(each)) for each in job_ids]
        return {job_id: shard for job_id, shard in found if shard is not None}

    async def shard_of_operation(self, number: int) -> int | None:
        for world in self._map.worlds:
            if number in [each.id for each in world.engine._loop.scheduler.bulk_operations()]:
                return world.number - 1
        return None

    async def announce(self, url: str) -> None:
        raise NotImplementedError


def make_store_with(epoch: int) -> Store:
    """Return a store whose server has this epoch."""
    store = make_store()
    opening = store.open

    async def open_later() -> Snapshot:
        found = await opening()
        for _ in range(epoch - 1):
            found = await store.snapshot()
        return found

    setattr(store, "open", open_later)  # noqa: B010  # mypy refuses the assignment
    return store


class MemberWorld(World):
    """One server of the cluster."""

    number: int
    router: Router
    cluster: FakeCluster
    http: HttpServer
    name: str

    async def join(self, everything: Map, number: int) -> None:
        self.number, self.name = number, f"host {number}"
        self.http = HttpServer()
        port = await self.http.start(self.app, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{port}"
        member = Member(number, self.name, url, number, "1", MemberState.OPEN, 0)
        everything.members.append(member)
        everything.worlds.append(self)
        self.cluster = FakeCluster(everything, number)
        self.router = Router(self.app.context, self.cluster, KEY)
        self.engine._loop.is_sure = lambda: True
        self.app.context.cluster = self.app.context.credentials.peers = self.router


@asynccontextmanager
async def running_cluster(
    count: int = 2, settings: WebSettings | None = None
) -> AsyncIterator[tuple[Map, list[MemberWorld]]]:
    """Run servers 1 to `count`; shard s belongs to server 1 + s mod count."""
    everything = Map()
    everything.owners = [1 + shard % count for shard in range(SHARDS)]
    # Each has a clock of its own, so that no two make the same id; nor have two the same epoch.
    worlds = [
        MemberWorld(settings, make_store_with(number), VirtualClock(T0 + MILLISECOND * number))
        for number in range(1, count + 1)
    ]
    async with asyncio.TaskGroup() as starting:
        for world in worlds:
            starting.create_task(world.engine.start())
    try:
        for number, world in enumerate(worlds, 1):
            await world.join(everything, number)
        yield everything, worlds
    finally:
        for world in worlds:
            await world.router.stop()  # first all of them, so that none connects to one that ends
        for _ in range(5):  # a connection that has just been accepted begins, and is ended then
            await one_pass()
        for world in worlds:
            await world.http.stop(grace_s=0.2)
            await world.engine.stop()


def delay_start(
    owner: MemberWorld, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[object]]
) -> None:
    """Make the start of the next job durable only after something else has been done.

    The owner stores two changes: first the job, then its start.
    """
    commit = owner.engine.store.commit
    commits = 0

    async def commit_late(changes: Any) -> Any:
        nonlocal commits
        commits += 1
        if commits == 2:
            await meanwhile()
        return await commit(changes)

    monkeypatch.setattr(owner.engine.store, "commit", commit_late)


def note_home_shards(world: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Return the list of the shards that each submit names to the engine of the server."""
    found: list[set[int]] = []
    submit = Engine.submit

    async def note(*args: Any, home_shards: Any, **settings: Any) -> Any:
        found.append(set(home_shards))
        return await submit(world.engine, *args, home_shards=home_shards, **settings)

    monkeypatch.setattr(world.engine, "submit", note)
    return found
