"""The limits of queues that a server shares with the others of its cluster.

The server that owns the shard of a queue's name divides the limit; the others claim what they need.
Both happen in short intervals while there is something to run; see core/limit_shares.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from functools import partial

from schedo.core.limit_shares import LimitShares, LimitUse
from schedo.core.shards import SHARDS, shard_of
from schedo.engine.loop import EngineLoop
from schedo.errors import SchedoError, Unavailable
from schedo.store.cluster import Claim, ShardOwner

log = logging.getLogger("schedo.engine")

LOOK_S = 0.05  # between two looks at what this server needs
IDLE_LOOKS = 2  # of which one divides, although this server itself needs no more
LOOKS_PER_TURN = 5  # then what cannot be divided equally passes to other servers


class LimitSharing:
    """Gives the scheduler its shares, one step after the other."""

    def __init__(self, loop: EngineLoop, cluster: ShardOwner) -> None:
        self._loop, self._cluster = loop, cluster
        self._looks = 0
        self._is_new = True  # the scheduler, and it has no shares yet
        self._idle: set[str] = set()  # queues of other homes of which this server needs nothing
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        loop.shares_limits = self._are_shared

    def _are_shared(self) -> bool:
        return not all(map(self._cluster.is_mine, range(SHARDS)))

    def start(self) -> None:
        """Begin to claim and to divide."""
        self._task = asyncio.create_task(self._run(), name="schedo limits")

    def wake(self) -> None:
        """Look at once: the scheduler is a new one, which has no shares yet."""
        self._idle.clear()
        self._is_new = True
        self._wake.set()

    async def stop(self) -> None:
        """Claim and divide no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(LOOK_S, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            self._wake.clear()
            self._looks += 1
            try:
                await self.look()
            except SchedoError as error:  # the recovery says why
                log.debug("the limits of queues are not divided now: %s", error)
            except Exception:
                log.exception("a bug in schedo: the limits of queues were not divided")

    async def look(self) -> None:
        """Claim what this server needs, and divide the limits of which it is the home."""
        if not self._loop.is_open:
            return
        limits = self._loop.scheduler.limits
        home = {queue: use for queue, use in limits.uses().items() if self._is_home(queue)}
        await self._claim(limits, home.keys())
        is_due = self._is_new or self._looks % IDLE_LOOKS == 0
        if home and (is_due or any(map(_needs_more, home.values()))):
            self._is_new = False
            lower, turn = partial(self._lower, limits), self._looks // LOOKS_PER_TURN
            self._give(limits, await self._cluster.limits.divide(home, turn, lower))

    def _lower(self, limits: LimitShares, shares: Mapping[str, int]) -> Mapping[str, LimitUse]:
        """Use at most these shares from now on; return how far this server uses them then."""
        if not self._is_current(limits):
            raise Unavailable("the scheduler is a new one")
        before = limits.uses()
        limits.give({q: min(share, before[q].share) for q, share in shares.items() if q in before})
        return {queue: use for queue, use in limits.uses().items() if queue in shares}

    def _is_home(self, queue: str) -> bool:
        return self._cluster.is_mine(shard_of(queue))

    def _is_current(self, limits: LimitShares) -> bool:
        return self._loop.is_open and self._loop.scheduler.limits is limits

    def _give(self, limits: LimitShares, shares: Mapping[str, int]) -> None:
        """Let the scheduler use these shares, unless it has been replaced meanwhile."""
        if self._is_current(limits):
            changed = {
                queue: share
                for queue, share in shares.items()
                if (use := limits.uses().get(queue)) is not None and use.share != share
            }
            limits.give(changed)
            if changed:
                self._loop.wake()

    async def _claim(self, limits: LimitShares, home: Collection[str]) -> None:
        """Ask the homes of the other queues for what this server needs of their limits."""
        uses = {queue: use for queue, use in limits.uses().items() if queue not in home}
        needed = {
            queue: use
            for queue, use in uses.items()
            if use.wanted or use.share or queue not in self._idle
        }
        if not needed:
            return
        # A server holds at least what it uses while the claim is under way.
        limits.give({queue: use.wanted for queue, use in needed.items() if use.wanted < use.share})
        claims = {
            queue: Claim(min(use.wanted, use.limit), use.running, min(use.share, use.wanted))
            for queue, use in needed.items()
        }
        found = await self._cluster.limits.claim(claims)
        self._idle = {
            queue
            for queue in uses
            if queue not in needed or (not needed[queue].wanted and not found.get(queue))
        }
        self._give(limits, {queue: found.get(queue, 0) for queue in needed})


def _needs_more(use: LimitUse) -> bool:
    return use.waiting > 0 and use.share < use.limit
