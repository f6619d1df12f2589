"""Whether this server responds at the URL that it gives to the others.

Only the response of another program or server proves that the URL is wrong. A server behind a NAT
may not reach itself although the others do, so that is only in the log.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from schedo.clock import Clock
from schedo.cluster.peers import Peers, Stranger
from schedo.cluster.reachability import (
    PING_S,
    Described,
    UrlCheck,
    find_impostor,
    make_question,
)
from schedo.errors import SchedoError
from schedo.store.cluster import Cluster, Member, MemberState

log = logging.getLogger("schedo.cluster")


class OwnUrl:
    """Asks once a second who responds at the URL of this server."""

    def __init__(self, cluster: Cluster, peers: Peers, clock: Clock) -> None:
        self._cluster, self._peers, self._clock = cluster, peers, clock
        self._check = UrlCheck()
        self._is_unreachable = False

    @property
    def problem(self) -> str | None:
        """Why the URL is wrong."""
        return self._check.problem

    async def look(self) -> None:
        """Ask once, if the others know the URL. A server that leaves accepts no requests soon."""
        me = self._cluster.me
        if not me.url or me.state is not MemberState.OPEN or self._cluster.has_lost(me):
            return
        try:
            self._note(await self._find_problem(me))
            self._is_unreachable = False
        except (SchedoError, TimeoutError) as error:
            self._note_silence(me.url, str(error) or "no response")

    def _note_silence(self, url: str, why: str) -> None:
        is_needed = len(self._cluster.members()) > 1  # another server is there to use the URL
        if is_needed and not self._is_unreachable:
            log.warning(
                "this server does not reach itself at %s (%s); if the other servers do, as from"
                " outside of a NAT, nothing is wrong, else correct `advertise`",
                *(url, why),
            )
        self._is_unreachable = is_needed

    def _note(self, problem: str | None) -> None:
        before, now = self.problem, self._check.note(problem)
        if now and not before:
            log.warning("the other servers do not reach this one: %s", now)
        elif before and not now:
            log.info("the URL of this server is right again")

    async def _find_problem(self, me: Member) -> str | None:
        """Return who responds in place of this server; raise SchedoError if nothing does."""
        try:
            async with asyncio.timeout(PING_S):
                response = await self._peers.send(me, make_question(self._clock.now()))
            if response.status != 200:
                return None  # it is this server, which starts or stops
            number = msgspec.json.decode(response.body, type=Described).me
        except (Stranger, msgspec.MsgspecError) as error:
            why = f"what responds at {me.url} is not the server {me.name}; correct `advertise`"
            return str(error) if isinstance(error, Stranger) else why
        return find_impostor(self._cluster, self._cluster.me, number)
