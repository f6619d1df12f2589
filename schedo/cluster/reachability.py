"""Which of the other servers respond to this one, and how far their clocks are from its own.

Each is asked once a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from schedo.client.errors import parse_problem
from schedo.clock import Clock
from schedo.cluster.hops import Hop
from schedo.cluster.peers import Peers
from schedo.core.limits import SECOND
from schedo.errors import SchedoError
from schedo.protocol.times import parse_instant
from schedo.store.cluster import Cluster, Member

log = logging.getLogger("schedo.cluster")

PERIOD_S = 1.0
PING_S = 1.0
_PATH = "/v1/cluster"
CLOCKS_APART_US = SECOND  # from then on the log says so


class _Response(msgspec.Struct):
    now: str | None = None  # a server of an earlier version does not tell it


class Reachability:
    """Asks the other servers, and remembers since when one has not responded."""

    def __init__(self, cluster: Cluster, peers: Peers, clock: Clock) -> None:
        self._cluster, self._peers, self._clock = cluster, peers, clock
        self._unreachable: dict[int, str] = {}  # why, by the epoch of the server
        self._clocks: dict[int, int] = {}  # by the epoch, how far a clock is ahead of the own one
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def unreachable(self) -> Mapping[int, str]:
        """Why a server does not respond, by its epoch."""
        return self._unreachable

    @property
    def clocks(self) -> Mapping[int, int]:
        """By how many microseconds the clock of a server is ahead of this one's, by its epoch."""
        return self._clocks

    def notes(self) -> list[str]:
        """Return a sentence for each server that lives and does not respond."""
        return [
            f"{self._unreachable[member.epoch]}; requests about its jobs fail here"
            for member in self.others()
            if member.epoch in self._unreachable
        ]

    def others(self) -> list[Member]:
        """Return the other servers that live and can be asked.

        One whose session with the database is gone has died, or recovers from the store.
        """
        me = self._cluster.me
        return [
            each
            for each in self._cluster.members()
            if each.no != me.no and each.url and each.silent_us is not None
        ]

    def start(self) -> None:
        """Begin to ask."""
        self._task = asyncio.create_task(self._run(), name="schedo cluster")

    async def stop(self) -> None:
        """Ask no more."""
        self._stopping.set_result(None)
        if self._task is not None:
            await self._task

    async def look(self) -> None:
        """Ask all other servers once."""
        others = self.others()
        await self._peers.keep_only([member.url for member in others])
        asked = zip(others, await asyncio.gather(*map(self._ping, others)), strict=True)
        found = {member.epoch: each for member, each in asked}
        before, clocks = self._unreachable, self._clocks
        self._unreachable = {no: why for no, why in found.items() if isinstance(why, str)}
        self._clocks = {no: each for no, each in found.items() if isinstance(each, int)}
        for member in others:
            self._warn_of_clock(member, clocks.get(member.epoch, 0))
            if member.epoch in self._unreachable.keys() - before.keys():
                log.warning("%s", self._unreachable[member.epoch])
            elif member.epoch in before.keys() - self._unreachable.keys():
                log.info("the server %s can be reached again", member.name)

    async def _run(self) -> None:
        while not self._stopping.done():
            try:
                await self.look()
            except Exception:
                log.exception("a bug in schedo: the other servers were not asked")
            await asyncio.wait((self._stopping,), timeout=PERIOD_S)

    def _warn_of_clock(self, member: Member, before_us: int) -> None:
        ahead_us = self._clocks.get(member.epoch, 0)
        if abs(ahead_us) >= CLOCKS_APART_US > abs(before_us):
            log.warning(
                "the clock of the server %s is %.1f s %s this one's; keep them synchronised",
                *(member.name, abs(ahead_us) / SECOND, "ahead of" if ahead_us > 0 else "behind"),
            )

    async def _ping(self, member: Member) -> str | int | None:
        """Return why the server does not respond, or else how far its clock is ahead, if known."""
        began_at = self._clock.now()
        hop = Hop("forward", began_at, "GET", _PATH, "", "cluster", "", None)
        try:
            async with asyncio.timeout(PING_S):
                response = await self._peers.send(member, hop)
        except TimeoutError:
            return f"the server {member.name} does not respond"
        except SchedoError as error:
            return str(error)
        if response.status != 200:
            why = parse_problem(response.status, response.headers, response.body)
            return f"the server {member.name} responds with the status {response.status}: {why}"
        theirs = msgspec.json.decode(response.body, type=_Response).now
        if theirs is None:
            return None
        return parse_instant(theirs) - (began_at + self._clock.now()) // 2
