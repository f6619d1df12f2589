"""The servers of a cluster, as one of them sees them: who owns what, and requests to the others.

A request goes from one server to another one at most once; there it is carried out or refused (see
hops.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from schedo.client.messages import HttpResponse
from schedo.cluster.client_request import NOT_OWNER, ClientRequest, refuse
from schedo.cluster.homes import explain_owner, find_maker
from schedo.cluster.hops import OWN_PERMISSION, Hop, OwnRequest, Purpose, Signer
from schedo.cluster.peers import ChangeLost, Peers, ReadLost
from schedo.cluster.reachability import Reachability
from schedo.core.shards import shard_of
from schedo.engine.engine import Engine
from schedo.errors import NotFound, PeerUnreachable, SchedoError, Unavailable
from schedo.store.cluster import Cluster, Member
from schedo.web.http import Response

# How long a request waits while its shard moves, or its owner is believed to be a server that is
# not the owner any more, or that has just died. A move and a take-over take some 20 ms.
MOVING_S = 1.0
PAUSE_S = 0.02  # between two tries
T = TypeVar("T")
Act = Callable[[ClientRequest], Awaitable[Response]]


class Servers:
    """This server's view of the cluster, and its connections to the others."""

    def __init__(self, engine: Engine, cluster: Cluster, key: bytes) -> None:
        """key: the random key that all servers of the cluster read in the database."""
        self._engine = engine
        self.cluster = cluster
        self.signer = Signer(key)
        self.peers = Peers(self.signer, cluster)
        self.reachability = Reachability(cluster, self.peers, engine.clock)
        # Done when a shard has got another owner; then there is another one.
        self.changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.background: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """End what `begin` has begun, and close the connections."""
        ending = [*self.background]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self.reachability.stop()
        await self.peers.close()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that goes on when a request ends; return the task of it."""
        task = asyncio.create_task(work, name="schedo cluster work")
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task

    # What this server knows.

    def others(self) -> list[Member]:
        """Return the other servers that can be asked."""
        return self.reachability.others()

    def owns(self, name: str) -> bool:
        """Whether this server owns the shard of the name."""
        return self.cluster.is_mine(shard_of(name))

    def has_limit(self, queue: str) -> bool:
        """Whether the queue of this name lets only some of its jobs run at once."""
        return self._engine.get_queue(queue).concurrency is not None

    def note_change(self) -> None:
        """Wake the requests that wait for the owner of a shard, or for its response."""
        self.peers.end_waits()
        changed, self.changed = self.changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    async def wait_for_change(self, timeout_s: float) -> None:
        """Wait until a shard has another owner, for this long at most."""
        await asyncio.wait((self.changed,), timeout=timeout_s)

    # Requests to the others.

    async def send(
        self, member: Member, purpose: Purpose, own: OwnRequest, held_s: float = 0.0
    ) -> HttpResponse:
        """Send a request of this server itself; raise PeerUnreachable or ChangeLost.

        held_s: how long the other server may hold it.
        """
        now = self._engine.clock.now()
        hop = Hop(purpose, now, own.method, own.target, "cluster", own.id, "", own.permission)
        headers = {"content-type": "application/json"} if own.body else {}
        return await self.peers.send(member, hop, own.body, headers, held_s)

    async def ask(
        self, member: Member, purpose: Purpose, body: bytes, kind: type[T], limit_s: float
    ) -> T | None:
        """Return what a server says to a question of this server, for which no client asks.

        kind: of the response. None: it does not respond in time, or is too old for the question.
        """
        own = OwnRequest("POST", "/v1/work", purpose, OWN_PERMISSION, body)
        try:
            async with asyncio.timeout(limit_s):
                response = await self.send(member, purpose, own)
            return msgspec.json.decode(response.body, type=kind) if response.status == 200 else None
        except (SchedoError, TimeoutError, msgspec.MsgspecError):
            return None

    async def at_owner(
        self,
        asked: ClientRequest,
        shard: int | None,
        act: Act,
        may_wait: Callable[[], bool] = lambda: True,
    ) -> Response:
        """Return the response of the owner of the shard; None: that of the one that makes jobs.

        act: carries the request out, if this server is the owner. may_wait: whether to wait longer
        while the shard moves; else the error is raised at once.
        """
        if shard is None:
            return await self._at_maker(asked, act)
        loop = asyncio.get_running_loop()
        until = loop.time() + MOVING_S
        lost: SchedoError | None = None  # what the first owner did not respond to
        while True:
            is_last = loop.time() > until  # known before, because one try may take all of the time
            found = await self._ask_owner(asked, shard, act)
            if isinstance(found, Response):
                return found
            if lost is None and isinstance(found, (ChangeLost, ReadLost)):
                lost, until, is_last = found, loop.time() + MOVING_S, False  # it was perhaps held
            if is_last or not may_wait():
                raise lost or found
            await self.wait_for_change(PAUSE_S)

    async def _at_maker(self, asked: ClientRequest, act: Act) -> Response:
        shard = None if asked.hop else find_maker(self.cluster)
        if shard is None:
            try:
                return await act(asked)
            except Unavailable:  # perhaps it has given its last shard away meanwhile
                shard = find_maker(self.cluster)
                if shard is None:
                    raise
            if asked.hop:
                return refuse(asked.request)
        return await self.at_owner(asked, shard, act)

    async def _ask_owner(
        self, asked: ClientRequest, shard: int, act: Act
    ) -> Response | SchedoError:
        """Return the response of the owner, or why there is none yet."""
        if self.cluster.is_mine(shard):
            try:
                return await act(asked.with_home_shards((shard,)))
            except (NotFound, Unavailable):
                if self.cluster.is_mine(shard):
                    raise  # else the shard has moved meanwhile, and its jobs are not known here
        if asked.hop is not None:
            return refuse(asked.request)
        owner = self.cluster.owner(shard)
        if owner is not None and owner.url and owner.no != self.cluster.me.no:
            return await self._ask_other(asked, shard, owner)
        return explain_owner(self.cluster, shard)

    async def _ask_other(
        self, asked: ClientRequest, shard: int, owner: Member
    ) -> Response | SchedoError:
        """Return the response of another server, or why there is none yet."""
        try:
            response = await asked.forward(owner, shard)
        except PeerUnreachable as error:
            return error
        except ChangeLost as error:
            if asked.is_repeatable and self.cluster.has_lost(owner):
                return error
            raise
        is_owner = (NOT_OWNER, b"1") not in response.headers
        return response if is_owner else explain_owner(self.cluster, shard)
