"""Surplus: jobs that are ready at one server, where no worker has room, while another one has some.

A server whose workers wait asks each other server for its surplus. The other one holds the request
until it has some, so a job waits for two requests between servers and for no interval. What is
asked for then, in the name of a worker with room, decides the owner alone: no job is offered twice,
and the worker's own poll has ended before, so no slot is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from schedo.cluster.hops import OwnRequest
from schedo.core.model import ReadyKey
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.workers import Workers
from schedo.errors import SchedoError
from schedo.protocol.roles import Role
from schedo.store.cluster import Member
from schedo.web.http import Response
from schedo.web.permissions import TokenPermission

if TYPE_CHECKING:
    from schedo.cluster.router import Router

KEYS_MAX = 16  # ready keys in one response
HELD_S = 10.0  # how long a request for the surplus is held
TAKING_S = 0.002  # before the next request, while workers here take what the last one has said
PAUSE_S = 0.05  # the same when no worker here takes any of it; it doubles
PAUSE_S_MAX = 1.0
_PERMISSION = TokenPermission(Role.ADMIN, "cluster")  # no client asks


class Found(msgspec.Struct):
    """The surplus of a server: ready keys, and how many of their jobs could start at least."""

    ready: list[tuple[ReadyKey, int]] = []


class OwnSurplus:
    """What the workers of this server have no room for, told to the servers that ask."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._questions: set[asyncio.Future[Found]] = set()
        workers.watch_surplus(self._look)

    async def respond(self) -> Response:
        """Return the surplus as soon as there is some, or nothing after HELD_S."""
        asking: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._questions.add(asking)
        self._look()
        try:
            await asyncio.wait((asking,), timeout=HELD_S)
            return Response(200, msgspec.json.encode(asking.result() if asking.done() else Found()))
        finally:
            self._questions.discard(asking)

    def _look(self) -> None:
        if not self._questions:
            return
        found = self._workers.find_surplus(KEYS_MAX)
        if found:
            for asking in self._questions:
                asking.set_result(Found([*found.items()]))
            self._questions.clear()


class SurplusOfOthers:
    """What the other servers have no room for, as far as they have said it."""

    def __init__(self, router: Router, wake: Callable[[int, Found], bool]) -> None:
        """wake: lets workers that wait ask a server; returns whether any of them does."""
        self._router, self._wake = router, wake
        self._known: dict[int, Found] = {}  # by the number of the server
        self._questions: set[int] = set()  # the epochs of the servers that are asked
        self._wanted_s = 0.0

    def want(self) -> None:
        """Ask all other servers while workers wait."""
        self._wanted_s = asyncio.get_running_loop().time()
        for member in self._router.others():
            if member.epoch not in self._questions:
                self._questions.add(member.epoch)
                self._router.begin(self._ask_on(member))

    def serving(self, spec: WorkerSpec) -> list[int]:
        """Return the servers that have said that they have jobs for such a worker."""
        return [no for no, found in self._known.items() if count_for(spec, found)]

    def forget(self, no: int) -> None:
        """Forget what a server has said: it has given nothing."""
        self._known.pop(no, None)

    async def _ask_on(self, member: Member) -> None:
        pause_s = TAKING_S
        try:
            while self._is_wanted() and self._lives(member):
                found = await self._ask(member)
                if found.ready:
                    self._known[member.no] = found
                    if self._wake(member.no, found):
                        pause_s = TAKING_S
                    else:
                        pause_s = min(max(2 * pause_s, PAUSE_S), PAUSE_S_MAX)
                    await self._router.wait_for_change(pause_s)
                else:
                    self.forget(member.no)
        finally:
            self.forget(member.no)
            self._questions.discard(member.epoch)

    async def _ask(self, member: Member) -> Found:
        own = OwnRequest("POST", "/v1/work", "surplus", _PERMISSION, b"{}")
        try:
            response = await self._router.send(member, "surplus", own, HELD_S)
            if response.status == 200:
                return msgspec.json.decode(response.body, type=Found)
        except (SchedoError, msgspec.MsgspecError):
            pass
        await self._router.wait_for_change(PAUSE_S_MAX)  # it is gone, or too old to know of this
        return Found()

    def _is_wanted(self) -> bool:
        return asyncio.get_running_loop().time() - self._wanted_s < HELD_S

    def _lives(self, member: Member) -> bool:
        return any(each.epoch == member.epoch for each in self._router.others())


def count_for(spec: WorkerSpec, found: Found) -> int:
    """Return how many of the jobs such a worker could run, at least."""
    return sum(count for ready_key, count in found.ready if spec.serves(ready_key))
