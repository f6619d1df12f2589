"""The parts of the requests of workers that their gateways send to the owners of the jobs."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from schedo.cluster.client_request import ClientRequest, refuse
from schedo.cluster.lease_owners import LeaseOwners
from schedo.cluster.surplus import OwnSurplus
from schedo.cluster.work_parts import WorkerRequest, denies_nothing, read_response
from schedo.errors import NotFound
from schedo.protocol.leases import LeaseText, parse_lease, render_lease
from schedo.web.http import Response

EMPTY_S = 0.02  # after which a server that is asked for jobs says that it has none


class _HeldPoll:
    """A poll that a gateway keeps open here."""

    def __init__(self, number: int) -> None:
        self.number = number  # by which the gateway knows it
        self.is_recalled = asyncio.Event()


class _Hold(msgspec.Struct):
    hold: float = 0.0  # how long a server waits for a job, in seconds
    number: int = 0  # by which the gateway knows the poll


class Recall(msgspec.Struct):
    """What a gateway takes back that it has asked for in the name of a worker.

    number: of the poll that is to end; unsent: leases that the worker has not got, and that are to
    be released.
    """

    worker: str
    number: int | None = None
    unsent: list[LeaseText] = []


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
            poll.is_recalled.set()
        if recall.unsent:
            sessions.release_unsent(recall.worker, [parse_lease(each) for each in recall.unsent])
        return Response(200, b"{}")

    async def _carry_out(self, asked: ClientRequest, request: WorkerRequest) -> Response:
        """Carry out a part; if it asks for jobs, respond in time unless one of them has started."""
        if not request.is_poll:
            return await asked.here()
        name, hold = request.fields.worker, _HOLD.decode(asked.request.body)
        poll = self._polls[name] = _HeldPoll(hold.number)
        try:
            return await _carry_out_poll(asked, name, poll, hold.hold or EMPTY_S)
        finally:
            if self._polls.get(name) is poll:
                del self._polls[name]


async def _carry_out_poll(
    asked: ClientRequest, name: str, poll: _HeldPoll, held_s: float
) -> Response:
    """Respond when there is a job, after `held_s`, or when the gateway recalls the poll.

    A job whose start is not durable yet is waited for: the gateway may not poll again for long.
    """
    sessions = asked.context.engine.sessions
    carrying_out = asyncio.ensure_future(asked.here())
    recalling = asyncio.ensure_future(poll.is_recalled.wait())
    try:
        await asyncio.wait(
            (carrying_out, recalling), timeout=held_s, return_when=asyncio.FIRST_COMPLETED
        )
        while not carrying_out.done():
            with suppress(NotFound):  # the poll is still being read; it is ended the next time
                if sessions.get(name).running <= len(sessions.held_by(name)):
                    sessions.end_poll(name)
            await asyncio.wait((carrying_out,), timeout=EMPTY_S)
        return await carrying_out
    finally:
        carrying_out.cancel()
        recalling.cancel()
