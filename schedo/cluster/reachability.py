"""Which of the other servers respond to this one, and how far the clocks of their machines are off.

Each is asked once a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import msgspec

from schedo.client.errors import parse_problem
from schedo.client.messages import HttpResponse
from schedo.clock import Clock
from schedo.cluster.hops import Hop
from schedo.cluster.peers import Peers, Stranger
from schedo.core.limits import SECOND
from schedo.errors import PeerUnreachable, SchedoError
from schedo.protocol.times import parse_instant
from schedo.store.cluster import Cluster, Member

log = logging.getLogger("schedo.cluster")

PERIOD_S = 1.0
PING_S = 1.0
_PATH = "/v1/cluster"
# Through a load balancer, some of the requests come to the right server. This is how many must do
# so one after the other before its URL counts as right again.
FINE_LOOKS = 60
CLOCK_OFF_US = SECOND  # from then on the log says so


class _Member(msgspec.Struct):
    number: int
    clock_ahead_us: int = 0


class Described(msgspec.Struct):
    """What a server says of its cluster, as far as the others need it."""

    me: int
    members: list[_Member]
    now: str | None = None  # a server of an earlier version does not tell it


def make_question(now: int) -> Hop:
    """Return the request that asks a server who it is, and what it sees."""
    return Hop("forward", now, "GET", _PATH, "", "cluster", "", None)


class UrlCheck:
    """Why the URL of a server is wrong, by who responds there."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self._fine_looks = 0  # since the last response of another one

    def note(self, problem: str | None) -> str | None:
        """Note a response; return why the URL is wrong by this one and those before it."""
        self._fine_looks = 0 if problem else self._fine_looks + 1
        if problem or self._fine_looks >= FINE_LOOKS:
            self.problem = problem
        return self.problem


def find_impostor(cluster: Cluster, member: Member, number: int) -> str | None:
    """Return what is wrong if the server with this number responds at the URL of the member."""
    if number == member.no:
        return None
    names = [each.name for each in cluster.members() if each.no == number]
    return (
        f"what responds at {member.url} is the server {names[0] if names else number}, and not"
        f" {member.name}; `advertise` is to be the URL of that server alone"
    )


class Reachability:
    """Asks the other servers, and remembers since when one has not responded."""

    def __init__(self, cluster: Cluster, peers: Peers, clock: Clock) -> None:
        self._cluster, self._peers, self._clock = cluster, peers, clock
        self._unreachable: dict[int, str] = {}  # why, by the epoch of the server
        self._checks: dict[int, UrlCheck] = {}  # by the epoch of the server
        self._clocks: dict[int, int] = {}  # by the epoch, how far a machine's clock is ahead
        self._ahead_us = 0  # the clock of this machine, at the last look
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def unreachable(self) -> Mapping[int, str]:
        """Why a server does not respond, by its epoch."""
        return self._unreachable

    @property
    def clocks(self) -> Mapping[int, int]:
        """By how many microseconds the clock of a machine is ahead, by the epoch of its server.

        Ahead of the clock that the jobs follow, which is that of the database.
        """
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

    def start(self, look: Callable[[], Awaitable[None]]) -> None:
        """Begin to ask; look: asks the other servers, also for what concerns other parts."""
        self._task = asyncio.create_task(self._run(look), name="schedo cluster")

    async def stop(self) -> None:
        """Ask no more."""
        self._stopping.set_result(None)
        if self._task is not None:
            await self._task

    async def look(self) -> None:
        """Ask all other servers once."""
        self._check_clock()
        others = self.others()
        self._checks = {each.epoch: self._checks.get(each.epoch, UrlCheck()) for each in others}
        await self._peers.keep_only([member.url for member in (self._cluster.me, *others)])
        asked = zip(others, await asyncio.gather(*map(self._ping, others)), strict=True)
        found = {member.epoch: each for member, each in asked}
        before = self._unreachable
        self._unreachable = {no: why for no, why in found.items() if isinstance(why, str)}
        self._clocks = {no: each for no, each in found.items() if isinstance(each, int)}
        for member in others:
            if member.epoch in self._unreachable.keys() - before.keys():
                log.warning("%s", self._unreachable[member.epoch])
            elif member.epoch in before.keys() - self._unreachable.keys():
                log.info("the server %s can be reached again", member.name)

    async def _run(self, look: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.done():
            try:
                await look()
            except Exception:
                log.exception("a bug in schedo: the other servers were not asked")
            await asyncio.wait((self._stopping,), timeout=PERIOD_S)

    def _check_clock(self) -> None:
        before_us, self._ahead_us = self._ahead_us, self._clock.ahead_us()
        if abs(self._ahead_us) >= CLOCK_OFF_US > abs(before_us):
            log.warning(
                "the clock of this machine is %.1f s %s that of the database; jobs follow that of"
                " the database, and the times in this log do not",
                *(abs(self._ahead_us) / SECOND, "ahead of" if self._ahead_us > 0 else "behind"),
            )

    async def _ping(self, member: Member) -> str | int | None:
        """Return why the server does not respond, or how far its machine's clock is ahead.

        None: that is not known. A server of an earlier version follows the clock of its machine.
        """
        began_at = self._clock.now()
        try:
            async with asyncio.timeout(PING_S):
                response = await self._peers.send(member, make_question(began_at))
            found = _read(member, response)
        except TimeoutError:
            return f"the server {member.name} does not respond"
        except SchedoError as error:
            return str(error)
        problem = self._checks[member.epoch].note(find_impostor(self._cluster, member, found.me))
        if problem is not None:
            return problem
        if found.now is None:
            return None
        apart_us = parse_instant(found.now) - (began_at + self._clock.now()) // 2
        return apart_us + sum(
            each.clock_ahead_us for each in found.members if each.number == found.me
        )


def _read(member: Member, response: HttpResponse) -> Described:
    """Return what the server says of itself; raise PeerUnreachable for any other response."""
    if response.status != HTTPStatus.OK:
        why = parse_problem(response.status, response.headers, response.body)
        raise PeerUnreachable(
            f"the server {member.name} responds with the status {response.status}: {why}"
        )
    try:
        return msgspec.json.decode(response.body, type=Described)
    except msgspec.MsgspecError as error:
        raise Stranger(
            f"what responds at {member.url} is not the server {member.name}; `advertise` of that"
            " server is to be its own URL"
        ) from error
