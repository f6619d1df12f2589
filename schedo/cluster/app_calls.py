"""What the code of an application asks of this server, at the owners of the jobs.

A task submits a job, waits for one or cancels one through the server that runs it, which need not
own that job, or the shard of its unique key or of its queue with a limit. Then the owner carries
the call out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from schedo.client import operations
from schedo.client.messages import Operation
from schedo.client.records import is_final
from schedo.cluster.client_request import NOT_OWNER
from schedo.cluster.homes import MOVES, explain_owner, find_maker
from schedo.cluster.hops import OwnRequest
from schedo.cluster.peers import ChangeLost, ReadLost
from schedo.cluster.servers import MOVING_S, PAUSE_S, Servers
from schedo.core.ids import parse_id, render_id
from schedo.core.model import JobSpec
from schedo.core.shards import shard_of
from schedo.engine.call_results import Accepted
from schedo.engine.other_owners import OtherOwners, Record, SubmitHere
from schedo.errors import NotFound, PeerUnreachable, SchedoError, Unavailable
from schedo.protocol.job_specs import spec_fields
from schedo.protocol.roles import Role
from schedo.store.cluster import Member
from schedo.web.permissions import TokenPermission

_PERMISSION = TokenPermission(Role.ADMIN, "application")  # its code runs in the server
_T = TypeVar("_T")
_Result = Accepted[int] | SchedoError


class _Part(NamedTuple):
    """Those jobs of a submit that one server makes."""

    owner: Member | None  # None: this server
    places: list[int]
    shards: set[int]  # of their unique keys, and of their queues with a limit


class AppCalls(OtherOwners):
    """Carries calls out at the owners of the jobs: the OtherOwners of the engine."""

    def __init__(self, servers: Servers) -> None:
        self._servers, self._cluster = servers, servers.cluster

    async def submit(self, specs: Sequence[JobSpec], here: SubmitHere) -> list[_Result]:
        results: dict[int, _Result] = {}
        until, error = _now() + MOVING_S, SchedoError(MOVES)
        while len(results) < len(specs):
            is_last = _now() > until  # known before, because one try may take all of the time
            left = [place for place in range(len(specs)) if place not in results]
            parts = self._divide(specs, left)
            submitting = (self._submit_part(specs, part, here) for part in parts)
            for part, found in zip(parts, await asyncio.gather(*submitting), strict=True):
                for place, result in zip(part.places, found, strict=True):
                    if isinstance(result, Unavailable) and not is_last:
                        error = result  # nothing has happened
                    else:
                        results[place] = result
            if len(results) < len(specs):
                if is_last:
                    moves = Unavailable(str(error))
                    return [results.get(place, moves) for place in range(len(specs))]
                await self._servers.wait_for_change(PAUSE_S)
        return [results[place] for place in range(len(specs))]

    async def wait(
        self, job_id: int, timeout_s: float, here: Callable[[float], Awaitable[Record]]
    ) -> Record:
        end = _now() + timeout_s

        def left_s() -> float:
            return max(0.0, end - _now())

        while True:
            record = await self._at_owner(
                job_id,
                lambda: next(operations.wait_job(render_id(job_id), left_s(), _now)),
                lambda: here(left_s()),
            )
            if is_final(record) or not left_s():
                return record

    async def cancel(self, job_id: int, here: Callable[[], Awaitable[Record]]) -> Record:
        cancel = operations.cancel_job(render_id(job_id))
        return await self._at_owner(job_id, lambda: cancel, here)

    def _divide(self, specs: Sequence[JobSpec], places: Sequence[int]) -> list[_Part]:
        """Return a part for each owner; jobs whose shard has none now are in no part."""
        maker, parts = find_maker(self._cluster), dict[int, _Part]()
        for place in places:
            home = self._find_home(specs[place])
            shard = maker if home is None else shard_of(home)
            owner = None
            if shard is not None and not self._cluster.is_mine(shard):
                owner = self._cluster.owner(shard)
                if owner is None or not owner.url:
                    continue
            part = parts.setdefault(0 if owner is None else owner.no, _Part(owner, [], set()))
            part.places.append(place)
            if shard is not None:
                part.shards.add(shard)
        return [*parts.values()]

    def _find_home(self, spec: JobSpec) -> str | None:
        """Return the text whose shard must have the job; None: any may.

        The order is that of request_shards.py, without an Idempotency-Key.
        """
        unique = spec.options.unique
        if unique is not None:
            return unique.key
        return spec.queue if self._servers.has_limit(spec.queue) else None

    async def _submit_part(
        self, specs: Sequence[JobSpec], part: _Part, here: SubmitHere
    ) -> Sequence[_Result]:
        """Return a result for each job.

        After an error the rest is not submitted, and has this error; what came before is made.
        """
        wanted = [specs[place] for place in part.places]
        found: list[_Result] = []
        try:
            if part.owner is None:
                return await here(wanted, part.shards)
            for operation in operations.submit_many([*map(spec_fields, wanted)]):
                items = await self._send(part.owner, operation)
                found += map(_to_result, items)
        except SchedoError as error:
            found += [error] * (len(wanted) - len(found))
        return found

    async def _at_owner(
        self,
        job_id: int,
        ask: Callable[[], Operation[Record]],
        here: Callable[[], Awaitable[Record]],
    ) -> Record:
        """Return what the owner of the job responds; these calls can be repeated."""
        until = _now() + MOVING_S
        lost: SchedoError | None = None  # what the first owner did not respond to
        while True:
            is_last = _now() > until  # known before, because one try may take all of the time
            shard = await self._cluster.shard_of_job(job_id)
            if shard is None:
                return await self._find(ask, here)
            own = await self._carry_out_if_mine(shard, here)
            if own is not None:
                return own
            try:
                return await self._ask(shard, ask())
            except (PeerUnreachable, ChangeLost, Unavailable) as error:
                found = error
            if lost is None and isinstance(found, (ReadLost, ChangeLost)):
                lost, until, is_last = found, _now() + MOVING_S, False  # it was perhaps held
            if is_last:
                raise lost or found
            await self._servers.wait_for_change(PAUSE_S)

    async def _carry_out_if_mine(
        self, shard: int, here: Callable[[], Awaitable[Record]]
    ) -> Record | None:
        """Return the record of a job of this server; None: another one owns the shard."""
        if self._cluster.is_mine(shard):
            try:
                return await here()
            except (NotFound, Unavailable):
                if self._cluster.is_mine(shard):
                    raise
        return None

    async def _find(
        self, ask: Callable[[], Operation[Record]], here: Callable[[], Awaitable[Record]]
    ) -> Record:
        """Return the job, which is not in the store, from the memory of the server that ended it.

        Raise NotFound.
        """
        try:
            return await here()
        except NotFound:
            for member in self._servers.others():
                with suppress(NotFound, Unavailable, ChangeLost):
                    return await self._send(member, ask())
            raise

    async def _ask(self, shard: int, operation: Operation[_T]) -> _T:
        """Return what the owner of the shard responds to an operation of a client."""
        owner = self._cluster.owner(shard)
        if owner is None or not owner.url or self._cluster.is_mine(shard):
            raise explain_owner(self._cluster, shard)
        return await self._send(owner, operation)

    async def _send(self, member: Member, operation: Operation[_T]) -> _T:
        """Return what another server responds to an operation of a client."""
        asked = OwnRequest(
            operation.method, operation.target, "application", _PERMISSION, operation.body
        )
        response = await self._servers.send(member, "forward", asked, operation.held_s)
        if NOT_OWNER.decode() in response.headers:
            raise Unavailable(MOVES)
        return operation.read(response)


def _to_result(item: Record | SchedoError) -> _Result:
    if isinstance(item, SchedoError):
        return item
    return Accepted(parse_id(item["id"]), bool(item.get("conflict")))


def _now() -> float:
    return asyncio.get_running_loop().time()
