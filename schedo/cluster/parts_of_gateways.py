"""The parts of the requests of workers that their gateways send to the owners of the jobs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from schedo.cluster.client_request import ClientRequest, refuse
from schedo.cluster.lease_owners import LeaseOwners
from schedo.cluster.surplus import OwnSurplus
from schedo.cluster.work_parts import WorkerRequest, denies_nothing, read_response
from schedo.engine.workers import Workers
from schedo.errors import NotFound
from schedo.protocol.leases import LeaseText, parse_lease, render_lease
from schedo.web.http import Response

EMPTY_S = 0.02  # after which a server that is asked for jobs says that it has none


class _HeldPoll:
    """A poll that a gateway keeps open here, until there is a job or its time is up."""

    def __init__(self, sessions: Workers, name: str, number: int, held_s: float) -> None:
        """number: by which the gateway knows it; held_s: after which it ends without a job."""
        self._sessions, self._name, self.number = sessions, name, number
        self._timer = asyncio.get_running_loop().call_later(held_s, self.end)

    def end(self) -> None:
        """Ask the engine to end the poll, and again every EMPTY_S until it has ended.

        While a start for the worker is being stored, it is not asked: the lease comes with this
        response, because the gateway may not poll again for long. Nor is a poll that is still
        being read.
        """
        with suppress(NotFound):
            known = self._sessions.get(self._name)
            if known.running - known.reserved <= len(self._sessions.held_by(self._name)):
                self._sessions.end_poll(self._name)
        self.close()
        self._timer = asyncio.get_running_loop().call_later(EMPTY_S, self.end)

    def close(self) -> None:
        """Note that it has ended."""
        self._timer.cancel()


class _Hold(msgspec.Struct):
    hold: float = 0.0  # how long a server waits for a job, in seconds
    number: int = 0  # by which the gateway knows the poll


class Recall(msgspec.Struct):
    """What a gateway takes back that it has asked for in the name of a worker.

    number: of the poll that is to end; unsent: leases that the worker has not got, and that are to
    be released; has_left: the connection of the worker to the gateway broke.
    """

    worker: str
    number: int | None = None
    unsent: list[LeaseText] = []
    has_left: bool = False


_HOLD = msgspec.json.Decoder(_Hold)
_RECALL = msgspec.json.Decoder(Recall)


class PartsOfGateways:
    """Carries out the parts of the requests of workers that poll other servers."""

    def __init__(self, owners: LeaseOwners, own_surplus: OwnSurplus) -> None:
        self._owners, self._own_surplus = owners, own_surplus
        self._polls: dict[str, _HeldPoll] = {}  # the newest open one of each worker

    async def respond(self, asked: ClientRequest, request: WorkerRequest) -> Response:
        """Carry out a part, unless it is about a job of another server.

        Raise NotFound for the end of a worker that this server does not know.
        """
        try:
            return await self._respond(asked, request)
        finally:
            if request.is_poll:
                self._own_surplus.note_asked()

    async def _respond(self, asked: ClientRequest, request: WorkerRequest) -> Response:
        name, sessions = request.fields.worker, asked.context.engine.sessions
        if request.has_ended and not request.leases:
            sessions.get(name)
        held = {render_lease(lease.key) for lease in sessions.held_by(name)}
        unknown = [lease for lease in request.leases if lease not in held]
        if unknown and len(await self._owners.find_owned(unknown)) < len(unknown):
            return refuse(asked.request)
        response = await self._carry_out(asked, request)
        if response.status != 200 or denies_nothing(response.body):
            return response
        answer = read_response(response.body)
        owned = await self._owners.find_owned(answer.denied)
        moved = {*answer.denied} - owned  # their shards have moved meanwhile
        if moved & request.changed:
            return refuse(asked.request)  # it has no leases, because it was not asked for any
        # The leases must reach the worker. The gateway finds the owners of the others later.
        body = msgspec.json.encode(answer.without_denials(owned)) if moved else response.body
        return response._replace(body=body)

    def recall(self, asked: ClientRequest) -> Response:
        """End the poll of a worker of another server, and release leases that it has not got."""
        recall, sessions = _RECALL.decode(asked.request.body), asked.context.engine.sessions
        # A newer poll of the worker goes on, and so does one that it sends to this server itself.
        poll = self._polls.get(recall.worker)
        if poll is not None and poll.number == recall.number:
            poll.end()
        if recall.has_left and asked.hop is not None:
            sessions.note_left(recall.worker, asked.hop.at)
        if recall.unsent:
            sessions.release_unsent(recall.worker, [parse_lease(each) for each in recall.unsent])
        return Response(200, b"{}")

    async def _carry_out(self, asked: ClientRequest, request: WorkerRequest) -> Response:
        """Carry out a part; if it asks for jobs, respond in time unless one of them has started."""
        if not request.is_poll:
            return await asked.here()
        name, hold = request.fields.worker, _HOLD.decode(asked.request.body)
        sessions = asked.context.engine.sessions
        poll = _HeldPoll(sessions, name, hold.number, hold.hold or EMPTY_S)
        self._polls[name] = poll
        try:
            return await asked.here()
        finally:
            poll.close()
            if self._polls.get(name) is poll:
                del self._polls[name]
