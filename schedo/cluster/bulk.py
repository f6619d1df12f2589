"""Lets each server change its own jobs for an operation on many jobs.

The operation is carried out by the server that began it. It searches the jobs of all servers, and
for each step it sends every other server one request with those jobs that are that one's. What an
undo needs comes back with the response, so that the operation's own commit has all of it. Until
then, the other server has it in a step of its own, because the response may be lost. If so, the
operation finds it there before it asks again (see engine/bulk_parts.py).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.homes import owns_all
from schedo.cluster.hops import OwnRequest
from schedo.cluster.servers import Servers
from schedo.core.bulk import BulkOperation
from schedo.core.bulk_commands import Changed, ChangeForOther, PutBackForOther
from schedo.core.bulk_undo import JobBefore
from schedo.core.ids import render_id
from schedo.engine.bulk_parts import BulkParts
from schedo.errors import SchedoError, Unavailable
from schedo.protocol.roles import Role
from schedo.store.cluster import Member
from schedo.web.http import Response
from schedo.web.permissions import TokenPermission

# For so long a step waits for jobs whose shards move, or whose owner does not respond.
MOVING_S = 10.0
_PAUSE_S = 0.05
_NUMBER_BITS = 62  # of a random number, which no two steps of an operation share
_PATH = "/v1/operations"
_PERMISSION = TokenPermission(Role.ADMIN, "operation")  # who began it was allowed to
_T = TypeVar("_T")


class _Part(msgspec.Struct, omit_defaults=True):
    """The jobs of a step that belong to one server: to change, or to put back."""

    operation: BulkOperation | None = None
    job_ids: tuple[int, ...] = ()
    put_back: tuple[JobBefore, ...] = ()
    number: int = 0  # of the step that the other server keeps


_PART = msgspec.json.Decoder(_Part)
_CHANGED = msgspec.json.Decoder(Changed)


class BulkChanges:
    """Changes jobs of other servers: the OtherServers of the engine's operations."""

    def __init__(self, servers: Servers, parts: BulkParts) -> None:
        self._servers, self._parts = servers, parts

    async def change(
        self, operation: BulkOperation, ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Changed]:
        def make_part(some: tuple[int, ...]) -> _Part:
            return _Part(operation, some, number=-1 - secrets.randbits(_NUMBER_BITS))

        return await self._share(ids, _itself, make_part, f"operation {render_id(operation.id)}")

    async def put_back(self, jobs: tuple[JobBefore, ...]) -> tuple[tuple[JobBefore, ...], Changed]:
        def make_part(some: tuple[JobBefore, ...]) -> _Part:
            return _Part(put_back=some)

        return await self._share(jobs, _id_of, make_part, "undo")

    async def _share(
        self,
        items: tuple[_T, ...],
        id_of: Callable[[_T], int],
        make_part: Callable[[tuple[_T, ...]], _Part],
        name: str,
    ) -> tuple[tuple[_T, ...], Changed]:
        """Return the items of this server, and what the others have done with theirs.

        A job that has moved meanwhile goes to its new owner.
        """
        cluster, left = self._servers.cluster, {id_of(each): each for each in items}
        if owns_all(cluster):  # not yet, if the last other server has just died
            return items, Changed()
        own: list[_T] = []
        done: list[Changed] = []
        loop = asyncio.get_running_loop()
        until, error = loop.time() + MOVING_S, SchedoError("some jobs move to another server")
        lost: dict[int, _Part] = {}
        while left:
            shards = await cluster.shards_of_jobs([*left])
            mine = {ident for ident, shard in shards.items() if cluster.is_mine(shard)}
            # The owner of before can change no job of those that are now found here or elsewhere.
            done.append(await self._find_lost(lost, left))
            done.append(Changed(skipped=len(left.keys() - shards.keys())))  # they are gone
            own += [item for ident, item in left.items() if ident in mine]
            left = {i: item for i, item in left.items() if i in shards and i not in mine}
            for part, ids, found in await self._send_all(left, shards, make_part, name):
                if isinstance(found, SchedoError):
                    error, lost[part.number] = found, part
                else:
                    done.append(found._replace(missing=()))
                    for ident in {*ids}.difference(found.missing):
                        del left[ident]
            if left:
                if loop.time() > until:
                    raise Unavailable(f"some jobs of an operation wait for their owner: {error}")
                await self._servers.wait_for_change(_PAUSE_S)
        return tuple(own), Changed.total(done)

    async def _find_lost(self, lost: dict[int, _Part], left: dict[int, Any]) -> Changed:
        """Return what parts have done whose responses were lost; leave these jobs out.

        lost: the parts by the numbers of their records. One without a record may be carried out
        yet: the server that gets its jobs again keeps the two apart.
        """
        found: list[Changed] = []
        operations = {part.operation.id for part in lost.values() if part.operation is not None}
        for operation_id in operations:
            for step in await self._parts.load_kept(operation_id):
                if lost.pop(step.number, None) is not None:
                    found.append(Changed.of_record(step))
                    for job in step.jobs:
                        left.pop(job.id, None)
        return Changed.total(found)

    async def _send_all(
        self,
        left: Mapping[int, _T],
        shards: Mapping[int, int],
        make_part: Callable[[tuple[_T, ...]], _Part],
        name: str,
    ) -> list[tuple[_Part, list[int], Changed | SchedoError]]:
        """Send each owner its part, and return what came of it."""
        groups = self._group(left, shards)
        parts = [make_part(tuple(left[ident] for ident in ids)) for _, ids in groups]
        sending = [
            self._send(member, part, name) for (member, _), part in zip(groups, parts, strict=True)
        ]
        found = await asyncio.gather(*sending)
        return [
            (part, ids, each) for part, (_, ids), each in zip(parts, groups, found, strict=True)
        ]

    def _group(
        self, ids: Iterable[int], shards: Mapping[int, int]
    ) -> list[tuple[Member, list[int]]]:
        groups: dict[int, tuple[Member, list[int]]] = {}
        for ident in ids:
            owner = self._servers.cluster.owner(shards[ident])
            if owner is not None and owner.url and owner.no != self._servers.cluster.me.no:
                groups.setdefault(owner.no, (owner, []))[1].append(ident)
        return [*groups.values()]

    async def _send(self, member: Member, part: _Part, name: str) -> Changed | SchedoError:
        """Return what a server has changed, or why that is not known."""
        request = OwnRequest("POST", _PATH, name, _PERMISSION, msgspec.json.encode(part))
        try:
            response = await self._servers.send(member, "confirm", request)
        except SchedoError as error:
            return error
        if response.status != 200:
            return SchedoError(f"the server {member.name} responds with {response.status}")
        changed = _CHANGED.decode(response.body)
        return changed._replace(kept=(part.number,) if changed.before else ())


async def change_own_jobs(asked: ClientRequest) -> Response:
    """Carry out a part that another server has sent."""
    part, parts = _PART.decode(asked.request.body), asked.context.engine.bulk.parts
    if part.operation is None:
        changed = await parts.carry_out(PutBackForOther(part.put_back))
    else:
        changed = await parts.carry_out(ChangeForOther(part.operation, part.job_ids, part.number))
    # Without `kept`, which the other server knows: one of the version before takes no more.
    return Response(200, msgspec.json.encode(changed[:-1]))


def _itself(job_id: int) -> int:
    return job_id


def _id_of(job: JobBefore) -> int:
    return job.id
