"""Asks the owners of the attempts that a worker runs for other servers, each at its own pace.

A response to the worker waits for the results and decisions that its request brings, and for what
the owners say at once. What a slow owner says later ends the worker's poll that waits then, or
comes with its next one. So a slow owner delays only what is about its own jobs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Set
from contextlib import suppress

from schedo.cluster.lease_owners import LeaseOwners
from schedo.cluster.owner_pace import UNKNOWN
from schedo.cluster.part_sender import MOVING_TEXT, PartSender
from schedo.cluster.polling_worker import OwnerRequest
from schedo.cluster.servers import MOVING_S, PAUSE_S, Servers
from schedo.cluster.worker_call import Refusal, WorkerCall
from schedo.errors import SchedoError, Unavailable
from schedo.store.cluster import Member

# Requests without results to one server at a time. At a change of owners, a thousand workers have
# one: with a connection for each, the servers had no time for their jobs.
AT_ONCE = 8
LATE_S = 0.05  # after which a response does not wait for an owner that gets no results


class OwnerRequests:
    """Asks in the name of the workers that poll this server."""

    def __init__(self, servers: Servers, owners: LeaseOwners, sender: PartSender) -> None:
        self._servers, self._owners, self._sender = servers, owners, sender
        self._rooms = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(AT_ONCE))

    async def ask(self, call: WorkerCall) -> None:
        """Let the owners carry out what is about their jobs, and note what they say in time.

        Raise Unavailable if a result or a decision about an offer finds no owner in time, and
        Refusal if an owner refuses it.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + MOVING_S
        self._begin_due(call, call.undelivered)
        await _wait(call.list_asking(), LATE_S)
        while call.undelivered and call.refusal is None:
            named = {lease for each in call.list_asking() for lease in each.leases}
            unasked = call.undelivered - named
            if unasked:
                if loop.time() > until:
                    raise Unavailable(MOVING_TEXT)
                await self._servers.wait_for_change(PAUSE_S)
                await self._owners.place(call, unasked, believes_givers=False)
                self._begin_due(call, unasked)
            limit_s = PAUSE_S if unasked else None
            await _wait(call.list_asking(), limit_s, asyncio.FIRST_COMPLETED)
        if call.refusal is not None:
            raise call.refusal

    def follow(self, call: WorkerCall) -> None:
        """Ask the owners again and again while the poll waits here."""
        if call.following is None and call.worker.elsewhere:
            call.following = asyncio.create_task(self._follow(call), name="schedo owner requests")

    async def _follow(self, call: WorkerCall) -> None:
        loop = asyncio.get_running_loop()
        while not call.is_replaced:
            changed = self._servers.changed
            await self._read_shards(call)
            self._begin_due(call, frozenset())
            due_s = self._find_due(call)
            waited = [changed, *(each.task for each in call.worker.asking)]
            pause_s = None if due_s is None else max(due_s - loop.time(), 0.0)
            await asyncio.wait(waited, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            if changed.done():  # perhaps during the read, whose end has set the pace
                call.worker.paces.note_change()

    async def _read_shards(self, call: WorkerCall) -> None:
        """Look where the jobs are whose shards or owners are not known; some may be here now."""
        unsure = self._owners.find_unsure(call)
        paces = call.worker.paces
        if not unsure or paces[UNKNOWN].find_due(unsure) > asyncio.get_running_loop().time():
            return
        with suppress(SchedoError):  # the database does not respond
            await self._owners.place(call, unsure, believes_givers=False)
        paces.note_asked(UNKNOWN, unsure, is_heard=not self._owners.find_unsure(call))
        if not call.worker.elsewhere.keys() >= unsure:
            call.wake()

    def _find_due(self, call: WorkerCall) -> float | None:
        """Return when the next owner is to be asked; None: when something has happened."""
        asked, paces = {each.no for each in call.worker.asking}, call.worker.paces
        due = [
            paces[member.epoch].find_due(leases)
            for member, leases in self._owners.group(call, call.worker.elsewhere)
            if member.no not in asked
        ]
        unsure = self._owners.find_unsure(call)
        if unsure:
            due.append(paces[UNKNOWN].find_due(unsure))
        return min(due, default=None)

    def _begin_due(self, call: WorkerCall, results: Set[str]) -> None:
        """Ask the owners whose time has come, or for which there are results of these leases."""
        now, paces = asyncio.get_running_loop().time(), call.worker.paces
        owners = self._owners.group(call, call.worker.elsewhere)
        paces.keep_only({member.epoch for member, _ in owners}, call.worker.elsewhere.keys())
        for member, leases in owners:
            has_results = not results.isdisjoint(leases)
            # A slow owner is asked for one request of the worker at a time.
            is_asked = any(
                each.no == member.no and (each.call is call or not has_results)
                for each in call.worker.asking
            )
            is_due = has_results or paces[member.epoch].find_due(leases) <= now
            if is_due and not is_asked:
                task = self._servers.begin(self._carry_out(call, member, leases, has_results))
                call.worker.note_asking(OwnerRequest(call, member.no, leases, task))

    async def _carry_out(
        self, call: WorkerCall, member: Member, leases: Collection[str], has_results: bool
    ) -> None:
        if has_results:
            await self._ask_one(call, member, leases)
        else:
            async with self._rooms[member.no]:
                await self._ask_one(call, member, leases)

    async def _ask_one(self, call: WorkerCall, member: Member, leases: Collection[str]) -> None:
        call.drop_old_list()
        try:
            answer = await self._sender.ask(call, member, leases)
        except Refusal as refusal:
            call.refuse(refusal)
            return
        call.worker.paces.note_asked(member.epoch, leases, is_heard=answer is not None)
        if answer is not None:
            call.note_response(member.no, leases, answer)
            call.note_answer(member.no, answer)


async def _wait(
    asking: Collection[OwnerRequest], limit_s: float | None, until: str = asyncio.ALL_COMPLETED
) -> None:
    if asking:
        await asyncio.wait([each.task for each in asking], timeout=limit_s, return_when=until)
