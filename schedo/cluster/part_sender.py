"""Sends the parts of a worker's request to the servers that own the jobs of its leases."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import msgspec

from schedo.cluster.client_request import NOT_OWNER, to_response
from schedo.cluster.lease_owners import LeaseOwners
from schedo.cluster.parts_of_gateways import Recall
from schedo.cluster.polling_worker import Unanswered
from schedo.cluster.servers import Servers
from schedo.cluster.work_parts import PartResponse, read_response
from schedo.cluster.worker_call import Refusal, WorkerCall
from schedo.errors import SchedoError, WorkerReplaced
from schedo.store.cluster import Member
from schedo.web.http import Response

RESULT_S = 1.0  # how long results wait for a silent owner; they can be sent again
LIST_S = 3.0  # the same for a part for which no request of the worker waits
MOVING_TEXT = "the jobs of some results move to another server; send the request again"


class PartSender:
    """Asks the owners of the jobs that a worker runs, in the name of the worker."""

    def __init__(self, servers: Servers, owners: LeaseOwners) -> None:
        self._servers, self._owners = servers, owners

    async def ask(
        self, call: WorkerCall, member: Member, leases: Collection[str]
    ) -> PartResponse | None:
        """Return what a server says of its part; None: it does not own the jobs, or is silent."""
        response = await self._send(call, member, leases)
        if response is None or (NOT_OWNER, b"1") in response.headers:
            if response is not None:
                self._owners.forget(call, member, leases)
            return None
        if response.status == 200:
            return read_response(response.body)
        if response.status == WorkerReplaced.status or call.request.changed & {*leases}:
            raise Refusal(response)
        return None

    async def _send(
        self, call: WorkerCall, member: Member, leases: Collection[str]
    ) -> Response | None:
        """Return the response of another server to its part; None: there is none."""
        # With those whose results are on their way, so that no owner misses them in the list.
        known = {*call.request.leases, *call.worker.elsewhere} - call.ended
        others = [*known.difference(leases)]
        fields: dict[str, Any] = {"wait": 0, "max_leases": 0, "age_us": call.age_us}
        part = call.request.make_part(leases, elsewhere=others, relayed=True, **fields)
        asked = replace(call.asked, request=call.asked.request._replace(body=part, is_part=True))
        # A silent owner does not hold the request: a part can be sent again, and leases that are
        # given too late start again. But an owner answers an accepted offer only when all workers
        # of its gang have decided.
        is_accept = not {*(call.request.fields.accept or ())}.isdisjoint(leases)
        is_awaited = not call.request.changed.isdisjoint(leases)
        limit_s = None if is_accept else RESULT_S if is_awaited else LIST_S
        response = None
        try:
            async with asyncio.timeout(limit_s):
                response = to_response(await asked.send(member, "work"))
        except (SchedoError, TimeoutError):
            pass
        if response is not None and response.status == 200:
            call.note_heard(member.no)
        return response

    def list_again(self, call: WorkerCall) -> None:
        """Say what the worker runs to the servers whose leases may have been lost on their way.

        There, a lease that the worker does not run starts again. Nothing waits for this.
        """
        if not call.worker.unanswered or call.request.fields.running is None:
            return
        living = {member.no: member for member in self._servers.others()}
        told = {member.no for member, _ in self._owners.group(call, call.worker.elsewhere)}
        for asked in call.worker.find_untold(living.keys(), told):
            self._servers.begin(self._list_to(call, living[asked.no], asked))

    async def _list_to(self, call: WorkerCall, member: Member, asked: Unanswered) -> None:
        asked.is_told_now = True
        try:
            await self._send(call, member, ())
        finally:
            asked.is_told_now = False

    async def tell_left(self, call: WorkerCall) -> None:
        """Let the owners of the worker's jobs know that its connection broke.

        If it sends none of them a request soon, through any server, its jobs are lost there.
        """
        owners = self._owners.group(call, call.worker.elsewhere)
        body = msgspec.json.encode(Recall(call.name, has_left=True))
        await asyncio.gather(
            *(self._servers.ask(each, "recall", body, dict, LIST_S) for each, _ in owners)
        )

    async def end_elsewhere(self, call: WorkerCall) -> None:
        """Let all other servers know that the worker has ended; those that know it wait for it."""
        others = self._servers.others()
        await asyncio.gather(*(self._send(call, member, ()) for member in others))
