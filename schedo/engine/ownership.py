"""The engine of a server that shares its store: it follows the shards that the server owns."""

from __future__ import annotations

import asyncio
import logging

from schedo.core.commands import Submit
from schedo.core.ids import ID_MAX
from schedo.core.shards import SHARDS, shard_of
from schedo.engine.homes import needs_shard, texts_of
from schedo.engine.limit_sharing import LimitSharing
from schedo.engine.loop import EngineLoop
from schedo.engine.moved_waits import MovedWaits
from schedo.engine.standstill import RESTART_S
from schedo.errors import SchedoError, Unavailable
from schedo.store.base import Store
from schedo.store.cluster import ShardOwner

log = logging.getLogger("schedo.engine")

_MOVED = Unavailable("the shard of this request has just moved to another server; try again")
LOOK_S = 0.1  # between two looks whether the server is in doubt
LEAVE_S = 2.0  # after which a server that leaves goes on although it still has shards


class Ownership:
    """Restarts the scheduler whenever the server has got shards or should give some away."""

    def __init__(self, loop: EngineLoop, store: Store, cluster: ShardOwner) -> None:
        self._loop, self._cluster = loop, cluster
        self._task: asyncio.Task[None] | None = None
        self._doubts_since_s: float | None = None
        self._limits = LimitSharing(loop, cluster)
        self._waits = MovedWaits(store, cluster, loop.waiters)
        loop.is_sure = cluster.is_sure
        loop.beat_error = lambda: cluster.beat_error
        loop.adopt_minutes = lambda: cluster.adopt_minutes()
        loop.find_refusal = self._find_refusal
        loop.on_recovered.append(self._on_recovered)
        cluster.on_due = self._on_due
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look, and to share limits: the store is open."""
        self._limits.start()
        self._look()

    def _look(self) -> None:
        """Refuse requests when the server has been in doubt for longer than they wait.

        In doubt there are no heartbeats that could say so.
        """
        self._timer = self._loop.loop.call_later(LOOK_S, self._look)
        now = self._loop.loop.time()
        if self._cluster.is_sure():
            self._trust()
        elif self._doubts_since_s is None:
            self._doubts_since_s = now
        elif now - self._doubts_since_s >= RESTART_S:
            self._loop.suspend()

    def _trust(self) -> None:
        self._doubts_since_s = None
        self._loop.resume()

    def _on_due(self) -> None:
        self._trust()  # there are heartbeats again
        self._loop.wake()  # the server may be sure of its shards again
        if self._loop.failure is None and self._cluster.is_change_due():
            self._begin()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow(), name="schedo shards")

    async def _follow(self) -> None:
        try:
            await self._loop.restart(self._cluster.change_shards)
            self._limits.wake()
        except SchedoError as error:  # the recovery follows the shards, too
            log.debug("the shards are not followed now: %s", error)

    def _on_recovered(self) -> None:
        """Adopt what workers run for a dead server, and refuse what others must carry out now."""
        if self._cluster.take_inherited():
            now = self._loop.clock.now()
            self._loop.scheduler.follow_server(now, was_killed=True, last_id=ID_MAX)
        self._loop.refuse_queued_if(lambda each: self._find_refusal(each) is not None, _MOVED)
        self._waits.follow()

    def _owns_texts(self, command: object) -> bool:
        return all(self._cluster.is_mine(shard_of(text)) for text in texts_of(command))

    def _find_refusal(self, command: object) -> SchedoError | None:
        """Return why this server cannot carry out the command now.

        It does not own the shards that the request names, which may have moved since the request
        came, or, if a request for jobs or an operation names none, any shard.
        """
        if isinstance(command, Submit) and command.home_shards:
            return None if all(map(self._cluster.is_mine, command.home_shards)) else _MOVED
        if not self._owns_texts(command):
            return _MOVED  # the database would refuse what another server has of this name or key
        owns_any = any(map(self._cluster.is_mine, range(SHARDS)))
        return _MOVED if needs_shard(command) and not owns_any else None

    async def leave(self) -> None:
        """Give the shards but one to other servers, if there are any, before the drain."""
        try:
            await self._cluster.leave()
        except SchedoError as error:
            log.warning("the other servers do not know that this one leaves: %s", error)
        else:
            await self._give()

    async def leave_last(self) -> None:
        """Give what is left, too, after the drain: its jobs must not wait for slow clients.

        What remote workers run goes on, as if this server had died.
        """
        self._cluster.leave_last()
        await self._give()

    async def _give(self) -> None:
        if not self._cluster.has_given:
            self._begin()
            assert self._task is not None, "it has begun"
            await asyncio.wait([self._task], timeout=LEAVE_S)

    async def stop(self) -> None:
        """Follow no more changes."""
        if self._timer is not None:
            self._timer.cancel()
        await self._limits.stop()
        self._waits.stop()
        self._cluster.on_due = _nothing
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LEAVE_S)


def _nothing() -> None:
    """Do nothing: the engine stops."""
